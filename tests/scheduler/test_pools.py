from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.search import (
    CheapestInTime,
    LargestRate,
    PoolGoal,
    PoolSpace,
    PoolTrial,
    Trials,
    best,
    contained,
    search,
)

COUNTS = st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any)


def space(**changed: Any) -> PoolSpace:  # noqa: ANN401 - values of any field
    values: dict[str, Any] = {"types": ("a", "b"), "prices": (2.0, 1.0), "most": (2, 3)}
    return PoolSpace(**{**values, **changed})


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"types": (), "prices": (), "most": ()}, "types"),
        ({"types": ("a", "a")}, "types"),
        ({"prices": (1.0,)}, "prices"),
        ({"prices": (1.0, -1.0)}, "prices of b"),
        ({"most": (0, 0)}, "most"),
        ({"most": (-1, 2)}, "most of a"),
        ({"most": (1000, 1000)}, "most"),
    ],
)
def test_what_is_no_space_is_told_by_its_field(changed: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidInput) as told:
        space(**changed)
    assert told.value.violations[0].field == field


@pytest.mark.parametrize("pool", [(0, 0), (3, 0), (1,), (1, -1)])
def test_a_pool_outside_the_space_has_no_place(pool: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInput, match="pool"):
        space().place(pool)


def test_a_budget_that_pays_for_nothing_is_told_what_the_cheapest_costs() -> None:
    with pytest.raises(InvalidInput, match=r"the cheapest costs 1 USD/h, got 0\.5"):
        PoolSpace.within_budget(("a", "b"), (2.0, 1.0), 0.5, 10)


def test_a_budget_pays_for_so_many_of_each_type_and_any_number_that_cost_nothing() -> None:
    # 0.3 / 0.1 is 2.9999999999999996.
    made = PoolSpace.within_budget(("a", "b", "c"), (0.1, 0.2, 0.0), 0.3, 10)
    assert made.most == (3, 1, 10)


@given(COUNTS)
def test_all_pools_but_the_empty_one_are_there_once_each_at_its_place(most: list[int]) -> None:
    names = tuple("abc"[: len(most)])
    made = PoolSpace(types=names, prices=tuple(range(1, len(most) + 1)), most=tuple(most))
    every = [pool for pool in product(*(range(n + 1) for n in most)) if any(pool)]
    assert [tuple(pool) for pool in made.pools.tolist()] == every
    assert [made.place(pool) for pool in every] == list(range(len(every)))
    assert made.costs.tolist() == [made.cost(pool) for pool in every]


def test_contained_is_at_most_as_many_of_each_type() -> None:
    pools = np.array([[1, 1], [2, 0], [0, 3], [2, 1]])
    assert contained(pools, (2, 1)).tolist() == [True, True, False, True]


def cheapest(**changed: Any) -> CheapestInTime:  # noqa: ANN401 - values of any field
    return CheapestInTime(space=space(), **changed)


def test_a_pool_in_time_is_worth_more_than_any_that_is_late_and_the_more_the_cheaper() -> None:
    goal = cheapest()
    late, dear, cheap = (
        goal.worth(PoolTrial((1, 0), 0.98)),
        goal.worth(PoolTrial((2, 3), 0.99)),
        goal.worth(PoolTrial((0, 1), 1.0)),
    )
    assert (late, dear, cheap) == (0.5 * 0.98 / 0.99, 0.5, 0.5 + 0.5 * (1 - 1 / 7))


def test_pools_that_cost_nothing_are_all_worth_the_most() -> None:
    free = CheapestInTime(space=space(prices=(0.0, 0.0)))
    assert free.worth(PoolTrial((1, 0), 1.0)) == 1.0


def test_a_trial_that_ended_early_is_not_feasible_whatever_its_share() -> None:
    assert not cheapest().feasible(PoolTrial((1, 0), 1.0, ended_early=True))


def test_prices_prune_what_is_as_dear_as_a_feasible_pool() -> None:
    hopeless = cheapest().hopeless([PoolTrial((0, 2), 1.0)])
    left = cheapest().space.pools[~hopeless].tolist()
    assert left == [[0, 1]]


def test_only_a_clear_violation_prunes_what_it_contains_and_only_if_asked_to() -> None:
    clear, slight = PoolTrial((2, 1), 0.5), PoolTrial((2, 1), 0.985)
    assert cheapest().hopeless([clear]).sum() == 1
    assert cheapest(prunes_below=0.01).hopeless([slight]).sum() == 1
    assert cheapest(prunes_below=0.01).hopeless([clear]).sum() == 5  # (0,1) to (2,1)


class _InOrder:
    """Proposes the first pool that is not hopeless."""

    def propose(self, goal: PoolGoal, trials: Trials) -> tuple[int, ...] | None:
        left = np.flatnonzero(~goal.hopeless(trials))
        return tuple(goal.space.pools[left[0]].tolist()) if len(left) else None


@given(st.lists(st.floats(0.1, 9.0), min_size=3, max_size=3), st.floats(1.0, 20.0))
def test_a_search_to_the_end_finds_the_cheapest_pool_that_is_in_time(
    work: list[float], needed: float
) -> None:
    three = PoolSpace(types=("a", "b", "c"), prices=(3.0, 2.0, 1.5), most=(2, 2, 2))
    goal = CheapestInTime(space=three, prunes_below=0.01)

    def measure(pool: tuple[int, ...]) -> PoolTrial:  # monotone: pruning takes nothing away
        return PoolTrial(pool, min(1.0, sum(np.multiply(pool, work)) / needed))

    trials = search(goal, _InOrder(), measure, 100)
    enough = [pool for pool in map(tuple, three.pools.tolist()) if measure(pool).value >= 0.99]
    found = best(goal, trials)
    assert (found is None) == (not enough)
    if found is not None:
        assert three.cost(found.pool) == min(map(three.cost, enough))


def test_bounds_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidInput, match="bounds"):
        LargestRate(space=space(), budget_usd_per_hour=3.0, bounds=np.ones(3))


def test_a_budget_the_bound_and_what_was_tried_leave_few_pools_for_the_largest_rate() -> None:
    pools = space().pools
    goal = LargestRate(
        space=space(), budget_usd_per_hour=4.0, bounds=pools @ np.array([10.0, 4.0])
    )
    assert goal.worth(PoolTrial((2, 0), 10.0)) == 0.5
    left = [tuple(p) for p in pools[~goal.hopeless([PoolTrial((1, 1), 9.0)])].tolist()]
    assert left == [(0, 3), (1, 2), (2, 0)]
