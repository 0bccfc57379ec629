"""The simulator against queues whose answers are known."""

from __future__ import annotations

from math import factorial, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import (
    Clockwork,
    FcfsDispatch,
    SizeThreshold,
)
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet, FloatArray
from circinus.scheduler.simulation.engine import NOT_SERVED, Scenario, simulate
from circinus.scheduler.simulation.loads import (
    arrival_times,
    bursty_gaps,
    poisson_gaps,
    recorded_gaps,
)
from circinus.scheduler.simulation.metrics import lateness_s, state_at

POLICIES: list[CompiledPolicy] = [
    FcfsDispatch(),
    MinCostMatching(),
    PlanAhead(),
    Clockwork(),
    SizeThreshold(fraction=0.5),
    Clockwork(rejects=True),
]


def queue(
    arrived_s: FloatArray, service_s: FloatArray, servers: int = 1, qos_s: float = 1e9
) -> Scenario:
    column = np.asarray(service_s, dtype=np.float64)[:, None]
    return Scenario(
        arrived_s=np.asarray(arrived_s, dtype=np.float64),
        size=np.ones(len(column)),
        service_s=column,
        predicted_s=column,
        qos_s=qos_s,
        fleet=Fleet.alike(servers),
    )


def erlang_c_wait(rate: float, service_s: float, servers: int) -> float:
    """Mean wait of M/M/c."""
    load = rate * service_s
    busy = load**servers / factorial(servers) / (1 - load / servers)
    idle = sum(load**k / factorial(k) for k in range(servers))
    return busy / (idle + busy) * service_s / (servers - load)


def test_times_that_fall_are_refused() -> None:
    with pytest.raises(InvalidInput, match="arrived_s must not fall"):
        queue(np.array([1.0, 0.5]), np.ones(2))


@pytest.mark.parametrize("gaps", [[], [-1.0], [0.0, 0.0], [inf]])
def test_recorded_gaps_that_make_no_sense_are_refused(gaps: list[float]) -> None:
    with pytest.raises(InvalidInput):
        recorded_gaps(np.array(gaps), 10)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_run_by_hand(policy: CompiledPolicy) -> None:
    # two servers; arrivals at 0, 1, 2 of 4 s each: the third waits until 4
    run = simulate(queue(np.array([0.0, 1.0, 2.0]), np.full(3, 4.0), servers=2), policy)
    assert run.started_s.tolist() == [0.0, 1.0, 4.0]
    assert run.finished_s.tolist() == [4.0, 5.0, 8.0]
    assert run.instance.tolist() == [0, 1, 0]


def test_rejected_requests_count_as_late() -> None:
    scenario = queue(np.array([0.0, 0.0]), np.full(2, 1.0), qos_s=1.5)
    run = simulate(scenario, Clockwork(rejects=True))
    assert run.instance.tolist() == [0, NOT_SERVED]
    assert run.in_time == 0.5


def test_a_line_without_room_is_refused() -> None:
    with pytest.raises(InvalidInput, match="limit must be >= 1, got 0"):
        simulate(queue(np.zeros(1), np.ones(1)), FcfsDispatch(), limit=0)


@pytest.mark.parametrize(
    ("limit", "served"),
    [
        # at 1.5 s one waits, in time; at 4 s it is late, and makes way
        (1, [0, NOT_SERVED, NOT_SERVED, 0]),
        # at 4 s two wait and are late: one is kept for the one instance
        (10, [0, NOT_SERVED, 0, 0]),
        (None, [0, 0, 0, 0]),
    ],
)
def test_a_bounded_line_gives_up_who_is_late_or_refuses_who_comes(
    limit: int | None, served: list[int]
) -> None:
    scenario = queue(np.array([0.0, 1.0, 1.5, 4.0]), np.full(4, 10.0), qos_s=2.0)
    run = simulate(scenario, FcfsDispatch(), limit=limit)
    assert run.instance.tolist() == served
    assert run.complete


def test_a_run_with_too_many_late_ones_is_stopped() -> None:
    scenario = queue(np.zeros(1000), np.ones(1000), qos_s=2.0)
    run = simulate(scenario, FcfsDispatch(), most_late=10)
    assert not run.complete
    assert run.in_time == 0.0


# Means over 200,000 requests; at these loads their standard error is about 1 to 1.5 % (repeated
# runs), so 5 % is wrong less than once in a thousand seeds. The seed is fixed.
@pytest.mark.parametrize(("load", "servers"), [(0.5, 1), (0.7, 1), (0.7, 3)])
def test_exponential_service_waits_as_long_as_erlang_says(load: float, servers: int) -> None:
    rng = np.random.default_rng(11)
    rate = load * servers
    arrived = arrival_times(poisson_gaps(200_000, rng), rate)
    run = simulate(queue(arrived, rng.exponential(1.0, 200_000), servers), FcfsDispatch())
    assert np.mean(run.started_s - arrived) == pytest.approx(
        erlang_c_wait(rate, 1.0, servers), rel=0.05
    )


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_constant_service_waits_half_as_long(load: float) -> None:
    # M/D/1: W = load / (2 (1 - load))
    rng = np.random.default_rng(12)
    arrived = arrival_times(poisson_gaps(200_000, rng), load)
    run = simulate(queue(arrived, np.ones(200_000)), FcfsDispatch())
    assert np.mean(run.started_s - arrived) == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def test_lateness_is_that_of_the_late_alone() -> None:
    # one instance, done after 1, 2, 3 s: with 1.5 s the last two are late by 0.5 and 1.5 s
    run = simulate(queue(np.zeros(3), np.ones(3), qos_s=1.5), FcfsDispatch())
    assert lateness_s(run) == pytest.approx((1.0, 1.5))
    assert lateness_s(simulate(queue(np.zeros(3), np.ones(3), qos_s=3.0), FcfsDispatch())) == (
        0,
        0,
    )


def test_without_an_answer_there_is_no_lateness() -> None:
    run = simulate(queue(np.zeros(1), np.ones(1), qos_s=0.5), FcfsDispatch(rejects=True))
    with pytest.raises(ValueError, match=r"no request of the run was served\."):
        lateness_s(run)


@pytest.mark.parametrize("policy", POLICIES[:5], ids=repr)
def test_littles_law_holds(policy: CompiledPolicy) -> None:
    rng = np.random.default_rng(13)
    arrived = arrival_times(bursty_gaps(20_000, rng), 2.0)
    run = simulate(queue(arrived, rng.uniform(0.5, 1.5, 20_000), 3, qos_s=3.0), policy)
    at = np.concatenate([arrived, run.finished_s])
    order = np.argsort(at)
    present = np.cumsum(np.repeat([1, -1], 20_000)[order])[:-1]
    lasted = at.max() - at.min()
    in_system = (present * np.diff(at[order])).sum() / lasted
    rate = len(arrived) / lasted
    assert in_system == pytest.approx(rate * np.mean(run.finished_s - arrived), rel=1e-9)


def test_bursty_gaps_are_burstier_than_poisson_with_the_same_mean() -> None:
    rng = np.random.default_rng(14)
    gaps = bursty_gaps(200_000, rng, burstiness=5.0)
    assert gaps.mean() == pytest.approx(1.0, rel=0.05)
    assert gaps.std() > 1.1


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), servers=st.integers(1, 5), index=st.integers(0, 5))
def test_requests_are_served_once_and_instances_one_at_a_time(
    seed: int, servers: int, index: int
) -> None:
    rng = np.random.default_rng(seed)
    arrived = np.cumsum(rng.exponential(0.3, 60))
    run = simulate(queue(arrived, rng.uniform(0.1, 2.0, 60), servers, qos_s=2.5), POLICIES[index])
    served = run.instance != NOT_SERVED
    assert served.all() or POLICIES[index] == Clockwork(rejects=True)
    assert (run.started_s[served] >= arrived[served]).all()
    for j in range(servers):
        mine = np.flatnonzero(run.instance == j)
        mine = mine[np.argsort(run.started_s[mine])]
        assert (run.started_s[mine][1:] >= run.finished_s[mine][:-1]).all()


def test_a_threshold_is_a_fraction_of_the_largest_size_until_then() -> None:
    # one after the other: 4 > 2, 10 > 5, 4 <= 5, 6 > 5
    service_s = np.ones((4, 2))
    scenario = Scenario(
        arrived_s=np.array([0.0, 5.0, 10.0, 15.0]),
        size=np.array([4.0, 10.0, 4.0, 6.0]),
        service_s=service_s,
        predicted_s=service_s,
        qos_s=10.0,
        fleet=Fleet(np.arange(2), np.ones(2), np.ones(2)),
    )
    assert simulate(scenario, SizeThreshold(fraction=0.5)).instance.tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize("policy", POLICIES[:3], ids=repr)
def test_called_from_python_a_policy_decides_as_in_the_run(policy: CompiledPolicy) -> None:
    rng = np.random.default_rng(15)
    arrived = np.cumsum(rng.exponential(0.3, 400))
    run = simulate(queue(arrived, rng.uniform(0.1, 1.5, 400), 3, qos_s=2.5), policy)
    for request in range(50, 400, 7):
        state = state_at(run, request)
        started = {
            j for j in range(3) if (run.started_s[run.instance == j] == arrived[request]).any()
        }
        decided = policy.decide(state)
        assert {start.instance for start in decided.starts} == started
