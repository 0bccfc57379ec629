"""The highest rate that a queue holds, beside closed forms: M/M/1 and M/D/1."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.routing.breaking_point import (
    BreakingLimits,
    BreakingPoint,
    BreakingReason,
    RampObservation,
    RampPlan,
    RampStep,
    breaking_point,
    judged,
    next_rate,
)
from tests.scheduler.routing import queues

PLAN = RampPlan(first_per_s=10.0, most_per_s=1000.0)
LATENCY, THROUGHPUT = BreakingReason.LATENCY, BreakingReason.THROUGHPUT
UTILISATION, LIMIT = BreakingReason.UTILISATION, BreakingReason.LIMIT
RUNS = 200


def seen(**changes: object) -> RampObservation:
    given: dict[str, object] = {"per_s": 10.0, "lasted_s": 10.0}
    given |= {"sent_s": np.arange(100) / 10, "response_s": np.full(100, 0.02)}
    return RampObservation(**(given | changes))  # type: ignore[arg-type]  # as the test changes it


def ramp(
    seed: int,
    service: queues.Service,
    limits: BreakingLimits,
    plan: RampPlan = PLAN,
    *,
    tells_busy: bool = False,
) -> tuple[list[RampStep], BreakingPoint]:
    generator, steps = np.random.default_rng(seed), list[RampStep]()
    while (rate := next_rate(plan, steps)) is not None:
        step = queues.step(generator, rate.per_s, rate.lasts_s, service, tells_busy=tells_busy)
        steps.append(judged(step, limits))
    return steps, breaking_point(steps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"per_s": 0.0}, "per_s must be finite and > 0"),
        ({"lasted_s": inf}, "lasted_s must be finite and > 0"),
        ({"sent_s": np.empty(0)}, "sent_s must have at least one"),
        ({"response_s": np.ones(99)}, "response_s and busy_s must have 100 values"),
        ({"busy_s": np.ones(101)}, "response_s and busy_s must have 100 values"),
    ],
)
def test_a_step_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        seen(**changes)


@pytest.mark.parametrize(("name", "value"), [("latency_s", 0.0), ("busy", 1.1), ("busy", 0.0)])
def test_limits_that_cannot_be_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=name):
        BreakingLimits(**{name: value})


def test_nothing_is_known_without_a_step() -> None:
    with pytest.raises(InvalidInput, match="steps must have at least one"):
        breaking_point([])


def test_a_step_of_which_busy_seconds_are_not_known_is_one_of_others() -> None:
    busy = np.full(100, 0.02)
    steps = [judged(seen(per_s=9.0, busy_s=busy), BreakingLimits())]
    steps += [judged(seen(), BreakingLimits()), judged(seen(per_s=11.0), BreakingLimits())]
    assert breaking_point(steps).low_per_s == 9.0


def test_where_all_requests_fail_no_rate_holds() -> None:
    failing = judged(seen(response_s=np.full(100, inf)), BreakingLimits(latency_s=1.0))
    assert (failing.failed, failing.served_per_s, failing.p50_s) == (100, 0.0, inf)
    assert failing.broken_by == (LATENCY, THROUGHPUT)
    found = breaking_point([failing])
    assert (found.per_s, found.there, found.high_per_s) == (0.0, None, 0.0)


def test_a_rate_that_holds_everywhere_says_that_there_may_be_more() -> None:
    found = breaking_point([judged(seen(), BreakingLimits(latency_s=1.0))])
    assert (found.per_s, found.high_per_s, found.reasons) == (10.0, None, (LIMIT,))


def test_what_is_seen_of_a_step_is_what_happened() -> None:
    # 10 requests a second of 20 ms one after the other: a fifth of the time.
    step = judged(seen(busy_s=np.full(100, 0.02)), BreakingLimits())
    assert step.served_per_s == pytest.approx(10.0)
    assert step.busy == pytest.approx(0.2)
    assert (step.p50_s, step.p95_s) == (0.02, 0.02)
    assert step.service_s == pytest.approx(0.02)
    assert step.surely_held


def test_a_server_that_takes_20_ms_and_gets_evenly_spaced_requests_breaks_at_50() -> None:
    def step(per_s: float) -> RampStep:
        sent = np.arange(int(per_s * 5)) / per_s
        done = np.maximum.accumulate(sent - 0.02 * np.arange(len(sent))) + 0.02 * np.arange(
            1, len(sent) + 1
        )
        took = done - sent
        return judged(
            RampObservation(per_s=per_s, lasted_s=5.0, sent_s=sent, response_s=took),
            BreakingLimits(),
        )

    found = breaking_point([step(per_s) for per_s in (20.0, 40.0, 60.0)])
    assert found.reasons == (THROUGHPUT,)
    assert found.low_per_s <= 50.0 <= (found.high_per_s or 0.0)
    assert found.per_s == found.low_per_s  # 40 held, and more was served
    assert found.per_s == pytest.approx(50.0, rel=0.02)


@pytest.mark.parametrize(
    ("service", "limits", "breaks_at", "reason"),
    [
        (
            queues.exponential(0.01),
            BreakingLimits(latency_s=0.1),
            queues.breaks_exponential(0.01, 0.1),  # 70.0
            LATENCY,
        ),
        (
            queues.always(0.01),
            BreakingLimits(latency_s=0.04),
            queues.breaks_constant(0.01, 0.04),  # 61.7
            LATENCY,
        ),
        (queues.exponential(0.01), BreakingLimits(), 80.0, UTILISATION),
        (queues.always(0.01), BreakingLimits(), 80.0, UTILISATION),
        (queues.exponential(0.01), BreakingLimits(), 100.0, THROUGHPUT),
        (queues.always(0.01), BreakingLimits(), 100.0, THROUGHPUT),
        (  # of few requests a step
            queues.exponential(0.1),
            BreakingLimits(latency_s=1.0),
            queues.breaks_exponential(0.1, 1.0),
            LATENCY,
        ),
        (queues.exponential(0.1), BreakingLimits(), 10.0, THROUGHPUT),
    ],
    ids=[
        *("M/M/1 late", "M/D/1 late", "M/M/1 busy", "M/D/1 busy", "M/M/1 full", "M/D/1 full"),
        *("slow M/M/1 late", "slow M/M/1 full"),
    ],
)
def test_the_interval_has_the_breaking_point_as_often_as_it_says(
    service: queues.Service, limits: BreakingLimits, breaks_at: float, reason: BreakingReason
) -> None:
    """95 % of 200; fewer than 186 would be less than 93 %, of a chance of 8 % at exactly 95."""
    has = right = 0
    for seed in range(RUNS):
        first = np.random.default_rng(seed).uniform(0.3, 0.8) * breaks_at
        plan = RampPlan(first_per_s=first, most_per_s=100 * first)
        _, found = ramp(seed, service, limits, plan, tells_busy=reason is UTILISATION)
        has += found.low_per_s <= breaks_at <= (found.high_per_s or inf)
        right += reason in found.reasons
    assert has >= 0.93 * RUNS
    assert right >= 0.95 * RUNS


def test_the_closed_form_of_constant_service_is_that_of_a_long_run() -> None:
    rate = queues.breaks_constant(0.01, 0.04)
    step = queues.step(np.random.default_rng(1), rate, 5000.0, queues.always(0.01))
    assert (step.response_s > 0.04).mean() == pytest.approx(0.05, abs=0.005)


def _exact(breaks_at: float) -> Callable[[float], RampStep]:
    """Return steps that know: latency is over its limit above a rate, without doubt."""

    def step(per_s: float) -> RampStep:
        made = RampObservation(
            per_s=per_s,
            lasted_s=1.0,
            sent_s=np.arange(80) / 80,
            response_s=np.full(80, per_s * 1e-6),  # a tenth of a second at most
        )
        return judged(made, BreakingLimits(latency_s=breaks_at * 1e-6))

    return step


@settings(max_examples=60, deadline=None)
@given(
    first=st.floats(0.1, 100.0),
    times=st.floats(1.0, 1000.0),
    breaks=st.floats(0.001, 10_000.0),
    growth=st.floats(1.1, 4.0),
)
def test_a_ramp_ends_and_stays_within_what_it_may_try(
    first: float, times: float, breaks: float, growth: float
) -> None:
    plan = RampPlan(first_per_s=first, most_per_s=first * times, growth=growth)
    step, steps = _exact(breaks), list[RampStep]()
    while (rate := next_rate(plan, steps)) is not None:
        assert first / 8 <= rate.per_s <= plan.most_per_s
        assert rate.lasts_s * rate.per_s >= plan.least_requests * (1 - 1e-9)
        steps.append(step(rate.per_s))
        assert len(steps) <= plan.most_steps
    found = breaking_point(steps)
    tried = sorted(each.per_s for each in steps)
    if len(steps) < plan.most_steps and tried[0] < breaks < tried[-1]:
        assert found.per_s <= breaks <= (found.high_per_s or inf)
        assert breaks <= found.per_s * (1 + plan.precision) * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), service_ms=st.floats(1.0, 50.0))
def test_a_point_lies_in_its_interval_and_was_tried_or_served(
    seed: int, service_ms: float
) -> None:
    limits = BreakingLimits(latency_s=0.1)
    steps, found = ramp(seed, queues.exponential(service_ms / 1e3), limits)
    assert found.low_per_s <= found.per_s <= (found.high_per_s or inf)
    assert all(step.per_s <= PLAN.most_per_s for step in steps)
    assert found.there is None or found.there.held


def test_longer_steps_know_it_better() -> None:
    def width(step_s: float) -> float:
        plan = RampPlan(first_per_s=10.0, most_per_s=1000.0, step_s=step_s)
        limits, of = BreakingLimits(latency_s=0.1), queues.exponential(0.01)
        points = [ramp(seed, of, limits, plan)[1] for seed in range(20)]
        return float(np.median([sqrt((p.high_per_s or inf) / p.low_per_s) for p in points]))

    assert width(40.0) < width(5.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first_per_s": 0.0}, "first_per_s"),
        ({"most_per_s": 9.0}, "most_per_s must be >= 10, the first rate"),
        ({"growth": 1.0}, "growth must be in"),
        ({"precision": 0.0}, "precision"),
        ({"most_steps": 0}, "most_steps"),
        ({"step_s": -1.0}, "step_s"),
        ({"least_requests": 0}, "least_requests"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        RampPlan(**({"first_per_s": 10.0, "most_per_s": 1000.0} | changes))  # type: ignore[arg-type]  # ints and floats
