from __future__ import annotations

import itertools
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import InvalidInput
from scheduler.dispatch.matching import MinCostMatching, heterogeneity
from scheduler.dispatch.policy import FloatArray, InstanceState, Start, WaitingRequest

COSTS = st.one_of(st.floats(1e-3, 100), st.sampled_from([1.0, 2.0]))


def requests(*waited_s: float, qos_s: float | None = None) -> list[WaitingRequest]:
    return [
        WaitingRequest(id=f"r{i}", waited_s=waited, qos_s=qos_s)
        for i, waited in enumerate(waited_s)
    ]


def idle(*coefficients: float) -> list[InstanceState]:
    return [InstanceState(id=f"i{j}", coefficient=c) for j, c in enumerate(coefficients)]


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


@pytest.mark.parametrize(
    ("waited_s", "qos_s", "message"),
    [
        (-1.0, None, r"request a\.waited_s must be finite and >= 0, got -1\.0"),
        (nan, None, r"request a\.waited_s must be"),
        (0.0, 0.0, r"request a\.qos_s must be finite and > 0, got 0\.0"),
        (0.0, inf, r"request a\.qos_s must be finite and > 0, got inf"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    waited_s: float, qos_s: float | None, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        WaitingRequest(id="a", waited_s=waited_s, qos_s=qos_s)


@pytest.mark.parametrize(
    ("busy_s", "coefficient", "message"),
    [
        (-1.0, 1.0, r"instance a\.busy_s must be finite and >= 0"),
        (nan, 1.0, r"instance a\.busy_s must be finite and >= 0"),
        (0.0, 0.0, r"instance a\.coefficient must be in \(0, 1\]"),
        (0.0, 1.5, r"instance a\.coefficient must be in \(0, 1\]"),
    ],
)
def test_an_instance_that_makes_no_sense_is_refused(
    busy_s: float, coefficient: float, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        InstanceState(id="a", busy_s=busy_s, coefficient=coefficient)


def test_heterogeneity_is_the_papers_example() -> None:
    # Kairos, definition 1: 100, 200 and 500 ms give 1, 0.5, 0.2
    coefficients = heterogeneity(np.array([0.1, 0.2, 0.5]))
    assert coefficients == pytest.approx(np.array([1.0, 0.5, 0.2]))


def test_the_request_with_the_larger_speedup_gets_the_fast_instance() -> None:
    # fast: 1 and 2 s, slow: 2 and 8 s; 1 + 8 > 2 + 2
    predicted = np.array([[1.0, 2.0], [2.0, 8.0]])
    starts = MinCostMatching().assign(requests(0, 0), idle(1.0, 1.0), predicted)
    assert set(starts) == {Start("r0", "i1"), Start("r1", "i0")}


def test_a_second_of_a_slow_instance_counts_less() -> None:
    # the fast one takes 1.0 x 1 s, the slow one 0.2 x 3 s
    predicted = np.array([[1.0, 3.0]])
    assert MinCostMatching().assign(requests(0), idle(1.0, 0.2), predicted) == (Start("r0", "i1"),)


def test_an_instance_where_the_request_would_be_late_is_avoided() -> None:
    # as above, but 0.5 s + 3 s is late: 0.2 x 10 x 3.5 s > 1.0 x 1 s
    predicted = np.array([[1.0, 3.0]])
    starts = MinCostMatching().assign(requests(0.5, qos_s=3.5), idle(1.0, 0.2), predicted)
    assert starts == (Start("r0", "i0"),)


@pytest.mark.parametrize(("predicted_s", "late"), [(0.48, False), (0.4801, True)])
def test_late_begins_just_above_xi_of_the_deadline(predicted_s: float, late: bool) -> None:
    cost = MinCostMatching(xi=0.98).cost(
        requests(0.5, qos_s=1.0), idle(0.5), np.array([[predicted_s]])
    )
    assert cost[0, 0] == pytest.approx(0.5 * (10.0 if late else predicted_s))


def test_busy_seconds_count_towards_the_deadline() -> None:
    busy = [InstanceState(id="i0", busy_s=0.6, idle=False)]
    cost = MinCostMatching().cost(requests(0.0, qos_s=1.0), busy, np.array([[0.5]]))
    assert cost[0, 0] == pytest.approx(10.0)


def test_without_a_deadline_nothing_is_late() -> None:
    cost = MinCostMatching().cost(requests(1e9), idle(1.0), np.array([[1e6]]))
    assert cost[0, 0] == 1e6


def test_a_request_waits_for_a_busy_instance_that_is_worth_it() -> None:
    instances = [InstanceState(id="fast", busy_s=0.5, idle=False), InstanceState(id="slow")]
    assert MinCostMatching().assign(requests(0), instances, np.array([[1.0, 9.0]])) == ()
    assert MinCostMatching().assign(requests(0), instances, np.array([[1.0, 1.2]])) == (
        Start("r0", "slow"),
    )


def test_an_instance_that_overran_its_prediction_is_still_busy() -> None:
    overdue = [InstanceState(id="i0", busy_s=0.0, idle=False)]
    assert MinCostMatching().assign(requests(0), overdue, np.array([[1.0]])) == ()


def test_among_equal_requests_the_one_that_waited_longest_starts() -> None:
    waiting = requests(0.1, 0.4, 0.3, 0.2)
    starts = MinCostMatching().assign(waiting, idle(1.0, 1.0), np.full((4, 2), 5.0))
    assert {start.request for start in starts} == {"r1", "r2"}


def test_a_late_request_still_starts_when_the_instance_is_free() -> None:
    starts = MinCostMatching().assign(requests(9.0, qos_s=1.0), idle(1.0), np.array([[0.5]]))
    assert starts == (Start("r0", "i0"),)


def test_a_dear_pair_is_taken_where_a_cheap_one_would_leave_a_request_out() -> None:
    # r1 can be served by i0 only: 5 + 5 for both rather than 0.1 for r0 alone
    predicted = np.array([[0.1, 5.0], [5.0, inf]])
    starts = MinCostMatching().assign(requests(0, 0), idle(1.0, 1.0), predicted)
    assert set(starts) == {Start("r0", "i1"), Start("r1", "i0")}


@settings(max_examples=200, deadline=None)
@given(data=st.data(), m=st.integers(1, 6), n=st.integers(1, 6))
def test_the_matching_costs_what_brute_force_finds(data: st.DataObject, m: int, n: int) -> None:
    def draw(values: st.SearchStrategy[float]) -> float:
        return data.draw(values)

    predicted = np.array([[draw(COSTS) for _ in range(n)] for _ in range(m)])
    waiting = [
        WaitingRequest(
            id=f"r{i}", waited_s=draw(COSTS), qos_s=data.draw(st.one_of(st.none(), COSTS))
        )
        for i in range(m)
    ]
    instances = idle(*(draw(st.floats(0.1, 1.0)) for _ in range(n)))
    policy = MinCostMatching()
    starts = policy.assign(waiting, instances, predicted)
    assert len(starts) == min(m, n)
    cost = policy.cost(waiting, instances, predicted)
    total = sum(cost[int(start.request[1:]), int(start.instance[1:])] for start in starts)
    assert total == pytest.approx(least_cost(cost), abs=1e-7)


@settings(max_examples=100, deadline=None)
@given(data=st.data(), m=st.integers(1, 5), n=st.integers(1, 5))
def test_as_many_requests_as_can_be_served_are_started(
    data: st.DataObject, m: int, n: int
) -> None:
    able = np.array([[data.draw(st.booleans()) for _ in range(n)] for _ in range(m)])
    predicted = np.where(able, 1.0, inf)
    starts = MinCostMatching().assign(requests(*[0.0] * m), idle(*[1.0] * n), predicted)
    most = max(
        sum(able[i, j] for i, j in zip(rows, columns, strict=True))
        for rows in itertools.combinations(range(m), min(m, n))
        for columns in itertools.permutations(range(n), min(m, n))
    )
    assert len(starts) == most
