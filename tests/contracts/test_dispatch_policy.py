"""What every dispatch policy promises."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given

from circinus.scheduler.dispatch.baselines import (
    Clockwork,
    FcfsDispatch,
    MinCostMatching,
    SizeThreshold,
)
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState
from tests.scheduler.states import states

POLICIES: list[DispatchPolicy] = [
    MinCostMatching(),
    MinCostMatching(xi=1.0),
    PlanAhead(),
    PlanAhead(xi=0.9, lead=0.0, delay_weight=0.0, old=1.0, overdue=1.0),
    FcfsDispatch(),
    FcfsDispatch(rejects=True),
    SizeThreshold(largest_small=500),
    Clockwork(),
    Clockwork(rejects=True),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)


@every_policy
@given(state=states())
def test_only_idle_instances_start_and_nothing_is_doubled(
    policy: DispatchPolicy, state: DispatchState
) -> None:
    decision = policy.decide(state)
    instances = [start.instance for start in decision.starts]
    assert all(state.idle[j] for j in instances)
    assert len(set(instances)) == len(instances)
    touched = [
        *(start.request for start in decision.starts),
        *decision.rejected,
        *(plan.request for plan in decision.planned),
    ]
    assert len(set(touched)) == len(touched)
    assert set(touched) <= set(range(len(state.waited_s)))
    assert policy.rejects or not decision.rejected


@every_policy
@given(state=states())
def test_a_request_never_starts_where_it_cannot_be_served(
    policy: DispatchPolicy, state: DispatchState
) -> None:
    for request, instance in policy.decide(state).starts:
        assert np.isfinite(state.predicted_s[request, instance])


@every_policy
@given(state=states())
def test_equal_states_get_equal_decisions_and_nothing_is_changed(
    policy: DispatchPolicy, state: DispatchState
) -> None:
    arrays = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "fleet"}
    before = {name: array.copy() for name, array in arrays.items()}
    assert policy.decide(state) == policy.decide(state)
    assert all(np.array_equal(array, before[name]) for name, array in arrays.items())


@every_policy
@given(given_state=states())
def test_every_request_is_served_or_turned_away_in_the_end(
    policy: DispatchPolicy, given_state: DispatchState
) -> None:
    left = [i for i in range(len(given_state.waited_s)) if _can_be_served(given_state, i)]
    done: list[int] = []
    for _ in range(len(left)):  # each round at least one starts, and is done before the next
        decision = policy.decide(_only(given_state, left))
        done += [left[i] for i in (*(s.request for s in decision.starts), *decision.rejected)]
        left = [i for i in left if i not in done]
    assert left == []
    assert len(done) == len(set(done))


def _can_be_served(state: DispatchState, i: int) -> bool:
    return bool(np.isfinite(state.predicted_s[i]).any())


def _only(state: DispatchState, rows: list[int]) -> DispatchState:
    """These requests, every instance idle."""
    return replace(
        state,
        waited_s=state.waited_s[rows],
        qos_s=state.qos_s[rows],
        size=state.size[rows],
        planned=np.full(len(rows), UNPLANNED, dtype=np.int64),
        predicted_s=state.predicted_s[rows],
        busy_s=np.zeros(len(state.idle)),
        idle=np.ones(len(state.idle), dtype=np.bool_),
    )
