"""Simulated trials of pools: the fast loop against the event loop that all simulations have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.simulation.loads import ribbon_batches
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import (
    MOST_BURSTY,
    SMOOTHEST,
    DispatchedTrials,
    FirstComeTrials,
    TrialDraws,
    TrialLoad,
    trial_draws,
)

MEAN_S = 0.01 * (1 + np.arange(10, 501, 10)[:, None] / 100) * np.array([0.4, 1.0, 1.6])
TABLE = LatencyTable(
    model="m",
    kinds=("a", "b", "c"),
    batches=np.arange(10, 501, 10),
    mean_s=MEAN_S,
    std_s=0.05 * MEAN_S,
)


def drawn(**changed: Any) -> TrialDraws:  # noqa: ANN401
    given: dict[str, Any] = {"qos_s": 0.04, "rate_rps": 150.0, "requests": 1000}
    streams = changed.pop("streams", 4)
    load = TrialLoad(mix=ribbon_batches, **(given | changed))
    return trial_draws(TABLE, load, np.random.default_rng(3), streams=streams)


DRAWS = drawn()
POOLS = st.tuples(*[st.integers(0, 3)] * 3).filter(any)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be finite and > 0"),
        ({"rate_rps": 0.0}, "rate_rps must be finite and > 0"),
        ({"requests": 99}, "requests must be >= 100"),
        ({"streams": 1}, "streams must be >= 2"),
    ],
)
def test_numbers_out_of_range_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        drawn(**changed)


@settings(deadline=None)
@given(
    POOLS,
    st.tuples(*[st.floats(0.7, 1.4)] * 3),
    st.floats(0.0, 1.0),
    st.integers(0, 3),
    st.floats(0.5, 1.0),
)
def test_the_fast_loop_does_what_the_event_loop_does(
    pool: tuple[int, ...],
    scale: tuple[float, ...],
    variability: float,
    stream: int,
    enough: float,
) -> None:
    run = (np.array([pool]), np.array([scale]), np.array([variability]), np.array([stream]))
    fast = FirstComeTrials(draws=DRAWS)
    wanted = DispatchedTrials(draws=DRAWS, policy=FcfsDispatch()).in_time(*run)
    assert fast.in_time(*run) == pytest.approx(wanted, abs=1e-12)
    stopped = fast.in_time(*run, enough)
    same = stopped == pytest.approx(wanted, abs=1e-12)
    assert same or (stopped < enough and wanted < enough)


def test_runs_that_are_asked_together_are_those_asked_one_by_one() -> None:
    fast, count = FirstComeTrials(draws=DRAWS), 6
    rng = np.random.default_rng(5)
    pools, stream = rng.integers(1, 4, (count, 3)), rng.integers(0, 4, count)
    scale, variability = rng.uniform(0.8, 1.2, (count, 3)), rng.random(count)
    together = fast.in_time(pools, scale, variability, stream)
    for i in range(count):
        at = slice(i, i + 1)
        assert fast.in_time(pools[at], scale[at], variability[at], stream[at]) == together[at]


def test_gaps_fit_the_rate_and_the_variability() -> None:
    many = drawn(requests=20_000, streams=2)
    for variability, expected in ((0.0, SMOOTHEST), (0.5, 1.0), (1.0, MOST_BURSTY)):
        gaps = np.diff(many.arrived_s(0, variability), prepend=0.0)
        # 20,000 gaps: standard errors 1.4 % of the mean at most, 6 % of its square's
        assert gaps.mean() == pytest.approx(1 / 150, rel=0.06)
        assert gaps.var() / gaps.mean() ** 2 == pytest.approx(expected, rel=0.25)


def test_slower_instances_and_burstier_arrivals_make_more_late() -> None:
    fast = FirstComeTrials(draws=drawn(requests=5000))
    pools, none = np.array([[2, 0, 0]] * 3), np.zeros(3, dtype=np.int64)
    scale = np.array([[0.9], [1.0], [1.1]]) * np.ones(3)
    slower = fast.in_time(pools, scale, np.full(3, 0.5), none)
    assert (np.diff(slower) < 0).all()
    burstier = fast.in_time(pools, np.ones((3, 3)), np.array([0.0, 0.5, 1.0]), none)
    assert (np.diff(burstier) < 0).all()


def test_a_better_dispatcher_has_more_in_time() -> None:
    run = (np.array([[2, 1, 2]]), np.ones((1, 3)), np.array([0.5]), np.array([1]))
    first_come = FirstComeTrials(draws=DRAWS).in_time(*run)
    assert DispatchedTrials(draws=DRAWS, policy=PlanAhead()).in_time(*run) > first_come
