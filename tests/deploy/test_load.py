"""Other programs' load is noticed, one's own is not."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from circinus.deploy.profiling import load
from circinus.deploy.profiling.load import OtherLoad
from circinus.pipelines.clock import ManualClock, SystemClock


def _spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextmanager
def _spinning(seconds: float) -> Iterator[None]:
    """Let a child burn a core."""
    child = multiprocessing.get_context("spawn").Process(target=_spin, args=(seconds,))
    child.start()
    try:
        yield
    finally:
        child.join()


def test_too_short_a_time_says_nothing() -> None:
    assert OtherLoad(SystemClock()).remarks(width=10_000) == ()


def test_what_this_process_and_its_children_do_is_no_load() -> None:
    before = load._others_s()
    with _spinning(1.5):
        _spin(1.5)
        added = load._others_s() - before

    # The two of them took about 3 s; whatever else runs here is bounded by the other cores.
    assert added <= 1.8 * (psutil.cpu_count() or 1)


def test_others_that_leave_no_core_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    used = iter([100.0, 100.0 + 10.0 * (psutil.cpu_count() or 1)])
    monkeypatch.setattr(load, "_others_s", lambda: next(used))

    clock = ManualClock()
    watch = OtherLoad(clock)
    clock.sleep(10.0)

    (told,) = watch.remarks(width=1)
    assert "plan again on a quiet machine" in told
