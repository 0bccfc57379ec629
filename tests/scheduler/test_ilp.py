from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.ilp import Ilp, Solver, Symmetry, installed_solvers
from circinus.scheduler.policies.registry import Greedy, Ranking
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Objective,
    PlanOption,
    Problem,
    Slice,
    rented_usd_per_hour,
    validate,
)
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import (
    best_goodput,
    candidate,
    cloud,
    least_rent,
    plan,
    problems,
    quarters,
)

WAYS = list(itertools.product(installed_solvers(), Symmetry))


@pytest.mark.parametrize(
    ("build", "rule"),
    [
        (lambda: Ilp(time_limit_s=0.0), "time_limit_s must be finite and > 0, got 0.0"),
        (lambda: Ilp(gap=-0.1), "gap must be finite and >= 0, got -0.1"),
    ],
)
def test_bounds_of_the_settings(build: Callable[[], Ilp], rule: str) -> None:
    with pytest.raises(InvalidInput, match=rule):
        build()


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_without_machines_nothing_is_worth_nothing_and_that_is_proven(
    solver: Solver, symmetry: Symmetry
) -> None:
    problem = Problem(tiers=(cloud(0),), candidates=(candidate("a", plan("p", ("cloud", 0.5))),))
    solved = Ilp(solver=solver, symmetry=symmetry).solve(problem)
    assert (solved.objective, solved.bound, solved.proven) == (0.0, 0.0, True)
    assert list(solved.schedule.waiting) == ["a"]


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_serving_all_is_refused_as_a_whole_when_machines_do_not_reach(
    solver: Solver, symmetry: Symmetry
) -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("cloud", 0.75))) for i in range(3))
    problem = Problem(tiers=(replace(cloud(2), price_usd_per_hour=1.0),), candidates=queries)
    ilp = Ilp(objective=Objective.COST, solver=solver, symmetry=symmetry)
    solved = ilp.solve(problem)
    assert solved.objective == inf
    assert solved.bound == inf
    assert solved.proven
    assert not solved.schedule.assignments


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_half_and_half_does_not_hold_three_quarters(solver: Solver, symmetry: Symmetry) -> None:
    # two machines, 0.5 each taken by the heavy ones unless they share: 10 + 10 + 1
    queries = (
        candidate("h0", plan("p", ("cloud", 0.5)), weight=10),
        candidate("h1", plan("p", ("cloud", 0.5)), weight=10),
        candidate("t", plan("p", ("cloud", 0.75)), weight=1),
        candidate("u", plan("p", ("cloud", 0.5)), weight=0.5),
    )
    solved = Ilp(solver=solver, symmetry=symmetry).solve(
        Problem(tiers=(cloud(2),), candidates=queries)
    )
    assert solved.objective == pytest.approx(21)
    assert solved.bound == pytest.approx(21)
    assert solved.proven


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_renting_pays_for_whole_machines(solver: Solver, symmetry: Symmetry) -> None:
    # by shares the edge is cheaper (0.5 x 1 < 0.25 x 3), but one cloud machine holds all four
    queries = tuple(
        candidate(
            f"q{i}", plan("e", ("edge", 0.75), cost=0.75), plan("c", ("cloud", 0.25), cost=1)
        )
        for i in range(4)
    )
    tiers = (
        Tier(name="edge", machines=4, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=4, price_usd_per_hour=3.0),
    )
    problem = Problem(tiers=tiers, candidates=queries)
    solved = Ilp(objective=Objective.COST, solver=solver, symmetry=symmetry).solve(problem)
    assert solved.objective == pytest.approx(3.0)
    assert rented_usd_per_hour(tiers, solved.schedule.assignments) == pytest.approx(3.0)


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_a_tenant_gets_no_more_than_its_quota(solver: Solver, symmetry: Symmetry) -> None:
    queries = tuple(
        replace(candidate(f"q{i}", plan("p", ("cloud", 0.5)), weight=w), tenant=t)
        for i, (t, w) in enumerate([("a", 9), ("a", 8), ("a", 7), ("b", 1)])
    )
    problem = Problem(tiers=(cloud(2),), candidates=queries, quotas={"a": 0.5})
    solved = Ilp(solver=solver, symmetry=symmetry).solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert solved.objective == pytest.approx(18)  # two of a, and b: 9 + 8 + 1


def test_what_runs_makes_way_for_more_only_if_it_may_be_moved() -> None:
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 0, 1),))}
    old = candidate("old", plan("p", ("cloud", 1.0)))
    new = candidate("new", plan("p", ("cloud", 1.0)), weight=2.0)
    problem = Problem(tiers=(cloud(),), candidates=(old, new), running=running)
    assert list(Ilp(moves=True).schedule(problem).by_query) == ["new"]
    assert Ilp().schedule(problem).by_query == running


def test_a_time_limit_gives_a_valid_schedule_and_a_bound_above_it() -> None:
    tiers = (Tier(name="edge", machines=20), Tier(name="cloud", machines=20))
    problem = problem_of(Recipe(queries=300, plans=6, tiers=tiers), 3)
    solved = Ilp(time_limit_s=0.3, symmetry=Symmetry.ORDERED).solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert not solved.proven
    greedy = sum(
        c.weight for c in problem.candidates if c.query_id in Greedy().schedule(problem).by_query
    )
    assert solved.bound >= greedy
    assert solved.bound > solved.objective


@pytest.mark.parametrize("tiers", [1, 2])
@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_brute_force_agrees_on_the_largest_goodput(
    solver: Solver, symmetry: Symmetry, tiers: int, data: st.DataObject
) -> None:
    problem = data.draw(quarters(tiers))
    solved = Ilp(solver=solver, symmetry=symmetry).solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert solved.proven
    assert solved.objective == pytest.approx(best_goodput(problem))
    assert solved.bound == pytest.approx(solved.objective, rel=1e-5)


@pytest.mark.parametrize("tiers", [1, 2])
@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_brute_force_agrees_on_the_least_rent_for_all(
    solver: Solver, symmetry: Symmetry, tiers: int, data: st.DataObject
) -> None:
    problem = data.draw(quarters(tiers))
    solved = Ilp(objective=Objective.COST, solver=solver, symmetry=symmetry).solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert solved.proven
    assert solved.objective == pytest.approx(least_rent(problem))
    if solved.objective < inf:
        rent = rented_usd_per_hour(problem.tiers, solved.schedule.assignments)
        assert rent == pytest.approx(solved.objective)


@st.composite
def partly_running(draw: st.DrawFn) -> Problem:
    """Where the first queries run as greedy had them, and others come."""
    problem = draw(quarters(2))
    first = problem.candidates[: draw(st.integers(0, 3))]
    running = Greedy().schedule(replace(problem, candidates=first)).by_query
    return replace(problem, running=running)


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
@given(problem=partly_running())
@settings(deadline=None, max_examples=15)
def test_brute_force_agrees_on_the_best_beside_what_runs(
    solver: Solver, symmetry: Symmetry, problem: Problem
) -> None:
    solved = Ilp(solver=solver, symmetry=symmetry).solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert solved.proven
    now = solved.schedule.by_query
    assert {q: now[q] for q in problem.running} == problem.running
    assert solved.objective == pytest.approx(best_goodput(problem, stays=True))
    assert solved.bound == pytest.approx(solved.objective, rel=1e-5)


@pytest.mark.parametrize(("solver", "symmetry"), WAYS)
def test_newcomers_are_rented_for_beside_what_runs(solver: Solver, symmetry: Symmetry) -> None:
    # a holds 0.75 of a machine at 3 and stays: b, 0.5, needs another one, c, 0.25, none
    tiers = (replace(cloud(3), price_usd_per_hour=3.0),)
    shares = {"a": 0.75, "b": 0.5, "c": 0.25}
    queries = [candidate(name, plan("p", ("cloud", share))) for name, share in shares.items()]
    running = {"a": Assignment(query_id="a", plan_id="p", machines=(Slice("cloud", 2, 0.75),))}
    problem = Problem(tiers=tiers, candidates=tuple(queries), running=running)
    solved = Ilp(objective=Objective.COST, solver=solver, symmetry=symmetry).solve(problem)
    assert solved.objective == solved.bound == pytest.approx(6.0)
    assert rented_usd_per_hour(tiers, solved.schedule.assignments) == pytest.approx(6.0)
    assert solved.schedule.by_query["a"] == running["a"]


def test_a_quota_counts_what_stays() -> None:
    # of two machines a may hold one: 0.5 runs, so one of its two newcomers of 0.5 is served
    queries = [
        replace(candidate(n, plan("p", ("cloud", 0.5))), tenant="a") for n in ("old", "b", "c")
    ]
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 1, 0.5),))}
    problem = Problem(
        tiers=(cloud(2),), candidates=tuple(queries), running=running, quotas={"a": 0.5}
    )
    solved = Ilp().solve(problem)
    assert validate(problem, solved.schedule) == ()
    assert (solved.objective, len(solved.schedule.by_query)) == (2.0, 2)


def test_who_lost_its_machine_competes_as_a_newcomer() -> None:
    # its machine, number 1, is gone, and so is its place: the heavier newcomer has the one left
    running = {"old": Assignment(query_id="old", plan_id="p", machines=(Slice("cloud", 1, 1.0),))}
    old = candidate("old", plan("p", ("cloud", 1.0)))
    new = candidate("new", plan("p", ("cloud", 1.0)), weight=2.0)
    problem = Problem(tiers=(cloud(),), candidates=(old, new), running=running)
    assert Ilp().schedule(problem).by_query.keys() == {"new"}


def test_a_tiny_item_beside_a_whole_machine_is_placed() -> None:
    shares = (0.05, 1.0, 1e-9)
    plan = PlanOption(
        plan_id="p",
        demand=tuple(DemandItem("cloud", share) for share in shares),
        cost_usd_per_hour=0.0,
    )
    problem = Problem(
        tiers=(Tier(name="cloud", machines=2),),
        candidates=(Candidate(query_id="q", plans=(plan,)),),
    )

    solved = Ilp(gap=0.0).solve(problem)

    assert (solved.objective, solved.proven) == (1.0, True)


@given(problem=problems(queries=5))
@settings(deadline=None, max_examples=30)
def test_any_problem_gets_a_valid_schedule_at_least_as_good_as_greedy(problem: Problem) -> None:
    weight = {c.query_id: c.weight for c in problem.candidates}
    solved = Ilp(gap=0.0).solve(problem)
    assert validate(problem, solved.schedule) == ()
    greedy = sum(weight[q] for q in Greedy(ranking=Ranking.DEMAND).schedule(problem).by_query)
    assert solved.objective >= greedy * (1 - 1e-6)
