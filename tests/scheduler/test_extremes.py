"""Queries whose every number is at an end of its range keep no other from being served."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines import ranges
from circinus.pipelines.model.query import HIGHEST_PRIORITY
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.problem import SCHEDULING_POLICIES, SHARE, Candidate, Problem
from circinus.scheduler.rolling.ageing import Ageing, Standing
from circinus.scheduler.rolling.replicas import ReplicaSettings, granted
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from tests.scheduler.problems import candidate, plan

ENDS = st.sampled_from
WEIGHTS = ENDS([ranges.WEIGHT.least, ranges.WEIGHT.most, 1.0])
COSTS = ENDS([ranges.COST_USD_PER_HOUR.least, 5e-324, ranges.COST_USD_PER_HOUR.most])
SHARES = ENDS([SHARE.least, 0.05, 1.0, SHARE.most])
ORDINARY = tuple(candidate(f"o{i}", plan("p", ("cloud", 0.25), cost=0.25)) for i in range(3))
MANY = 300
every_policy = pytest.mark.parametrize("name", SCHEDULING_POLICIES)


@st.composite
def extreme(draw: st.DrawFn, name: str) -> Candidate:
    items = draw(st.lists(st.tuples(ENDS(["edge", "cloud"]), SHARES), min_size=0, max_size=3))
    return Candidate(
        query_id=name,
        plans=(plan("p", *items, cost=draw(COSTS)),),
        weight=draw(WEIGHTS),
        priority=draw(ENDS([0, HIGHEST_PRIORITY])),
        tenant=draw(ENDS(["", "acme"])),
    )


@st.composite
def four_extremes(draw: st.DrawFn) -> Problem:
    """Beside three ordinary queries, on few machines or on many."""
    price = draw(ENDS([0.0, ranges.PRICE_USD_PER_HOUR.most]))
    tiers = tuple(
        Tier(name=name, machines=draw(ENDS([few, most])), price_usd_per_hour=price)
        for name, few, most in (("edge", 0, 3), ("cloud", 1, MANY))
    )
    return Problem(
        tiers=tiers,
        candidates=(*ORDINARY, *(draw(extreme(f"x{i}")) for i in range(4))),
        quotas=draw(ENDS([{}, {"acme": 0.0}, {"acme": 1.0}])),
    )


@every_policy
@settings(deadline=None, max_examples=40)
@given(problem=four_extremes(), data=st.data())
def test_extreme_queries_are_scheduled_like_others_and_nobody_is_set_aside(
    name: str, problem: Problem, data: st.DataObject
) -> None:
    waited = {
        c.query_id: Standing(since_s=data.draw(ENDS([0.0, 1e9]))) for c in problem.candidates
    }
    upkeep = Upkeep(policy=scheduling_policy(name, Terms(time_limit_s=5.0)), ageing=Ageing())
    schedule = upkeep.whole(problem, waited)
    assert schedule.aside == ()
    if problem.tiers[1].machines == MANY:
        assert {c.query_id for c in ORDINARY} <= schedule.by_query.keys()
    for query in schedule.waiting:  # whoever waits is told why, whatever its numbers are
        assert schedule.waiting[query]


@settings(deadline=None, max_examples=40)
@given(problem=four_extremes(), data=st.data())
def test_small_steps_and_extra_replicas_bear_extremes_too(
    problem: Problem, data: st.DataObject
) -> None:
    policy = scheduling_policy("priced", Terms())
    first = Problem(tiers=problem.tiers, candidates=problem.candidates[:5], quotas=problem.quotas)
    rolling = RollingSchedule(first, Times(), Upkeep(policy=policy), now=0.0)
    step = rolling.change(Events(arriving=problem.candidates[5:]), now=data.draw(ENDS([1.0, 1e9])))
    assert step.schedule.aside == ()
    if problem.tiers[1].machines == MANY:
        assert {c.query_id for c in ORDINARY} <= step.schedule.by_query.keys()
    served = step.schedule.by_query
    loads = {query: data.draw(ENDS([1.5, ReplicaSettings().most])) for query in served}
    extras = granted(
        rolling.problem(), step.schedule.assignments, loads, {}, dict.fromkeys(served, inf)
    )
    assert extras.keys() <= served.keys()


@every_policy
def test_there_may_be_as_many_machines_as_a_tier_takes(name: str) -> None:
    tier = Tier(name="cloud", machines=int(ranges.MACHINES.most))
    schedule = scheduling_policy(name, Terms()).schedule(
        Problem(tiers=(tier,), candidates=ORDINARY)
    )
    assert len(schedule.by_query) == len(ORDINARY)
