from __future__ import annotations

import itertools
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.baselines import MinCostMatching, assigned_columns, heterogeneity
from circinus.scheduler.dispatch.policy import FloatArray, Start
from tests.scheduler.states import state

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


@pytest.mark.parametrize("size", [(20, 20), (7, 40)])
def test_the_assignment_costs_what_scipy_finds(size: tuple[int, int]) -> None:
    cost = np.random.default_rng(5).random(size)
    rows, columns = linear_sum_assignment(cost)
    ours = assigned_columns(cost)
    assert len(set(ours.tolist())) == size[0]
    assert cost[np.arange(size[0]), ours].sum() == pytest.approx(cost[rows, columns].sum())
