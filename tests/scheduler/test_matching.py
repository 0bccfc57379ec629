"""Kairos' matching from one decision to the next, and in parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.policy import UNPLANNED, Decision, DispatchState, FloatArray
from tests.scheduler.states import state

POLICY = MinCostMatching()
ORDER_S = 1e-6  # all that the order of requests and instances adds up to


def crowd(rng: np.random.Generator, m: int, n: int) -> DispatchState:
    """Requests of four sizes or of any, some of them late somewhere; alike instances or not."""
    speed = rng.choice([0.25, 0.5, 1.0], n)
    work = rng.choice([0.1, 0.2, 0.4, 0.8], m) if rng.random() < 0.5 else rng.uniform(0.1, 1, m)
    idle = rng.random(n) < 0.5
    idle[0] = True
    return state(
        (work[:, None] / speed[None, :]).tolist(),
        waited=np.sort(rng.uniform(0, 2, m))[::-1].tolist(),
        qos=2.0,
        busy=(rng.uniform(0, 1, n) * ~idle).tolist(),
        idle=idle.tolist(),
        coefficient=speed.tolist(),
    )


def columns_of(decision: Decision, m: int) -> list[int]:
    columns = [UNPLANNED] * m
    for request, instance in (*decision.starts, *decision.planned):
        columns[request] = instance
    return columns


def after(state: DispatchState, decision: Decision) -> DispatchState:
    return replace(
        state,
        planned=np.array(columns_of(decision, len(state.waited_s))),
        dual=np.array(decision.dual),
    )


def total(cost: FloatArray, columns: list[int]) -> float:
    return float(sum(cost[i, j] for i, j in enumerate(columns) if j != UNPLANNED))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 12), n=st.integers(1, 12))
def test_each_decision_of_many_is_a_matching_of_least_cost(seed: int, m: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    now = crowd(rng, m, n)
    for _ in range(6):
        m = len(now.waited_s)
        decision, cost = POLICY.decide(now), POLICY.cost(now)
        columns = columns_of(decision, m)
        assert sum(j != UNPLANNED for j in columns) == min(m, n)
        least = cost[linear_sum_assignment(cost)].sum()
        assert total(cost, columns) == pytest.approx(least, abs=ORDER_S)
        now = later(rng, now, decision)


def later(rng: np.random.Generator, now: DispatchState, decision: Decision) -> DispatchState:
    """Some time on: what started is busy, others end, and requests have come."""
    seconds = rng.uniform(0, 0.3)
    busy, idle = now.busy_s.copy(), now.idle.copy()
    for request, instance in decision.starts:
        busy[instance], idle[instance] = now.predicted_s[request, instance], False
    busy = np.where(idle, 0.0, np.maximum(busy - seconds, 0.0))
    idle |= rng.random(len(idle)) < 0.3
    idle[rng.integers(len(idle))] = True
    stay = np.setdiff1d(np.arange(len(now.waited_s)), [start.request for start in decision.starts])
    new = crowd(rng, int(rng.integers(1, 6)), len(idle))
    planned = np.array(columns_of(decision, len(now.waited_s)), dtype=np.int64)
    return DispatchState(
        np.append(now.waited_s[stay] + seconds, np.zeros(len(new.waited_s))),
        np.append(now.qos_s[stay], new.qos_s),
        np.append(now.size[stay], new.size),
        np.append(planned[stay], new.planned),
        np.vstack([now.predicted_s[stay], new.predicted_s]),
        np.where(idle, 0.0, busy),
        idle,
        now.fleet,
        np.array(decision.dual),
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), m=st.integers(1, 9), n=st.integers(1, 9))
def test_of_alike_requests_the_oldest_start_whatever_was_decided_before(
    seed: int, m: int, n: int
) -> None:
    rng = np.random.default_rng(seed)
    idle = rng.random(n) < 0.5
    alike = state([[1.0] * n] * m, busy=np.where(idle, 0.0, 0.2).tolist(), idle=idle.tolist())
    planned = rng.integers(UNPLANNED, n, m)
    starts = POLICY.decide(replace(alike, planned=planned, dual=rng.normal(size=n))).starts
    count = min(m, int(idle.sum()))
    assert {start.request for start in starts} == set(range(count))
    assert {start.instance for start in starts} == set(np.flatnonzero(idle)[:count].tolist())


def test_a_matched_pair_on_a_busy_instance_is_reserved() -> None:
    # 0.5 + 1 s on the busy one, 9 s on the idle one
    decision = POLICY.decide(state([[1.0, 9.0]], busy=[0.5, 0.0], idle=[False, True]))
    assert (decision.starts, decision.planned) == ([], [(0, 0)])


def test_a_dual_of_another_fleet_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"dual must have shape \(2,\), got \(3,\)"):
        replace(state([[1.0, 1.0]]), dual=np.zeros(3))


@pytest.mark.parametrize("part", [0, -1])
def test_a_part_has_a_pair_at_least(part: int) -> None:
    with pytest.raises(InvalidInput, match="part must be >= 1"):
        MinCostMatching(part=part)


@pytest.mark.parametrize("seed", range(20))
def test_each_part_is_matched_at_least_cost(seed: int) -> None:
    # 7 x 8 in parts of at most 3: instances and newcomers are dealt to three parts in turn
    rng = np.random.default_rng(seed)
    whole = crowd(rng, 7, 8)
    decision, cost = MinCostMatching(part=3).decide(whole), POLICY.cost(whole)
    columns = columns_of(decision, 7)
    for p in range(3):
        sub = cost[p::3, p::3]
        assert all(j == UNPLANNED or j % 3 == p for j in columns[p::3])
        in_part = sum(cost[i, columns[i]] for i in range(p, 7, 3) if columns[i] != UNPLANNED)
        assert in_part == pytest.approx(sub[linear_sum_assignment(sub)].sum(), abs=ORDER_S)
    assert total(cost, columns) >= cost[linear_sum_assignment(cost)].sum() - ORDER_S


def test_a_request_stays_in_the_part_that_reserved_an_instance_for_it() -> None:
    # parts: instances 0 and 2, 1 and 3; the third request has been with 1, so 0 gets the first
    # newcomer, and the second, as both parts had one by then and the first comes first
    busy = state([[1.0] * 4] * 3, planned=[UNPLANNED, UNPLANNED, 1], idle=True)
    starts = MinCostMatching(part=2).decide(busy).starts
    assert {start.request: start.instance % 2 for start in starts} == {0: 0, 1: 0, 2: 1}


def test_a_request_goes_to_a_part_that_can_serve_it() -> None:
    inf = float("inf")
    only = state([[1.0, 1.0], [1.0, inf]])
    starts = MinCostMatching(part=1).decide(only).starts
    # the second can be served by instance 0 only, where the first is as well: it waits
    assert starts == [(0, 0)]
