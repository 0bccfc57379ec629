from __future__ import annotations

from circinus.pipelines.clock import ManualClock, Waits


def test_threads_that_wait_at_once_wait_once_and_by_cause() -> None:
    clock = ManualClock()
    waits = Waits(clock)
    first, second = waits.during("a limit"), waits.during("a worker")
    first.__enter__()
    clock.sleep(2.0)
    second.__enter__()
    clock.sleep(3.0)
    assert (waits.seconds, dict(waits.by_cause)) == (5.0, {"a limit": 5.0, "a worker": 3.0})
    first.__exit__(None, None, None)
    clock.sleep(1.0)
    second.__exit__(None, None, None)
    clock.sleep(9.0)
    assert (waits.seconds, dict(waits.by_cause)) == (6.0, {"a limit": 5.0, "a worker": 4.0})


def test_short_waits_are_no_remark() -> None:
    clock = ManualClock()
    waits = Waits(clock)
    for seconds, what in ((0.9, "a worker"), (2.5, "a limit")):
        with waits.during(what):
            clock.sleep(seconds)
    (remark,) = waits.remarks()
    assert remark.startswith("waited 2.5 s for a limit, ")
