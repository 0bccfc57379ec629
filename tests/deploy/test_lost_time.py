"""Seconds in which others had the processor are told, and are no operator's."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from circinus.deploy.workers.process import busy_s, lost_s

BURNS_S = 0.2


@contextmanager
def shared_processor() -> Iterator[None]:
    """Let this thread have one processor, with a process that wants all of it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    code = "while True: pass"
    other = subprocess.Popen([sys.executable, "-c", code])  # inherits where it may run
    try:
        time.sleep(0.2)
        yield
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, before)


def burnt() -> tuple[float, float, float]:
    """Use the processor for a while; give seconds of the clock, of the processor, and lost."""
    lost, began, ends = lost_s() or 0.0, time.perf_counter(), time.thread_time() + BURNS_S
    while (used := time.thread_time()) < ends:
        pass
    return time.perf_counter() - began, used - ends + BURNS_S, (lost_s() or 0.0) - lost


def test_what_a_neighbour_took_is_what_the_clock_has_more_than_the_processor() -> None:
    with shared_processor():
        elapsed, used, lost = burnt()
    if lost == 0.0:
        pytest.skip("this kernel does not tell")
    assert lost > 0.5 * BURNS_S
    assert elapsed - lost == pytest.approx(used, rel=0.1)


def test_who_sleeps_loses_nothing() -> None:
    lost = lost_s() or 0.0
    time.sleep(0.1)
    assert (lost_s() or 0.0) - lost < 0.05


def test_a_process_is_busy_while_its_threads_and_programs_compute_not_while_it_sleeps() -> None:
    if lost_s() is None:
        pytest.skip("this kernel does not tell")
    began = busy_s()
    time.sleep(0.1)
    assert busy_s() - began < 0.05
    code = f"import time\nwhile time.process_time() < {BURNS_S}: pass"
    program = subprocess.Popen([sys.executable, "-c", code])
    thread = threading.Thread(target=burnt)
    thread.start()
    thread.join()
    assert busy_s() - began > BURNS_S
    while program.poll() is None and busy_s() - began < 1.5 * BURNS_S:
        time.sleep(0.01)  # it counts while it runs
    program.wait()
    assert busy_s() - began > 2 * BURNS_S  # and once it ended
