from __future__ import annotations

import itertools
from dataclasses import replace
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import SizeThreshold
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Fleet, FloatArray, Start, heterogeneity
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from tests.scheduler.states import state


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"waited": -1.0}, "waited_s must be >= 0"),
        ({"waited": nan}, "waited_s must be >= 0"),
        ({"qos": 0.0}, "qos_s must be > 0"),
        ({"qos": nan}, "qos_s must be > 0"),
        ({"busy": -1e-9}, "busy_s must be >= 0"),
        ({"busy": nan}, "busy_s must be >= 0"),
        ({"coefficient": 0.0}, r"coefficient must be in \(0, 1\]"),
        ({"coefficient": 1.01}, r"coefficient must be in \(0, 1\]"),
        ({"price": -0.1}, "price must be >= 0"),
        ({"kind": -1}, "kind must be >= 0"),
    ],
)
def test_a_state_that_makes_no_sense_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        state([[1.0]], **changed)


@pytest.mark.parametrize("predicted", [nan, -1e-9])
def test_predictions_are_seconds(predicted: float) -> None:
    with pytest.raises(InvalidInput, match="predicted_s must be >= 0 everywhere"):
        state([[predicted]])


def test_the_bounds_themselves_are_fine() -> None:
    bounds = state([[inf]], waited=0.0, qos=1e-300, busy=0.0, coefficient=1.0, price=0.0)
    assert len(bounds.fleet) == 1


COSTS = st.one_of(st.floats(1e-3, 100), st.sampled_from([1.0, 2.0]))


def least_cost(cost: FloatArray) -> float:
    """The cheapest matching of min(m, n) pairs, by trying them all."""
    if len(cost) > len(cost[0]):
        cost = cost.T
    return float(
        min(
            sum(cost[i, j] for i, j in enumerate(columns))
            for columns in itertools.permutations(range(len(cost[0])), len(cost))
        )
    )


@pytest.mark.parametrize("xi", [0.0, -1.0, 1.01, nan])
def test_xi_outside_its_range_is_refused(xi: float) -> None:
    with pytest.raises(InvalidInput, match=r"xi must be in \(0, 1\]"):
        MinCostMatching(xi=xi)


@pytest.mark.parametrize("seconds", [[0.0, 1.0], [-1.0, 1.0], [nan], [inf, 1.0]])
def test_heterogeneity_needs_seconds(seconds: list[float]) -> None:
    with pytest.raises(InvalidInput, match="largest_request_s must be finite and > 0"):
        heterogeneity(np.array(seconds))


def test_heterogeneity_is_the_papers_example() -> None:
    # Kairos, definition 1: 100, 200 and 500 ms give 1, 0.5, 0.2
    coefficients = heterogeneity(np.array([0.1, 0.2, 0.5]))
    assert coefficients == pytest.approx(np.array([1.0, 0.5, 0.2]))


def test_the_request_with_the_larger_speedup_gets_the_fast_instance() -> None:
    # fast: 1 and 2 s, slow: 2 and 8 s; 1 + 8 > 2 + 2
    decision = MinCostMatching().decide(state([[1.0, 2.0], [2.0, 8.0]]))
    assert set(decision.starts) == {Start(0, 1), Start(1, 0)}


def test_a_second_of_a_slow_instance_counts_less() -> None:
    # the fast one takes 1.0 x 1 s, the slow one 0.2 x 3 s
    decision = MinCostMatching().decide(state([[1.0, 3.0]], coefficient=[1.0, 0.2]))
    assert decision.starts == [Start(0, 1)]


def test_an_instance_where_the_request_would_be_late_is_avoided() -> None:
    # as above, but 0.5 s + 3 s is late: 0.2 x 10 x 3.5 s > 1.0 x 1 s
    late = state([[1.0, 3.0]], waited=0.5, qos=3.5, coefficient=[1.0, 0.2])
    assert MinCostMatching().decide(late).starts == [Start(0, 0)]


@pytest.mark.parametrize(("predicted_s", "late"), [(0.48, False), (0.4801, True)])
def test_late_begins_just_above_xi_of_the_deadline(predicted_s: float, late: bool) -> None:
    cost = MinCostMatching(xi=0.98).cost(
        state([[predicted_s]], waited=0.5, qos=1.0, coefficient=0.5)
    )
    assert cost[0, 0] == pytest.approx(0.5 * (10.0 if late else predicted_s))


def test_busy_seconds_count_towards_the_deadline() -> None:
    cost = MinCostMatching().cost(state([[0.5]], qos=1.0, busy=0.6, idle=False))
    assert cost[0, 0] == pytest.approx(10.0)


def test_without_a_deadline_nothing_is_late() -> None:
    assert MinCostMatching().cost(state([[1e6]], waited=1e9))[0, 0] == 1e6


def test_a_request_waits_for_a_busy_instance_that_is_worth_it() -> None:
    def starts(slow_s: float) -> list[Start]:
        given_state = state([[1.0, slow_s]], busy=[0.5, 0.0], idle=[False, True])
        return list(MinCostMatching().decide(given_state).starts)

    assert starts(9.0) == []
    assert starts(1.2) == [Start(0, 1)]


def test_an_instance_that_overran_its_prediction_is_still_busy() -> None:
    assert not MinCostMatching().decide(state([[1.0]], busy=0.0, idle=False)).starts


def test_among_equal_requests_those_that_began_to_wait_first_start() -> None:
    decision = MinCostMatching().decide(state([[5.0, 5.0]] * 4, waited=[0.4, 0.3, 0.2, 0.1]))
    assert {start.request for start in decision.starts} == {0, 1}


def test_a_late_request_still_starts_when_the_instance_is_free() -> None:
    decision = MinCostMatching().decide(state([[0.5]], waited=9.0, qos=1.0))
    assert decision.starts == [Start(0, 0)]


def test_a_dear_pair_is_taken_where_a_cheap_one_would_leave_a_request_out() -> None:
    # the second can be served by the first only: 5 + 5 for both rather than 0.1 for one alone
    decision = MinCostMatching().decide(state([[0.1, 5.0], [5.0, inf]]))
    assert set(decision.starts) == {Start(0, 1), Start(1, 0)}


@settings(max_examples=200, deadline=None)
@given(data=st.data(), m=st.integers(1, 6), n=st.integers(1, 6))
def test_the_matching_costs_what_brute_force_finds(data: st.DataObject, m: int, n: int) -> None:
    def draw(values: st.SearchStrategy[float], count: int) -> list[float]:
        return [data.draw(values) for _ in range(count)]

    given_state = state(
        [draw(COSTS, n) for _ in range(m)],
        waited=draw(COSTS, m),
        qos=draw(st.one_of(st.just(inf), COSTS), m),
        coefficient=draw(st.floats(0.1, 1.0), n),
    )
    starts = MinCostMatching().decide(given_state).starts
    assert len(starts) == min(m, n)
    cost = MinCostMatching().cost(given_state)
    total = sum(cost[start.request, start.instance] for start in starts)
    assert total == pytest.approx(least_cost(cost), abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), m=st.integers(1, 5), n=st.integers(1, 5))
def test_as_many_requests_as_can_be_served_are_started(
    data: st.DataObject, m: int, n: int
) -> None:
    able = np.array([[data.draw(st.booleans()) for _ in range(n)] for _ in range(m)])
    starts = MinCostMatching().decide(state(np.where(able, 1.0, inf).tolist())).starts
    most = max(
        sum(able[i, j] for i, j in zip(rows, columns, strict=True))
        for rows in itertools.combinations(range(m), min(m, n))
        for columns in itertools.permutations(range(n), min(m, n))
    )
    assert len(starts) == most


@pytest.mark.parametrize(
    ("largest", "instances"),
    [(0.0, [1, 1, 0]), (16.0, [1, 1, 1]), (11.0, [1, 1, 0])],
)
def test_up_to_half_of_the_largest_size_goes_to_the_auxiliary_types(
    largest: float, instances: list[int]
) -> None:
    # 4, 5 and 8 one by one, beside 10 until now: up to 5 is small; 16: up to 8; 11: up to 5.5
    def at(size: float) -> int:
        alone = state([[1.0, 4.0]], size=size, kind=[0, 1])
        (start,) = SizeThreshold().decide(replace(alone, largest=max(largest, 10.0))).starts
        return start.instance

    assert [at(size) for size in (4.0, 5.0, 8.0)] == instances


def test_those_that_wait_count_for_the_largest_size() -> None:
    # 8 and 4: 4 is half of the largest
    decision = SizeThreshold().decide(state([[1.0, 4.0]] * 2, size=[8.0, 4.0], kind=[0, 1]))
    assert set(decision.starts) == {Start(0, 0), Start(1, 1)}


@pytest.mark.parametrize("fraction", [-0.01, 1.01, nan])
def test_a_threshold_outside_its_range_is_refused(fraction: float) -> None:
    with pytest.raises(InvalidInput, match=r"fraction must be in \[0, 1\]"):
        SizeThreshold(fraction=fraction)


POLICY = PlanAhead(old=2.0, overdue=3.0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"xi": 0.0}, r"xi must be in \(0, 1\]"),
        ({"lead": -1.0}, "lead must be"),
        ({"delay_weight": nan}, "delay_weight must be"),
        ({"old": 0.9}, r"old must be finite and >= 1, got 0\.9"),
        ({"old": 4.0, "overdue": 3.9}, r"overdue must be finite and >= old, which is 4, got 3\.9"),
        ({"overdue": inf}, "overdue must be finite"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        PlanAhead(**changed)


def test_a_request_that_is_late_everywhere_waits_for_those_that_are_not() -> None:
    # the first is late at 0.9 + 0.2 > 1, the second in time
    decision = POLICY.decide(state([[0.2], [0.5]], waited=[0.9, 0.4], qos=1.0))
    assert decision.starts == [Start(1, 0)]


def test_an_old_request_passes_where_nobody_planned_is_late_for_it() -> None:
    # 0.2 + 0.5 s fit before the deadline of the second when 0.3 s have passed, not when 0.4 have
    def starts(waited: float) -> list[Start]:
        given_state = state([[0.2], [0.5]], waited=[2.1, waited], qos=1.0)
        return list(POLICY.decide(given_state).starts)

    assert starts(0.3) == [Start(0, 0)]
    assert starts(0.4) == [Start(1, 0)]


@pytest.mark.parametrize(("waited", "first"), [(3.0, 1), (3.01, 0)])
def test_beyond_the_age_limit_a_request_goes_before_everybody(waited: float, first: int) -> None:
    decision = POLICY.decide(state([[0.8], [0.5]], waited=[waited, 0.4], qos=1.0))
    assert decision.starts == [Start(first, 0)]


def test_a_busy_instance_is_kept_for_an_overdue_request_that_is_done_there_first() -> None:
    # overdue: 0.1 + 0.2 s on the busy one, 1 s on the idle one. The other request would rather
    # wait for the busy one, but after the overdue one it is late there: 0.1 + 0.2 + 0.2 > 0.4
    rows, busy, idle = [[0.2, 1.0], [0.2, 0.35]], [0.1, 0.0], [False, True]
    kept = state(rows, waited=[4.0, 0.6], qos=1.0, busy=busy, idle=idle)
    assert POLICY.decide(kept).starts == [Start(1, 1)]
    alone = state(rows[1:], waited=0.6, qos=1.0, busy=busy, idle=idle)
    assert POLICY.decide(alone).starts == []


def test_overdue_requests_are_placed_in_the_order_of_arrival() -> None:
    both = state([[0.2, 1.0]] * 2, waited=[4.0, 3.5], qos=1.0, busy=[0.9, 0.0], idle=[False, True])
    # the older one is done at 1.0 on the idle one; then the younger at 1.1 on the busy one
    assert POLICY.decide(both).starts == [Start(0, 1)]


@given(seed=st.integers(0, 10**6), doublings=st.integers(-20, 20))
def test_nothing_in_it_is_measured_in_seconds(seed: int, doublings: int) -> None:
    # all seconds twice as long, deadlines too, which is exact in binary: the same decision
    rng = np.random.default_rng(seed)
    m, n = rng.integers(1, 12, 2)
    waited, predicted = rng.uniform(0, 3, m) ** 4, rng.uniform(0.1, 2, (m, n))
    busy, idle, price = rng.uniform(0, 2, n), rng.random(n) < 0.5, rng.uniform(0.1, 1, n)
    decisions = [
        PlanAhead().decide(
            state(
                (predicted * unit).tolist(),
                waited=(waited * unit).tolist(),
                qos=unit,
                busy=(busy * ~idle * unit).tolist(),
                idle=idle.tolist(),
                price=price.tolist(),
            )
        )
        for unit in (1.0, 2.0**doublings)
    ]
    assert decisions[0] == decisions[1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), servers=st.integers(1, 4), load=st.floats(0.7, 3.0))
def test_nobody_is_later_than_the_bound(seed: int, servers: int, load: float) -> None:
    run = _crowd(seed, servers, load)
    arrived, count = run.scenario.arrived_s, 0
    for i in range(len(arrived)):
        limit_s = arrived[i] + POLICY.overdue * run.scenario.qos_s
        if run.started_s[i] > limit_s:
            count += 1
            assert run.finished_s[i] <= _bound_s(run, i, limit_s) + 1e-6
    assert count > 0 or load < 2


def _crowd(seed: int, servers: int, load: float) -> SimulationRun:
    """Two kinds of instance, many too few for the load."""
    rng = np.random.default_rng(seed)
    kind = np.arange(servers) % 2
    service_s = rng.uniform(0.1, 0.9, (150, 1)) * np.array([1.0, 2.5])
    arrived_s = np.cumsum(rng.exponential(0.5 / servers / load, 150))
    fleet = Fleet(kind, np.where(kind, 0.4, 1.0), np.where(kind, 0.4, 1.0))
    scenario = Scenario(
        arrived_s=arrived_s,
        size=service_s[:, 0],
        service_s=service_s,
        predicted_s=service_s,
        qos_s=1.0,
        fleet=fleet,
    )
    return simulate(scenario, POLICY)


def _bound_s(run: SimulationRun, request: int, limit_s: float) -> float:
    """When it is done if those overdue before it, then it, go where they are done first."""
    service_s = run.scenario.service_s[:, run.scenario.fleet.kind]
    free_s = np.full(service_s.shape[1], limit_s)
    running = (run.started_s <= limit_s) & (run.finished_s > limit_s)
    for other in np.flatnonzero(running).tolist():
        free_s[run.instance[other]] = run.finished_s[other]
    waiting = np.flatnonzero(run.started_s > limit_s)
    for other in waiting[waiting <= request].tolist():
        at = int(np.argmin(free_s + service_s[other]))
        free_s[at] += service_s[other, at]
    return float(free_s[at])
