from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.problem import Problem
from circinus.studies.scheduling.problems import Recipe, arrays_of
from tests.scheduler.problems import TWENTIETHS, best_goodput, candidate, cloud, plan, problems

TIERS = (Tier(name="edge", machines=3), Tier(name="cloud", machines=2))


def relaxed(arrays: PlanArrays) -> float:
    """The linear relaxation, solved with a variable for each plan."""
    queries, plans = len(arrays.benefit), len(arrays.owner)
    if not plans:
        return 0.0
    one = np.zeros((queries, plans))
    one[arrays.owner, np.arange(plans)] = 1.0
    found = linprog(
        -arrays.benefit[arrays.owner],
        A_ub=np.vstack((one, arrays.usage.T)),
        b_ub=np.concatenate((np.ones(queries), arrays.machines)),
    )
    assert found.fun is not None
    return -float(found.fun)


def test_without_queries_nothing_is_worth_anything() -> None:
    prices = dual_prices(Compiled.of(Problem(tiers=TIERS, candidates=())).arrays)
    assert (prices.bound, len(prices.favourite)) == (0.0, 0)


def test_without_shared_tiers_all_are_served() -> None:
    tier = Tier(name="device", machines=1, dedicated=True)
    queries = tuple(candidate(f"q{i}", plan("p", ("device", 0.5)), weight=2.0) for i in range(3))
    prices = dual_prices(Compiled.of(Problem(tiers=(tier,), candidates=queries)).arrays)
    assert (prices.bound, prices.per_machine.tolist()) == (6.0, [])


def test_a_tier_with_room_for_all_costs_nothing_and_a_scarce_one_what_the_last_would_pay() -> None:
    on_edge = (candidate("e", plan("p", ("edge", 0.5)), weight=5.0),)
    on_cloud = tuple(
        candidate(f"c{i}", plan("p", ("cloud", 1.0)), weight=float(w))
        for i, w in enumerate((9, 7, 4, 1))
    )
    arrays = Compiled.of(Problem(tiers=TIERS, candidates=on_edge + on_cloud)).arrays
    prices = dual_prices(arrays)
    edge, cloud_ = prices.per_machine
    assert edge == pytest.approx(0.0)
    assert 4.0 - 1e-6 <= cloud_ <= 7.0 + 1e-6  # whoever pays it is in, the next one is not
    assert prices.bound == pytest.approx(5 + 9 + 7)


@given(problem=problems())
@settings(deadline=None, max_examples=100)
def test_the_bound_is_the_value_of_the_relaxation(problem: Problem) -> None:
    arrays = Compiled.of(problem).arrays
    exact = relaxed(arrays)
    prices = dual_prices(arrays, precision=1e-7)
    assert prices.bound == pytest.approx(exact, rel=1e-5, abs=1e-5)
    assert (prices.per_machine >= -1e-9).all()
    owner = arrays.owner[prices.favourite] if len(arrays.owner) else np.zeros(0)
    assert owner.tolist() == list(range(len(arrays.benefit)))


@given(problem=problems(shares=TWENTIETHS, queries=3))
@settings(deadline=None, max_examples=60)
def test_no_schedule_is_better_than_the_bound(problem: Problem) -> None:
    assert dual_prices(Compiled.of(problem).arrays).bound >= best_goodput(problem) * (1 - 1e-9)


def test_the_start_from_a_sample_leaves_the_bound_as_it_is() -> None:
    # 20,000 queries on a thousandfold of the machines: twenty of each kind, a thousand times
    recipe = Recipe(queries=20, plans=4, tiers=TIERS)
    few = arrays_of(recipe, 5)
    times = 1000
    items = np.diff(few.item_first)
    many = PlanArrays(
        benefit=np.tile(few.benefit, times),
        first=np.arange(0, 20 * times * 4 + 1, 4),
        cost_usd_per_hour=np.tile(few.cost_usd_per_hour, times),
        calls_usd_per_hour=np.tile(few.calls_usd_per_hour, times),
        item_first=np.concatenate(([0], np.cumsum(np.tile(items, times)))),
        item_tier=np.tile(few.item_tier, times),
        item_parts=np.tile(few.item_parts, times),
        machines=few.machines * times,
    )
    assert dual_prices(many, 1e-6).bound == pytest.approx(times * relaxed(few), rel=1e-5)


def test_one_tier_is_sold_to_the_highest_benefit_per_share() -> None:
    queries = (
        candidate("dense", plan("p", ("cloud", 0.5)), weight=4.0),
        candidate("light", plan("p", ("cloud", 0.25)), weight=1.0),
        candidate("heavy", plan("p", ("cloud", 1.0)), weight=6.0),
    )
    prices = dual_prices(Compiled.of(Problem(tiers=(cloud(1),), candidates=queries)).arrays)
    assert prices.bound == pytest.approx(4 + 0.5 * 6)  # half of the heavy one
    assert prices.per_machine[0] == pytest.approx(6.0)
