"""Other programs' load is noticed, one's own is not."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from circinus.deploy.profiling import load
from circinus.deploy.profiling.load import CallsAtOnce, OtherLoad
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
    assert OtherLoad(SystemClock()).remarks(at_once=10_000) == ()


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

    (told,) = watch.remarks(at_once=1)
    assert "plan again on a quiet machine" in told


def test_operators_that_wait_for_each_other_are_no_load_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(load, "_others_s", lambda: 100.0)
    clock = ManualClock()
    watch = OtherLoad(clock)
    clock.sleep(10.0)
    assert watch.remarks(at_once=8 * (psutil.cpu_count() or 1)) == ()


class _Machine:
    """Two processors, so much of which is busy."""

    def __init__(self) -> None:
        self.clock, self.busy, self.used_s = ManualClock(), 0.0, 0.0
        self.calls = CallsAtOnce(self.clock, 2, lambda: self.used_s, cores=2)

    def run(self, seconds: float) -> None:
        """Let as many calls as may run at once."""
        most = self.calls.most
        for _ in range(most):
            self.calls.__enter__()
        self.clock.sleep(seconds)
        self.used_s += self.busy * 2 * seconds
        for _ in range(most):
            self.calls.__exit__()


def test_calls_are_at_most_as_many_as_cores_while_processors_are_busy() -> None:
    machine = _Machine()
    machine.busy = 0.6
    for _ in range(20):
        machine.run(1.0)
    assert machine.calls.most == 2


def test_calls_that_leave_processors_idle_become_more_and_fewer_again_once_they_do_not() -> None:
    machine = _Machine()
    machine.busy = 0.1
    for _ in range(6):
        machine.run(1.0)
    assert machine.calls.most == 8
    machine.busy = 0.9
    machine.run(1.0)
    assert machine.calls.most == 4
    for _ in range(5):
        machine.run(1.0)
    assert machine.calls.most == 2


def test_what_is_not_used_grows_no_further() -> None:
    machine = _Machine()
    with machine.calls:
        machine.clock.sleep(1.0)
    assert machine.calls.most == 2
