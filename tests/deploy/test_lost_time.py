"""Seconds in which others had the processor are told, and are no operator's."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from circinus.deploy.workers.process import lost_s

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
    lost, began, ends = lost_s(), time.perf_counter(), time.thread_time() + BURNS_S
    while (used := time.thread_time()) < ends:
        pass
    return time.perf_counter() - began, used - ends + BURNS_S, lost_s() - lost


def test_what_a_neighbour_took_is_what_the_clock_has_more_than_the_processor() -> None:
    with shared_processor():
        elapsed, used, lost = burnt()
    if lost == 0.0:
        pytest.skip("this kernel does not tell")
    assert lost > 0.5 * BURNS_S
    assert elapsed - lost == pytest.approx(used, rel=0.1)


def test_who_sleeps_loses_nothing() -> None:
    lost = lost_s()
    time.sleep(0.1)
    assert lost_s() - lost < 0.05
