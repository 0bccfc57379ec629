from __future__ import annotations

from dataclasses import replace
from math import inf, nan, nextafter

import pytest

from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import ManualClock, Waits
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.slo import LatencyStatistic, Slo
from circinus.pipelines.ranges import MACHINES, WEIGHT
from circinus.pipelines.units import dollars_per_hour, figures, seconds
from tests.api.fakes import plan


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
    for length, what in ((0.9, "a worker"), (2.5, "a limit")):
        with waits.during(what):
            clock.sleep(length)
    (remark,) = waits.remarks()
    assert remark.startswith("waited 2.5 s for a limit, ")


SLO = Slo(accuracy=0.5, latency_s=0.1)


def test_batch_work_has_no_deadline() -> None:
    assert plan().deadline_s(replace(SLO, throughput_per_s=5.0)) is None


@pytest.mark.parametrize(
    ("statistic", "deadline_s"),
    [
        (LatencyStatistic.P50, 0.1),
        (LatencyStatistic.P99, 0.1),
        (LatencyStatistic.MEAN, 0.25),  # 0.1 times 2.5
    ],
)
def test_a_bound_on_the_mean_leaves_room_for_slow_requests(
    statistic: LatencyStatistic, deadline_s: float
) -> None:
    measured = replace(plan(), p99_over_mean=2.5)
    assert measured.deadline_s(replace(SLO, latency_statistic=statistic)) == deadline_s


PAUSES = Backoff(0.1, 30.0)


def test_pauses_are_positive_and_never_shrink() -> None:
    pauses = [PAUSES.pause_s(failures) for failures in range(1, 2000)]
    assert min(pauses) > 0
    assert pauses == sorted(pauses)


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [PAUSES.pause_s(n) for n in (1, 2, 3, 9, 10, 10_000)]
    assert pauses == [0.1, 0.2, 0.4, 25.6, 30.0, 30.0]


def test_chance_spreads_a_pause_over_its_second_half() -> None:
    assert [PAUSES.spread_s(2, chance) for chance in (0.0, 0.5)] == [0.1, 0.2 * 0.75]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0.00 ms"),
        (1e-9, "1e-06 ms"),
        (0.00000999, "0.00999 ms"),
        (0.00001, "0.01 ms"),
        (0.0123456, "12.3 ms"),
        (0.999, "999 ms"),
        (1.0, "1.00 s"),
        (86400.0, "86400 s"),
    ],
)
def test_seconds_have_three_figures_and_a_unit(value: float, told: str) -> None:
    assert seconds(value) == told


def test_dollars_and_figures() -> None:
    assert dollars_per_hour(0.18504) == "$0.1850/h"
    assert [figures(x) for x in (1.234, 12.34, 123.4)] == ["1.23", "12.3", "123"]


@pytest.mark.parametrize("value", [0.0, nextafter(0.001, 0), nextafter(1000, inf), inf, -inf, nan])
def test_a_value_outside_is_refused_by_name_rule_and_value(value: float) -> None:
    with pytest.raises(InvalidInput, match=r"weight must be from 0\.001 to 1000, got"):
        WEIGHT.check("weight", value)


@pytest.mark.parametrize("value", [0.001, 1.0, 1000, None])
def test_both_ends_are_within_and_so_is_what_is_left_out(value: float | None) -> None:
    WEIGHT.check("weight", value)


def test_large_whole_numbers_are_told_digit_by_digit() -> None:
    assert MACHINES.rule == "must be from 0 to 100000"
