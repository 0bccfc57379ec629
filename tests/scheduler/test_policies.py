"""Policies beside each other and by name, and queries with numbers at the ends of their ranges."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines import ranges
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.query import HIGHEST_PRIORITY
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES, DispatchState, Fleet
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.registry import Greedy, Terms, scheduling_policy
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import SCHEDULING_POLICIES, SHARE, Candidate, Objective, Problem
from circinus.scheduler.rolling.ageing import Ageing, Standing
from circinus.scheduler.rolling.replicas import ReplicaSettings, granted
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from tests.scheduler.problems import TWENTIETHS, best_goodput, candidate, cloud, plan, problems

SMALL = Effort(steps=60, idle_steps=60, time_limit_s=60.0)


@given(problem=problems(shares=TWENTIETHS, queries=3))
@settings(deadline=None, max_examples=60)
def test_priced_is_between_greedy_and_the_optimum_on_tiny_problems(problem: Problem) -> None:
    weight = {c.query_id: c.weight for c in problem.candidates}
    goodput = sum(weight[q] for q in Priced(effort=SMALL).schedule(problem).by_query)
    best = best_goodput(problem)
    assert goodput <= best * (1 + 1e-12)
    assert (goodput > 0) == (best > 0)


def test_priced_finds_what_greedy_cannot_see() -> None:
    # By shares all plans are alike, 0.5; the edge is what b alone cannot do without.
    tiers = (Tier(name="edge", machines=1), Tier(name="cloud", machines=1))
    both = [plan("cloud", ("cloud", 0.5), cost=2), plan("edge", ("edge", 0.5), cost=1)]
    a = [candidate(f"a{i}", *both, weight=2.0) for i in range(2)]
    b = [candidate(f"b{i}", plan("edge", ("edge", 0.5), cost=1), weight=1.5) for i in range(2)]
    problem = Problem(tiers=tiers, candidates=(*a, *b))
    assert len(Greedy().schedule(problem).assignments) == 2
    assert len(Priced(effort=SMALL).schedule(problem).assignments) == 4
    assert len(Ilp().schedule(problem).assignments) == 4


def test_a_running_query_is_moved_when_that_pays() -> None:
    # 0.5 on each machine: the newcomer needs a whole one
    halves = tuple(candidate(f"h{i}", plan("p", ("cloud", 0.5))) for i in range(2))
    apart = (
        Priced(effort=SMALL).schedule(Problem(tiers=(cloud(2),), candidates=(halves[0],))).by_query
    )
    moved = replace(apart["h0"], query_id="h1")
    moved = replace(moved, machines=(moved.machines[0]._replace(machine=1),))
    whole = candidate("w", plan("p", ("cloud", 1.0)), weight=1.0)
    problem = Problem(
        tiers=(cloud(2),), candidates=(*halves, whole), running={**apart, "h1": moved}
    )
    assert "w" in Priced(effort=SMALL).schedule(problem).waiting
    cheap = Priced(effort=SMALL, migration=Migration(price=0.2)).schedule(problem)
    assert not cheap.waiting
    dear = Priced(effort=SMALL, migration=Migration(price=1.5)).schedule(problem)
    assert list(dear.waiting) == ["w"]


def test_an_unknown_name_gets_the_list_of_names() -> None:
    with pytest.raises(InvalidInput, match="must be among priced, greedy, ilp, fcfs, local_best"):
        scheduling_policy("best", Terms())
    with pytest.raises(InvalidInput, match="must be among plan_ahead, kairos, fcfs, fcfs_reject"):
        dispatch_policy("best")


def test_every_name_gives_a_policy_of_its_own() -> None:
    assert len({repr(scheduling_policy(n, Terms())) for n in SCHEDULING_POLICIES}) == len(
        SCHEDULING_POLICIES
    )
    assert len({repr(dispatch_policy(n)) for n in DISPATCH_POLICIES}) == len(DISPATCH_POLICIES)


def test_the_defaults_come_first() -> None:
    assert isinstance(scheduling_policy(SCHEDULING_POLICIES[0], Terms()), Priced)
    assert isinstance(dispatch_policy(DISPATCH_POLICIES[0]), PlanAhead)


def test_terms_reach_the_policy() -> None:
    moving = Terms(migration=Migration(price=0.5))
    assert scheduling_policy("priced", moving).migration == Migration(price=0.5)  # type: ignore[attr-defined]  # a Priced
    assert scheduling_policy("ilp", moving) == Ilp(moves=True)
    assert scheduling_policy("ilp", Terms()) == Ilp()
    assert isinstance(scheduling_policy("priced", Terms(objective=Objective.COST)), Rental)


def test_first_come_first_served_turns_away_what_no_instance_could_serve_in_time() -> None:
    # One busy instance; the first request waited 0.5 s and takes 0.6 s of 1 s: too late. The
    # second can still be in time.
    state = DispatchState(
        np.array([0.5, 0.1]),
        np.array([1.0, 1.0]),
        np.array([1.0, 1.0]),
        np.array([-1, -1], dtype=np.int64),
        np.array([[0.6], [0.6]]),
        np.array([0.2]),
        np.array([False]),
        Fleet.alike(1),
    )
    assert list(FcfsDispatch(rejects=True).decide(state).rejected) == [0]
    assert list(FcfsDispatch().decide(state).rejected) == []


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
