"""Limits of endpoints as shared capacity, and dollars of calls beside rent.

The oracle tries every choice of plans, counting what is called a minute, not parts of a limit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.waiting import why_waiting
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Priced
from circinus.scheduler.policies.registry import FcfsScheduling, Greedy, LocalBest, Ranking
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import (
    Candidate,
    Objective,
    PlanOption,
    Problem,
    SchedulingPolicy,
    spent_usd_per_hour,
    validate,
)
from circinus.scheduler.problem_form import problem_from_dict, problem_to_dict
from tests.scheduler.problems import _packs, candidate, cloud, occupied, plan

LIMIT = "calls"
WORDS = {LIMIT: "60 requests per minute of endpoint small"}
MOST = 60
Called = dict[tuple[str, str], int]
"""(query, plan) -> requests per minute that it makes."""

POLICIES: tuple[SchedulingPolicy, ...] = (
    Greedy(),
    FcfsScheduling(),
    LocalBest(),
    Priced(effort=Effort(steps=200, idle_steps=100)),
    Ilp(),
)


def calling(name: str, per_minute: int, *items: tuple[str, float], usd: float = 0.0) -> PlanOption:
    parts = [(LIMIT, per_minute / MOST)] if per_minute else []
    made = plan(name, *items, *parts, cost=usd)
    return replace(made, calls_usd_per_hour=usd)


@st.composite
def called(draw: st.DrawFn) -> tuple[Problem, Called]:
    """Up to 5 queries x 3 plans on up to two machines and one endpoint."""
    per_minute: Called = {}
    candidates = []
    for q in range(draw(st.integers(1, 5))):
        plans = []
        for p in range(draw(st.integers(1, 3))):
            calls = draw(st.sampled_from([0, 7, 10, 20, 23, 30, 60, 61]))
            shares = draw(st.lists(st.integers(1, 4), max_size=0 if calls else 2))
            items = [("cloud", n / 4) for n in shares]
            usd = draw(st.sampled_from([0.25, 1.0, 4.0])) if calls else 0.0
            plans.append(calling(f"p{p}", calls, *items, usd=usd))
            per_minute[f"q{q}", f"p{p}"] = calls
        candidates.append(candidate(f"q{q}", *plans, weight=draw(st.integers(1, 5))))
    machines = replace(cloud(draw(st.integers(0, 2))), price_usd_per_hour=1.5)
    tiers = (machines, Tier(name=LIMIT))
    return Problem(tiers=tiers, candidates=tuple(candidates), limits=WORDS), per_minute


def possible(
    problem: Problem, per_minute: Called, chosen: tuple[PlanOption | None, ...]
) -> float | None:
    """Return the rent of plans that go together; None: they do not."""
    made = zip(problem.candidates, chosen, strict=True)
    calls = [per_minute[c.query_id, p.plan_id] for c, p in made if p is not None]
    # In millionths, as schedules count: three times 10 beside 30 are 1.000001 of 60.
    if sum(round(each / MOST * 1_000_000) for each in calls) > 1_000_000:
        return None
    items = [i for p in chosen if p is not None for i in p.demand if i.tier == "cloud"]
    sizes = sorted((round(i.share * 1_000_000) for i in items), reverse=True)
    machines = problem.tiers[0].machines
    return next((1.5 * n for n in range(machines + 1) if _packs(sizes, n)), None)


def choices(problem: Problem, *, all_served: bool) -> Iterator[tuple[PlanOption | None, ...]]:
    plans: list[tuple[PlanOption | None, ...]] = [c.plans for c in problem.candidates]
    return itertools.product(*(each if all_served else (None, *each) for each in plans))


def test_limits_must_be_tiers() -> None:
    with pytest.raises(InvalidInput, match="limits must be among cloud, got 'calls'"):
        Problem(tiers=(cloud(),), candidates=(), limits=WORDS)


def test_dollars_of_calls_have_a_range() -> None:
    with pytest.raises(InvalidInput, match=r"plan p.calls_usd_per_hour must be from 0"):
        PlanOption(plan_id="p", demand=(), cost_usd_per_hour=0.0, calls_usd_per_hour=-1.0)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
def test_queries_whose_calls_exceed_a_limit_together_are_not_all_served(
    policy: SchedulingPolicy,
) -> None:
    queries = tuple(candidate(f"q{i}", calling("p", 25)) for i in range(3))  # 75 of 60
    problem = Problem(tiers=(cloud(9), Tier(name=LIMIT)), candidates=queries, limits=WORDS)
    schedule = policy.schedule(problem)
    assert validate(problem, schedule) == ()
    assert len(schedule.assignments) == 2
    [why] = schedule.waiting.values()
    assert "needs 0.416667 of the 60 requests per minute of endpoint small, but" in why
    assert "0.166666 is left" in why
    assert "a higher limit of 60 requests per minute of endpoint small" in why


def test_a_schedule_above_a_limit_is_told() -> None:
    alone = candidate("q0", calling("p", 40))
    both = (alone, candidate("q1", calling("p", 40)))
    problem = Problem(tiers=(Tier(name=LIMIT),), candidates=both, limits=WORDS)
    first = Greedy().schedule(problem)
    second = replace(first.assignments[0], query_id="q1", machines=first.assignments[0].machines)
    wrong = replace(first, assignments=(first.assignments[0], second), waiting={})
    assert any("calls machine 0 must hold at most 1" in told for told in validate(problem, wrong))


def test_a_plan_beyond_the_whole_limit_can_only_wait_for_a_higher_one() -> None:
    query = candidate("q", calling("p", 90))
    tiers = (Tier(name=LIMIT),)
    why = why_waiting(query, occupied(tiers), tiers, WORDS)
    assert why.endswith("What would let it in: a higher limit of " + WORDS[LIMIT] + ".")


def test_quotas_are_of_machines_not_of_limits() -> None:
    query = Candidate(query_id="q", plans=(calling("p", 60),), tenant="acme")
    problem = Problem(
        tiers=(cloud(), Tier(name=LIMIT)),
        candidates=(query,),
        quotas={"acme": 0.1},
        limits=WORDS,
    )
    for policy in POLICIES:
        schedule = policy.schedule(problem)
        assert [a.query_id for a in schedule.assignments] == ["q"]
        assert validate(problem, schedule) == ()


@settings(max_examples=60, deadline=None)
@given(called())
def test_no_policy_admits_more_calls_than_a_limit_lets_through_and_the_program_is_optimal(
    drawn: tuple[Problem, Called],
) -> None:
    problem, per_minute = drawn
    best = max(
        sum(c.weight for c, p in zip(problem.candidates, chosen, strict=True) if p is not None)
        for chosen in choices(problem, all_served=False)
        if possible(problem, per_minute, chosen) is not None
    )
    weights = {c.query_id: c.weight for c in problem.candidates}
    for policy in POLICIES:
        schedule = policy.schedule(problem)
        assert validate(problem, schedule) == ()
        made = schedule.assignments
        assert sum(per_minute[a.query_id, a.plan_id] for a in made) <= MOST
        served = sum(weights[a.query_id] for a in made)
        assert served == best if isinstance(policy, Ilp) else served <= best


@settings(max_examples=60, deadline=None)
@given(called())
def test_the_least_money_counts_rent_and_calls(drawn: tuple[Problem, Called]) -> None:
    problem, per_minute = drawn
    least = inf
    for chosen in choices(problem, all_served=True):
        rent = possible(problem, per_minute, chosen)
        if rent is not None:
            calls = sum(p.calls_usd_per_hour for p in chosen if p is not None)
            least = min(least, rent + calls)
    solved = Ilp(objective=Objective.COST).solve(problem)
    assert solved.objective == pytest.approx(least)
    if least == inf:
        return
    spent = spent_usd_per_hour(problem, solved.schedule.assignments)
    assert spent == pytest.approx(least)
    rental = Rental(effort=Effort(steps=300, idle_steps=150))
    for policy in (rental, Greedy(ranking=Ranking.MONEY)):
        schedule = policy.schedule(problem)
        assert validate(problem, schedule) == ()
        if not schedule.waiting:
            assert spent_usd_per_hour(problem, schedule.assignments) >= least - 1e-9


def test_renting_is_chosen_over_calling_where_it_is_cheaper_and_calling_where_that_is() -> None:
    # three queries at half a machine: two machines for 3 dollars, or calls for 0.8 each
    def query(name: str, usd: float) -> Candidate:
        return candidate(name, plan("rent", ("cloud", 0.5)), calling("call", 10, usd=usd))

    tiers = (replace(cloud(2), price_usd_per_hour=1.5), Tier(name=LIMIT))
    for usd, expected in ((0.4, 1.2), (0.8, 2.3), (2.0, 3.0)):  # all call; one calls; all rent
        queries = tuple(query(f"q{i}", usd) for i in range(3))
        problem = Problem(tiers=tiers, candidates=queries, limits=WORDS)
        for policy in (Rental(), Ilp(objective=Objective.COST)):
            schedule = policy.schedule(problem)
            money = spent_usd_per_hour(problem, schedule.assignments)
            assert money == pytest.approx(expected)


def test_a_problem_with_limits_survives_the_way_to_a_document_and_back() -> None:
    query = candidate("q", replace(calling("p", 30, usd=2.0), demand=(DemandItem(LIMIT, 0.5),)))
    problem = Problem(tiers=(cloud(), Tier(name=LIMIT)), candidates=(query,), limits=WORDS)
    assert problem_from_dict(problem_to_dict(problem)) == problem
