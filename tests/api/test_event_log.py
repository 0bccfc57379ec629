"""What lasts is told now and then, not every time that it is met."""

from __future__ import annotations

import logging

import pytest

from circinus.api.event_log import Outage
from circinus.pipelines.clock import ManualClock

LOG = logging.getLogger("tests.outage")


def met(outage: Outage, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds * 2):
        outage.lasts(cause="no cable")
        clock.sleep(0.5)


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, float]]:
    return [
        (record.message, record.circinus_fields["lasted_s"])  # type: ignore[attr-defined]  # of an event
        for record in caplog.records
    ]


def test_an_outage_is_told_at_once_then_after_pauses_that_double_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    outage = Outage(LOG, "cable.out", clock)
    outage.over()
    met(outage, clock, 100)
    outage.over()
    outage.over()
    assert told(caplog) == [
        ("cable.out", 0.0),
        ("cable.out", 10.0),
        ("cable.out", 30.0),
        ("cable.out", 70.0),
        ("cable.out_over", 100.0),
    ]
    assert all(record.exc_info is None for record in caplog.records)


def test_what_comes_and_goes_is_told_ever_more_seldom(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    outage = Outage(LOG, "cable.out", clock)
    for _ in range(71):
        met(outage, clock, 1)
        outage.over()
    assert [name for name, _ in told(caplog)] == ["cable.out", "cable.out_over"] * 4  # 0 10 30 70
    clock.sleep(61.0)  # then it is another one
    caplog.clear()
    met(outage, clock, 1)
    assert told(caplog) == [("cable.out", 0.0)]
