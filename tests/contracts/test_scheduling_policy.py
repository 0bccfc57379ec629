"""What every scheduling policy promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.registry import Greedy, Ranking, Terms, scheduling_policy
from circinus.scheduler.problem import SCHEDULING_POLICIES, Problem, SchedulingPolicy, validate
from tests.scheduler.problems import candidate, plan, problems

POLICIES: list[SchedulingPolicy] = [
    *(scheduling_policy(name, Terms()) for name in SCHEDULING_POLICIES),
    Greedy(ranking=Ranking.MONEY),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=repr)


@every_policy
def test_no_queries_and_no_tiers_give_an_empty_schedule(policy: SchedulingPolicy) -> None:
    schedule = policy.schedule(Problem(tiers=(), candidates=()))
    assert (schedule.assignments, schedule.waiting, schedule.utilisation) == ((), {}, {})


@every_policy
def test_when_nothing_fits_everybody_waits_with_a_reason(policy: SchedulingPolicy) -> None:
    tier = Tier(name="cloud", machines=1)
    problem = Problem(tiers=(tier,), candidates=(candidate("a", plan("p", ("cloud", 1.05))),))
    schedule = policy.schedule(problem)
    assert schedule.assignments == ()
    assert "cloud" in schedule.waiting["a"]


@every_policy
@settings(deadline=None)
@given(problem=problems())
def test_every_schedule_is_valid(policy: SchedulingPolicy, problem: Problem) -> None:
    assert validate(problem, policy.schedule(problem)) == ()


@every_policy
@settings(deadline=None)
@given(problem=problems(), data=st.data())
def test_a_schedule_stays_valid_when_machines_and_queries_go(
    policy: SchedulingPolicy, problem: Problem, data: st.DataObject
) -> None:
    running = policy.schedule(problem).by_query
    fewer = tuple(
        replace(tier, machines=data.draw(st.integers(0, tier.machines))) for tier in problem.tiers
    )
    left = tuple(c for c in problem.candidates if data.draw(st.booleans()))
    later = Problem(tiers=fewer, candidates=left, running=running)
    assert validate(later, policy.schedule(later)) == ()


@every_policy
@settings(deadline=None)
@given(problem=problems())
def test_scheduling_again_changes_nothing(policy: SchedulingPolicy, problem: Problem) -> None:
    schedule = policy.schedule(problem)
    again = policy.schedule(replace(problem, running=schedule.by_query))
    assert again.assignments == schedule.assignments


@every_policy
@settings(deadline=None)
@given(problem=problems())
def test_equal_problems_get_equal_schedules(policy: SchedulingPolicy, problem: Problem) -> None:
    assert policy.schedule(problem) == policy.schedule(problem)
