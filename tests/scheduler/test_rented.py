"""Machines that are rented: no policy spends above the limit; brute force has the least."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.tiers import MachineType, Tier
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.priced import Migration
from circinus.scheduler.policies.registry import Terms, scheduling_policy
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import (
    SCHEDULING_POLICIES,
    Assignment,
    Candidate,
    Objective,
    PlanOption,
    Problem,
    Slice,
    spent_usd_per_hour,
    validate,
)
from circinus.scheduler.problem_form import problem_from_dict, problem_to_dict
from circinus.scheduler.rolling.ageing import Ageing
from circinus.scheduler.rolling.assessment import assess, least_usd_per_hour
from circinus.scheduler.rolling.replicas import granted
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Times, Upkeep
from tests.scheduler.problems import candidate, cloud, least_rent, plan, quarters

COST = Terms(objective=Objective.COST)
LIMITS = st.sampled_from([0.0, 1.0, 3.5, 6.0, inf])
UNLIKE = Tier(
    name="cloud",
    types=(
        MachineType(name="small", machines=2, price_usd_per_hour=1.0),
        MachineType(name="large", machines=4, price_usd_per_hour=3.0),
    ),
)


def queries(count: int, share: float = 0.75) -> tuple[Candidate, ...]:
    return tuple(candidate(f"q{i}", plan("p", ("cloud", share))) for i in range(count))


def most_weight(problem: Problem) -> float:
    """The largest weight that fits machines and dollars, by trying every choice."""
    best = 0.0
    for chosen in itertools.product(*([None, *c.plans] for c in problem.candidates)):
        served = [
            replace(c, plans=(option,))
            for c, option in zip(problem.candidates, chosen, strict=True)
            if option is not None
        ]
        weight = sum(c.weight for c in served)
        if weight > best:
            rent = least_rent(replace(problem, candidates=tuple(served)))
            fits = rent < inf and rent <= problem.most_usd_per_hour
            best = weight if fits else best
    return best


@pytest.mark.parametrize("usd", [-1.0, nan])
def test_a_limit_that_is_none_is_refused(usd: float) -> None:
    with pytest.raises(InvalidInput, match=r"most_usd_per_hour must be >= 0, got"):
        Problem(tiers=(cloud(),), candidates=(), most_usd_per_hour=usd)


def test_a_schedule_that_spends_more_than_the_limit_is_wrong() -> None:
    problem = Problem(tiers=(UNLIKE,), candidates=queries(3), most_usd_per_hour=5.0)
    schedule = Rental().schedule(problem)
    assert validate(problem, schedule) == ()
    assert validate(replace(problem, most_usd_per_hour=4.99), schedule) == (
        "machines and calls must cost at most 4.99 $/h, cost 5.",
    )


@settings(max_examples=6, deadline=None)
@given(problem=quarters(2), most=LIMITS)
def test_no_policy_spends_more_than_the_limit(problem: Problem, most: float) -> None:
    limited = replace(problem, most_usd_per_hour=most)
    for name in SCHEDULING_POLICIES:
        schedule = scheduling_policy(name, COST).schedule(limited)
        assert validate(limited, schedule) == ()


@settings(max_examples=12, deadline=None)
@given(problem=quarters(2), most=LIMITS)
def test_the_program_serves_all_for_the_least_or_as_much_as_the_limit_allows(
    problem: Problem, most: float
) -> None:
    limited, least = replace(problem, most_usd_per_hour=most), least_rent(problem)
    schedule = Ilp(objective=Objective.COST).schedule(limited)
    if least <= most and least < inf:
        assert schedule.waiting == {}
        assert spent_usd_per_hour(limited, schedule.assignments) == pytest.approx(least)
    else:
        weight = {c.query_id: c.weight for c in problem.candidates}
        assert sum(weight[q] for q in schedule.by_query) == pytest.approx(most_weight(limited))


@settings(max_examples=15, deadline=None)
@given(problem=quarters(2), most=LIMITS)
def test_renting_is_near_the_least_and_serves_most_where_not_all_can_be(
    problem: Problem, most: float
) -> None:
    limited, least = replace(problem, most_usd_per_hour=most), least_rent(problem)
    schedule = Rental(effort=Effort(steps=400, idle_steps=200)).schedule(limited)
    assert validate(limited, schedule) == ()
    if least <= most and least < inf:
        assert schedule.waiting == {}
        assert spent_usd_per_hour(limited, schedule.assignments) >= least - 1e-9
    weight = {c.query_id: c.weight for c in problem.candidates}
    served = sum(weight[q] for q in schedule.by_query)
    assert 0.6 * most_weight(limited) <= served <= most_weight(limited) + 1e-9


@settings(max_examples=10, deadline=None)
@given(quarters(2))
def test_the_bound_is_the_least_that_brute_force_has(problem: Problem) -> None:
    bound = least_usd_per_hour(problem, time_limit_s=60.0)
    assert bound.proven
    assert bound.usd_per_hour == pytest.approx(least_rent(problem))


def test_a_program_with_too_many_variables_is_not_built() -> None:
    # 300 plans and 300 sizes on 60 machines: 18,300. In parts q_i takes 0.5 + 5 i / 997 of one.
    tier = Tier(name="cloud", machines=60, price_usd_per_hour=1.0)
    many = tuple(
        candidate(f"q{i}", *(plan(f"p{j}", ("cloud", 0.5 + (5 * i + j) / 997)) for j in range(5)))
        for i in range(60)
    )
    bound = least_usd_per_hour(Problem(tiers=(tier,), candidates=many), time_limit_s=60.0)
    assert not bound.proven
    assert bound.usd_per_hour == pytest.approx(30 + 8850 / 997)


def test_machines_cost_what_their_types_do_the_cheapest_first() -> None:
    problem = Problem(tiers=(UNLIKE,), candidates=queries(3))
    for policy in (Rental(), Ilp(objective=Objective.COST)):  # two small ones and a large one
        schedule = policy.schedule(problem)
        assert spent_usd_per_hour(problem, schedule.assignments) == 5.0
        assert {s.machine for a in schedule.assignments for s in a.machines} == {0, 1, 2}
    assert least_usd_per_hour(problem).usd_per_hour == pytest.approx(5.0)


@pytest.mark.parametrize(("price", "machine"), [(None, 2), (1.0, 2), (0.5, 0)])
def test_a_query_is_moved_where_that_saves_more_than_moving_costs(
    price: float | None, machine: int
) -> None:
    # Its plan costs 0.75 x 3 = 2.25 by share; moving down saves 3 - 1 = 2.
    at = Assignment(query_id="q0", plan_id="p", machines=(Slice("cloud", 2, 0.75),))
    problem = Problem(tiers=(UNLIKE,), candidates=queries(1), running={"q0": at})
    policy = Rental(migration=None if price is None else Migration(price=price))
    (served,) = policy.schedule(problem).assignments
    assert served.machines[0].machine == machine


def test_arrivals_and_departures_keep_to_the_limit_and_serve_who_fits() -> None:
    problem = Problem(tiers=(UNLIKE,), candidates=(), most_usd_per_hour=4.0)
    rolling = RollingSchedule(problem, Times(), Upkeep(policy=Rental()), 0.0)
    for number, each in enumerate(queries(4)):
        step = rolling.change(Events(arriving=(each,)), float(number))
        assert validate(replace(rolling.problem(), running={}), step.schedule) == ()
    assert [*step.schedule.by_query] == ["q0", "q1"]
    step = rolling.change(Events(leaving=("q0",)), 9.0)
    assert len(step.schedule.by_query) == 2  # somebody takes the small machine


def test_extra_replicas_rent_no_machine_beyond_the_limit() -> None:
    tier = Tier(name="cloud", machines=3, price_usd_per_hour=2.0)
    for most, extras in ((inf, 2), (4.0, 1), (2.0, 0)):
        problem = Problem(tiers=(tier,), candidates=queries(1), most_usd_per_hour=most)
        schedule = Rental().schedule(problem)
        made = granted(problem, schedule.assignments, {"q0": 3.0}, {}, {})
        assert sum(len(a.machines) for a in made.values()) == extras
        rent = assess(
            problem, schedule, Objective.COST, [s for a in made.values() for s in a.machines]
        ).rent
        assert rent is not None
        assert rent.usd_per_hour == 2.0 * (1 + extras)


def test_a_spent_limit_leaves_extra_replicas_the_machines_that_are_free_of_charge() -> None:
    dear = Tier(name="cloud", machines=3, price_usd_per_hour=0.1)
    tiers = (dear, Tier(name="edge", machines=2))
    option = plan("p", *[("cloud", 0.75)] * 3, ("edge", 0.75))
    problem = Problem(  # 0.1 + 0.1 + 0.1 is a little more than 0.3
        tiers=tiers, candidates=(candidate("q", option),), most_usd_per_hour=0.3
    )
    schedule = Rental().schedule(problem)
    extras = granted(problem, schedule.assignments, {"q": 2.0}, {}, {})
    assert [s.tier for s in extras["q"].machines] == ["edge"]


def test_what_is_called_counts_towards_the_limit() -> None:
    called = PlanOption(plan_id="c", demand=(), cost_usd_per_hour=3.0, calls_usd_per_hour=3.0)
    query = Candidate(query_id="q", plans=(called,))
    for most, served in ((3.0, 1), (2.9, 0)):
        problem = Problem(tiers=(cloud(),), candidates=(query,), most_usd_per_hour=most)
        schedule = Rental().schedule(problem)
        assert len(schedule.assignments) == served


def test_the_form_of_a_problem_has_its_limit() -> None:
    problem = Problem(tiers=(cloud(),), candidates=queries(1), most_usd_per_hour=2.5)
    assert problem_from_dict(problem_to_dict(problem)).most_usd_per_hour == 2.5
    unlimited = problem_to_dict(replace(problem, most_usd_per_hour=inf))
    assert "most_usd_per_hour" not in unlimited
    assert problem_from_dict(unlimited).most_usd_per_hour == inf


def hosted_or_own(query: str, share: float = 0.05) -> Candidate:
    """Calls for $4 an hour, or a share of a machine."""
    hosted = PlanOption(plan_id="hosted", demand=(), cost_usd_per_hour=4.0, calls_usd_per_hour=4.0)
    return Candidate(query_id=query, plans=(hosted, plan("own", ("cloud", share))))


@pytest.mark.parametrize("count", [4, 20, 40])
def test_queries_that_call_share_a_machine_where_that_is_cheaper(count: int) -> None:
    tier = Tier(name="cloud", machines=2, price_usd_per_hour=10.0)
    problem = Problem(
        tiers=(tier,), candidates=tuple(hosted_or_own(f"q{i:02}") for i in range(count))
    )
    schedule = Rental().schedule(problem)
    assert len(schedule.assignments) == count
    least = 10.0 * -(-count // 20)
    assert spent_usd_per_hour(problem, schedule.assignments) == pytest.approx(least)


def minutes_served(name: str, problem: Problem, hours: float = 1.2) -> dict[str, int]:
    """Of each query; the first one runs, and the others come."""
    ageing = Ageing(limit_s=600, turn_s=300)
    upkeep = Upkeep(policy=scheduling_policy(name, COST), ageing=ageing)
    first = replace(problem, candidates=problem.candidates[:1])
    rolling = RollingSchedule(first, Times(), upkeep, 0.0)
    rolling.change(Events(arriving=problem.candidates[1:]), 1.0)
    served = dict.fromkeys((c.query_id for c in problem.candidates), 0)
    for minute in range(1, int(hours * 60)):
        if rolling.due(60.0 * minute):
            rolling.change(Events(), 60.0 * minute)
        for query in rolling.last.schedule.by_query:
            served[query] += 1
    return served


@pytest.mark.parametrize("name", SCHEDULING_POLICIES)
def test_who_is_overdue_gets_the_dollars_of_others(name: str) -> None:
    small, large = (candidate(q, plan("p", ("cloud", s))) for q, s in (("a", 0.05), ("b", 1.0)))
    tier = Tier(name="cloud", machines=2, price_usd_per_hour=1.0)
    problem = Problem(tiers=(tier,), candidates=(small, large), most_usd_per_hour=1.0)
    served = minutes_served(name, problem)
    assert min(served.values()) > 25
    assert sum(served.values()) == 71


@pytest.mark.parametrize("name", SCHEDULING_POLICIES)
def test_who_can_never_be_paid_puts_nobody_out(name: str) -> None:
    one, other = (candidate(q, plan("p", ("cloud", 1.0))) for q in ("a", "c"))
    dear = PlanOption(
        plan_id="p", demand=one.plans[0].demand, cost_usd_per_hour=1, calls_usd_per_hour=100
    )
    tier = Tier(name="cloud", machines=1, price_usd_per_hour=1.0)
    candidates = (one, Candidate(query_id="b", plans=(dear,), priority=5), other)
    served = minutes_served(
        name, Problem(tiers=(tier,), candidates=candidates, most_usd_per_hour=5.0)
    )
    assert served["b"] == 0
    assert min(served["a"], served["c"]) > 25
