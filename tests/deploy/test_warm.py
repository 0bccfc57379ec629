"""Processes that are started as copies of one that is warm."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from circinus.deploy.profiling.processes import ProcessPool
from circinus.deploy.profiling.warm import STARTER
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.configuration import Configuration
from circinus.profiler.execution import Completed
from tests.deploy.profiled_pipelines import EVERY, every

PLAIN = Configuration(())


def _copied() -> psutil.Process:
    (only,) = _warm_ones()
    return only


def _warm_ones() -> list[psutil.Process]:
    """Return the processes that are copied: tests before may have left others."""
    children = psutil.Process().children()
    return [
        each for each in children if "circinus.deploy.profiling.warm" in " ".join(each.cmdline())
    ]


def test_the_process_that_is_copied_has_one_thread_and_ends_with_its_last_use() -> None:
    with STARTER.used():
        with ProcessPool(EVERY, SystemClock()) as pool:
            assert isinstance(pool.run(every.by_name["echo"], 1, PLAIN), Completed)
            first = _copied()
            assert first.num_threads() == 1
            assert len(first.children()) == 1
        with ProcessPool(EVERY, SystemClock()) as pool:
            pool.run(every.by_name["echo"], 1, PLAIN)
            assert _copied() == first  # and imports nothing again
    assert _warm_ones() == []


def test_a_copy_has_this_process_folder_environment_and_path(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with STARTER.used(), ProcessPool(EVERY, SystemClock()) as pool:
        pool.run(every.by_name["echo"], 1, PLAIN)
        monkeypatch.chdir(str(tmp_path))
        monkeypatch.setenv("SET_AFTERWARDS", "yes")
        monkeypatch.setenv("CIRCINUS_TOKEN", "secret")
        monkeypatch.syspath_prepend("/set/afterwards")
        with ProcessPool(EVERY, SystemClock()) as later:
            done = later.run(every.by_name["surroundings"], 1, PLAIN)
    assert isinstance(done, Completed)
    assert done.output == [str(tmp_path), "yes", "", "/set/afterwards"]


def test_a_process_that_is_copied_and_was_killed_is_replaced_and_leaves_no_copy() -> None:
    with ProcessPool(EVERY, SystemClock()) as pool:
        done = pool.run(every.by_name["pid"], 1, PLAIN)
        assert isinstance(done, Completed)
        assert isinstance(done.output, int)
        first = _copied()
        os.kill(first.pid, signal.SIGKILL)
        psutil.Process(done.output).wait(timeout=10)
        again = pool.run(every.by_name["pid"], 1, PLAIN)
        assert isinstance(again, Completed)
        assert _copied() != first
    assert _warm_ones() == []


def test_a_process_that_is_copied_and_stands_still_is_ended_with_its_copies() -> None:
    with ProcessPool(EVERY, SystemClock()) as pool:
        pool.run(every.by_name["echo"], 1, PLAIN)
        first = _copied()
        first.suspend()
    assert _warm_ones() == []
    assert not first.is_running()
