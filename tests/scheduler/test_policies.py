"""One contract for all policies: whatever the problem, the schedule is valid and repeatable."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from random import Random

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
from circinus.scheduler.ilp import Ilp, Objective
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.registry import (
    FcfsScheduling,
    Greedy,
    LocalBest,
    Ranking,
    Terms,
    scheduling_policy,
)
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import (
    SCHEDULING_POLICIES,
    SHARE,
    Candidate,
    Problem,
    SchedulingPolicy,
    validate,
)
from circinus.scheduler.rolling.ageing import Ageing, Standing
from circinus.scheduler.rolling.replicas import ReplicaSettings, granted
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import TWENTIETHS, best_goodput, candidate, cloud, plan, problems

SMALL = Effort(steps=60, idle_steps=60, time_limit_s=60.0)
POLICIES: dict[str, SchedulingPolicy] = {
    "greedy": Greedy(),
    "greedy by money": Greedy(ranking=Ranking.MONEY),
    "priced": Priced(effort=SMALL),
    "priced, moving": Priced(effort=SMALL, migration=Migration(price=0.1)),
    "rental": Rental(effort=SMALL),
    "fcfs": FcfsScheduling(),
    "local best": LocalBest(),
}
EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


@EVERY
@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_every_output_passes_validation(policy: SchedulingPolicy, data: st.DataObject) -> None:
    problem = data.draw(problems())
    tenants = [data.draw(st.sampled_from(["", "a", "b"])) for _ in problem.candidates]
    levels = [data.draw(st.integers(0, 2)) for _ in problem.candidates]
    problem = replace(
        problem,
        candidates=tuple(
            replace(c, tenant=t, priority=p)
            for c, t, p in zip(problem.candidates, tenants, levels, strict=True)
        ),
        quotas=data.draw(st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0, 1))),
    )
    assert validate(problem, policy.schedule(problem)) == ()


@EVERY
@given(before=problems(), after=problems())
@settings(deadline=None, max_examples=40)
def test_whatever_ran_before_the_next_schedule_is_valid(
    policy: SchedulingPolicy, before: Problem, after: Problem
) -> None:
    running = policy.schedule(before).by_query
    problem = replace(after, running=running)
    assert validate(problem, policy.schedule(problem)) == ()


@EVERY
@given(problem=problems(), taken=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_with_machines_taken_away_the_evicted_are_named_and_wait(
    policy: SchedulingPolicy, problem: Problem, taken: int
) -> None:
    running = policy.schedule(problem).by_query
    fewer = tuple(replace(t, machines=max(0, t.machines - taken)) for t in problem.tiers)
    smaller = replace(problem, tiers=fewer, running=running)
    schedule = policy.schedule(smaller)
    assert validate(smaller, schedule) == ()
    for query in set(running) - set(schedule.by_query):
        assert "lost its machines" in schedule.waiting[query]


@EVERY
@given(problem=problems(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_equal_problems_get_equal_schedules(
    policy: SchedulingPolicy, problem: Problem, seed: int
) -> None:
    once = policy.schedule(problem)
    assert policy.schedule(problem) == once
    if isinstance(policy, FcfsScheduling):
        return  # there the order of the queries is what counts
    shuffled = list(problem.candidates)
    Random(seed).shuffle(shuffled)
    other = policy.schedule(replace(problem, candidates=tuple(shuffled)))
    assert other.by_query == once.by_query


@pytest.mark.parametrize(
    "policy",
    [Greedy(), Priced(effort=SMALL), Rental(effort=SMALL), FcfsScheduling(), LocalBest()],
    ids=lambda p: type(p).__name__,
)
def test_what_runs_stays_on_its_machines(policy: SchedulingPolicy) -> None:
    tiers = (Tier(name="edge", machines=3), Tier(name="cloud", machines=3))
    problem = problem_of(Recipe(queries=30, plans=3, tiers=tiers), 1)
    half = replace(problem, candidates=problem.candidates[:15])
    running = policy.schedule(half).by_query
    schedule = policy.schedule(replace(problem, running=running))
    assert {q: schedule.by_query[q] for q in running} == running


@EVERY
def test_a_higher_priority_is_served_before_any_number_of_lower_ones(
    policy: SchedulingPolicy,
) -> None:
    if isinstance(policy, FcfsScheduling | Rental):
        return  # they know no weights either
    low = [candidate(f"l{i}", plan("p", ("cloud", 0.05)), weight=9.0) for i in range(20)]
    high = replace(candidate("z", plan("p", ("cloud", 1.0)), weight=0.1), priority=1)
    problem = Problem(tiers=(cloud(1),), candidates=(*low, high))
    assert list(policy.schedule(problem).by_query) == ["z"]


@EVERY
def test_a_tenant_at_its_quota_is_told_so(policy: SchedulingPolicy) -> None:
    queries = tuple(
        replace(candidate(f"q{i}", plan("p", ("cloud", 0.25), cost=1.0)), tenant="acme")
        for i in range(3)
    )
    problem = Problem(tiers=(cloud(1),), candidates=queries, quotas={"acme": 0.5})
    schedule = policy.schedule(problem)
    assert len(schedule.assignments) == 2
    (why,) = schedule.waiting.values()
    assert why == (
        "Its plan p needs 0.25 machines of cloud, but tenant acme may hold 0.5 and would hold "
        "0.25 more. What would let it in: another query of acme giving back 0.25 of cloud, or a "
        "larger quota."
    )


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
    assert len({repr(scheduling_policy(n, Terms())) for n in SCHEDULING_POLICIES}) == 5
    assert len({repr(dispatch_policy(n)) for n in DISPATCH_POLICIES}) == len(DISPATCH_POLICIES)


def test_the_defaults_come_first() -> None:
    assert isinstance(scheduling_policy(SCHEDULING_POLICIES[0], Terms()), Priced)
    assert isinstance(dispatch_policy(DISPATCH_POLICIES[0]), PlanAhead)


def test_terms_reach_the_policy() -> None:
    moving = Terms(migration=Migration(price=0.5))
    assert scheduling_policy("priced", moving).migration == Migration(price=0.5)  # type: ignore[attr-defined]  # a Priced
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
