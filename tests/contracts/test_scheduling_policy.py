"""What every scheduling policy promises, whatever the problem."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.ilp import Ilp
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
from circinus.scheduler.problem import SCHEDULING_POLICIES, Problem, SchedulingPolicy, validate
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import candidate, cloud, plan, problems

SMALL = Effort(steps=60, idle_steps=60, time_limit_s=60.0)
POLICIES: dict[str, SchedulingPolicy] = {
    **{name: scheduling_policy(name, Terms()) for name in SCHEDULING_POLICIES},
    "priced": Priced(effort=SMALL),
    "greedy by money": Greedy(ranking=Ranking.MONEY),
    "priced, moving": Priced(effort=SMALL, migration=Migration(price=0.1)),
    "rental": Rental(effort=SMALL),
}
"""Each problem is drawn once for all of them: drawing takes longer than most schedules."""
EVERY = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES.keys())


@EVERY
def test_no_queries_and_no_tiers_give_an_empty_schedule(policy: SchedulingPolicy) -> None:
    schedule = policy.schedule(Problem(tiers=(), candidates=()))
    assert (schedule.assignments, schedule.waiting, schedule.utilisation) == ((), {}, {})


@EVERY
def test_when_nothing_fits_everybody_waits_with_a_reason(policy: SchedulingPolicy) -> None:
    tier = Tier(name="cloud", machines=1)
    problem = Problem(tiers=(tier,), candidates=(candidate("a", plan("p", ("cloud", 1.05))),))
    schedule = policy.schedule(problem)
    assert schedule.assignments == ()
    assert "cloud" in schedule.waiting["a"]


@given(data=st.data())
@settings(deadline=None, max_examples=80)
def test_every_output_passes_validation(data: st.DataObject) -> None:
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
    for name, policy in POLICIES.items():
        assert validate(problem, policy.schedule(problem)) == (), name


@given(before=problems(), after=problems())
@settings(deadline=None, max_examples=40)
def test_whatever_ran_before_the_next_schedule_is_valid(before: Problem, after: Problem) -> None:
    for name, policy in POLICIES.items():
        problem = replace(after, running=policy.schedule(before).by_query)
        assert validate(problem, policy.schedule(problem)) == (), name


@given(problem=problems(), taken=st.integers(0, 3))
@settings(deadline=None, max_examples=40)
def test_with_machines_taken_away_the_evicted_are_named_and_wait(
    problem: Problem, taken: int
) -> None:
    fewer = tuple(replace(t, machines=max(0, t.machines - taken)) for t in problem.tiers)
    for name, policy in POLICIES.items():
        running = policy.schedule(problem).by_query
        smaller = replace(problem, tiers=fewer, running=running)
        schedule = policy.schedule(smaller)
        assert validate(smaller, schedule) == (), name
        for query in set(running) - set(schedule.by_query):
            assert "lost its place" in schedule.waiting[query], name


@given(problem=problems(), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=60)
def test_equal_problems_get_equal_schedules_which_scheduling_again_does_not_change(
    problem: Problem, seed: int
) -> None:
    shuffled = list(problem.candidates)
    Random(seed).shuffle(shuffled)
    for name, policy in POLICIES.items():
        once = policy.schedule(problem)
        assert policy.schedule(problem) == once, name
        again = policy.schedule(replace(problem, running=once.by_query))
        assert again.assignments == once.assignments, name
        if not isinstance(policy, FcfsScheduling | Ilp):
            # there the order of the queries is what counts, or chooses among equals
            other = policy.schedule(replace(problem, candidates=tuple(shuffled)))
            assert other.by_query == once.by_query, name


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
