"""What every dispatch policy promises."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings

from circinus.scheduler.dispatch.baselines import (
    Clockwork,
    FcfsDispatch,
    SizeThreshold,
)
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState
from tests.scheduler.states import states

POLICIES: list[DispatchPolicy] = [
    MinCostMatching(),
    MinCostMatching(xi=1.0),
    MinCostMatching(part=2),
    PlanAhead(),
    PlanAhead(xi=0.9, lead=0.0, delay_weight=0.0, old=1.0, overdue=1.0),
    FcfsDispatch(),
    FcfsDispatch(rejects=True),
    SizeThreshold(fraction=0.5),
    Clockwork(),
    Clockwork(rejects=True),
]
"""Each state is drawn once for all of them: drawing takes longer than deciding."""


@settings(deadline=None)
@given(state=states())
def test_only_idle_instances_start_and_nothing_is_doubled(state: DispatchState) -> None:
    for policy in POLICIES:
        decision = policy.decide(state)
        instances = [start.instance for start in decision.starts]
        assert all(state.idle[j] for j in instances), policy
        assert len(set(instances)) == len(instances), policy
        touched = [
            *(start.request for start in decision.starts),
            *decision.rejected,
            *(plan.request for plan in decision.planned),
        ]
        assert len(set(touched)) == len(touched), policy
        assert set(touched) <= set(range(len(state.waited_s))), policy
        assert policy.rejects or not decision.rejected, policy
        for request, instance in decision.starts:  # only where it can be served
            assert np.isfinite(state.predicted_s[request, instance]), policy


@settings(deadline=None)
@given(state=states())
def test_equal_states_get_equal_decisions_and_nothing_is_changed(state: DispatchState) -> None:
    arrays = {f.name: getattr(state, f.name) for f in fields(state) if f.name != "fleet"}
    before = {name: np.array(array) for name, array in arrays.items()}
    for policy in POLICIES:
        assert policy.decide(state) == policy.decide(state), policy
        assert all(np.array_equal(array, before[name]) for name, array in arrays.items()), policy


@settings(deadline=None)
@given(given_state=states())
def test_every_request_is_served_or_turned_away_in_the_end(given_state: DispatchState) -> None:
    can_be_served = [i for i in range(len(given_state.waited_s)) if _can_be_served(given_state, i)]
    for policy in POLICIES:
        left = can_be_served
        done: list[int] = []
        for _ in range(len(left)):  # each round at least one starts, and is done before the next
            decision = policy.decide(_only(given_state, left))
            done += [left[i] for i in (*(s.request for s in decision.starts), *decision.rejected)]
            left = [i for i in left if i not in done]
        assert left == [], policy
        assert len(done) == len(set(done)), policy


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
