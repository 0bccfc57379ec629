"""What a planning worker tells its supervisor of itself."""

from __future__ import annotations

from circinus.api.control.pulse import Pulse
from circinus.pipelines.clock import ManualClock


def _felt(clock: ManualClock) -> tuple[Pulse, list[str]]:
    sent: list[str] = []
    return Pulse(send=sent.append, clock=clock, lease_s=30.0, grace_s=10.0), sent


def test_planning_beyond_the_time_for_an_answer_and_the_grace_is_complained_of() -> None:
    clock = ManualClock()
    pulse, sent = _felt(clock)
    with pulse.planning(5.0):
        clock.sleep(15.0)
        pulse.beat()
        clock.sleep(0.1)
        pulse.beat()
    pulse.beat()
    assert sent == ["", "planning went on 10 s beyond limits.response_s", ""]


def test_planning_that_goes_on_after_it_was_cancelled_is_complained_of() -> None:
    clock = ManualClock()
    pulse, sent = _felt(clock)
    with pulse.planning(None):  # as long as it likes
        clock.sleep(1e6)
        pulse.beat()
        for _ in range(11):  # every beat of the heart hears it again
            pulse.cancelled()
            clock.sleep(1.0)
        pulse.beat()
    assert sent == ["", "planning went on 10 s after it was to be cancelled"]


def test_waiting_for_the_database_is_not_complained_of_and_is_no_time_of_the_query() -> None:
    clock = ManualClock()
    pulse, sent = _felt(clock)
    with pulse.planning(5.0):
        clock.sleep(14.0)
        with pulse.waiting():
            clock.sleep(1e6)
            pulse.beat()
        clock.sleep(1.0)
        pulse.beat()
        clock.sleep(0.1)
        pulse.beat()
    assert sent == ["", "", "planning went on 10 s beyond limits.response_s"]


def test_cancelling_late_gives_no_more_time_than_the_query_had() -> None:
    clock = ManualClock()
    pulse, sent = _felt(clock)
    with pulse.planning(5.0):
        clock.sleep(14.0)
        pulse.cancelled()
        clock.sleep(2.0)
        pulse.beat()
    assert sent == ["planning went on 10 s beyond limits.response_s"]


def test_a_wish_to_cancel_that_is_heard_after_planning_ended_ends_no_idle_worker() -> None:
    clock = ManualClock()
    pulse, sent = _felt(clock)
    with pulse.planning(5.0):
        pulse.cancelled()
    pulse.cancelled()  # the heart's last beat
    clock.sleep(1e6)
    pulse.beat()
    with pulse.planning(5.0):  # the next query has all of its time
        clock.sleep(14.0)
        pulse.beat()
    assert sent == ["", ""]
