from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.policies.improvement import Effort
from circinus.scheduler.policies.registry import Greedy, Ranking
from circinus.scheduler.policies.rental import Rental, rented_usd_per_hour
from circinus.scheduler.problem import Problem, Schedule
from circinus.studies.scheduling.problems import Recipe, problem_of
from tests.scheduler.problems import candidate, cloud, least_rent, plan, quarters

SMALL = Rental(effort=Effort(steps=300, idle_steps=300, time_limit_s=60.0))


def rent(problem: Problem, schedule: Schedule) -> float:
    return rented_usd_per_hour(problem.tiers, schedule)


def test_without_machines_everybody_waits_and_nothing_is_paid() -> None:
    problem = Problem(tiers=(cloud(0),), candidates=(candidate("a", plan("p", ("cloud", 0.5))),))
    schedule = SMALL.schedule(problem)
    assert list(schedule.waiting) == ["a"]
    assert rent(problem, schedule) == 0.0


def test_when_machines_do_not_reach_those_who_fit_are_served() -> None:
    queries = tuple(candidate(f"q{i}", plan("p", ("cloud", 0.75))) for i in range(3))
    schedule = SMALL.schedule(Problem(tiers=(cloud(2),), candidates=queries))
    assert (len(schedule.assignments), len(schedule.waiting)) == (2, 1)


def test_a_machine_that_is_dear_by_share_may_be_cheaper_for_all() -> None:
    # by shares the edge is cheaper (0.75 x 1 < 0.25 x 3.9), but one cloud machine holds all four
    both = (plan("e", ("edge", 0.75), cost=0.75), plan("c", ("cloud", 0.25), cost=0.975))
    tiers = (
        Tier(name="edge", machines=4, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=4, price_usd_per_hour=3.9),
    )
    problem = Problem(tiers=tiers, candidates=tuple(candidate(f"q{i}", *both) for i in range(4)))
    assert rent(problem, Greedy(ranking=Ranking.MONEY).schedule(problem)) == pytest.approx(4.0)
    assert rent(problem, SMALL.schedule(problem)) == pytest.approx(3.9)


def test_own_devices_cost_nothing() -> None:
    device = Tier(name="device", machines=1, dedicated=True, price_usd_per_hour=9.0)
    alone, shared = plan("d", ("device", 1.0)), plan("c", ("cloud", 0.1))
    tiers = (device, replace(cloud(1), price_usd_per_hour=1.0))
    problem = Problem(tiers=tiers, candidates=(candidate("a", alone, shared),))
    assert rent(problem, SMALL.schedule(problem)) == 0.0


def test_what_runs_is_not_moved_to_save_money() -> None:
    tiers = (
        Tier(name="edge", machines=2, price_usd_per_hour=1.0),
        Tier(name="cloud", machines=2, price_usd_per_hour=9.0),
    )
    both = (plan("e", ("edge", 0.5)), plan("c", ("cloud", 0.5)))
    dear = candidate("old", plan("c", ("cloud", 0.5)))
    before = SMALL.schedule(Problem(tiers=tiers, candidates=(dear,)))
    problem = Problem(
        tiers=tiers,
        candidates=(candidate("old", *both), candidate("new", *both)),
        running=before.by_query,
    )
    schedule = SMALL.schedule(problem)
    assert schedule.by_query["old"] == before.by_query["old"]
    assert rent(problem, schedule) == 9.0  # the machine that is paid for anyway has room


@given(data=st.data(), tiers=st.integers(1, 2))
@settings(deadline=None, max_examples=60)
def test_nobody_serves_all_for_less_than_brute_force(data: st.DataObject, tiers: int) -> None:
    problem = data.draw(quarters(tiers))
    schedule = SMALL.schedule(problem)
    least = least_rent(problem)
    if not schedule.waiting:
        assert rent(problem, schedule) >= least - 1e-9
    if least == inf:
        assert schedule.waiting


def test_more_steps_never_cost_more() -> None:
    tiers = tuple(
        Tier(name=name, machines=40, price_usd_per_hour=price)
        for name, price in (("edge", 0.75), ("metro", 2.5), ("cloud", 3.7))
    )
    for seed in range(3):
        problem = problem_of(Recipe(queries=20, plans=5, tiers=tiers), seed)
        none = Rental(effort=Effort(steps=0)).schedule(problem)
        some = SMALL.schedule(problem)
        assert not some.waiting
        assert rent(problem, some) <= rent(problem, none) + 1e-9
