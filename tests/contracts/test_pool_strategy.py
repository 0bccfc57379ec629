"""What every strategy promises that proposes pools."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import (
    CheapestInTime,
    LargestRate,
    Pool,
    PoolGoal,
    PoolSpace,
    PoolStrategy,
    PoolTrial,
    best,
    search,
)
from circinus.studies.pool import competitors
from circinus.studies.pool.competitors import WalkingStrategy

WALKS = ("random", "hill_climb", "response_surface", "annealing", "genetic")

every_strategy = pytest.mark.parametrize("name", ["ribbon", *WALKS])
PRUNES = (None, 0.0, 0.01)


def made(name: str, seed: int) -> PoolStrategy:
    if name == "ribbon":
        return Ribbon(seed=seed)
    return WalkingStrategy(walk=getattr(competitors, name), seed=seed)


@st.composite
def monotone_problems(
    draw: st.DrawFn,
) -> tuple[PoolSpace, Callable[[Pool], PoolTrial], float]:
    """A space of at most 47 pools, and shares in time that an instance more never lowers."""
    kinds = draw(st.integers(1, 3))
    most = tuple(draw(st.integers(1, (15, 5, 2)[kinds - 1])) for _ in range(kinds))
    prices = tuple(draw(st.floats(0.1, 3.0)) for _ in range(kinds))
    speeds = np.array([draw(st.integers(1, 5)) for _ in range(kinds)])
    needed = draw(st.floats(0.5, 1.3)) * float(speeds @ most)
    space = PoolSpace(types=tuple("abc"[:kinds]), prices=prices, most=most)

    def measure(pool: Pool) -> PoolTrial:
        return PoolTrial(pool, min(float(speeds @ pool) / needed, 1.0))

    return space, measure, needed


@every_strategy
@given(problem=monotone_problems(), seed=st.integers(0, 99), prunes=st.sampled_from(PRUNES))
@settings(max_examples=15, deadline=None)
def test_it_finds_the_optimum_where_more_is_never_worse(
    name: str,
    problem: tuple[PoolSpace, Callable[[Pool], PoolTrial], float],
    seed: int,
    prunes: float | None,
) -> None:
    space, measure, _ = problem
    goal = CheapestInTime(space=space, prunes_below=prunes)
    every = [measure(tuple(pool)) for pool in space.pools.tolist()]
    cheapest = min((space.cost(t.pool) for t in every if goal.feasible(t)), default=None)
    found = best(goal, search(goal, made(name, seed), measure, len(every) + 1))
    assert (None if found is None else space.cost(found.pool)) == pytest.approx(cheapest)


@every_strategy
@given(
    most=st.tuples(st.integers(0, 3), st.integers(1, 3)),
    prunes=st.sampled_from(PRUNES),
    seed=st.integers(0, 99),
)
@settings(max_examples=15, deadline=None)
def test_what_it_proposes_is_never_hopeless_whatever_is_measured(
    name: str, most: tuple[int, int], prunes: float | None, seed: int
) -> None:
    space = PoolSpace(types=("a", "b"), prices=(0.0, 1.0), most=most)
    goal = CheapestInTime(space=space, prunes_below=prunes)
    strategy, rng = made(name, seed), np.random.default_rng(seed)
    trials: list[PoolTrial] = []
    while (pool := strategy.propose(goal, trials)) is not None:
        assert not goal.hopeless(trials)[space.place(pool)]
        trials.append(PoolTrial(pool, float(rng.choice([0.0, 0.5, 0.985, 0.995]))))
    assert goal.hopeless(trials).all()


@every_strategy
def test_it_finds_the_largest_rate_within_a_budget(name: str) -> None:
    space = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(3, 6))
    rates = space.pools @ np.array([3.0, 1.0])  # the budget of 6 pays 3 a: 9
    goal: PoolGoal = LargestRate(space=space, budget_usd_per_hour=6.0, bounds=rates * 1.1)
    trials = search(goal, made(name, 1), lambda p: PoolTrial(p, 3.0 * p[0] + p[1]), 99)
    found = best(goal, trials)
    assert found is not None
    assert found.pool == (3, 0)


@every_strategy
def test_the_same_seed_and_trials_give_the_same_proposal_whatever_was_asked_before(
    name: str,
) -> None:
    space = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(4, 5))
    goal = CheapestInTime(space=space)

    def measure(pool: Pool) -> PoolTrial:
        return PoolTrial(pool, min((3.0 * pool[0] + pool[1]) / 9, 1.0))

    used = made(name, 3)
    trials = search(goal, used, measure, 8)
    assert search(goal, made(name, 3), measure, 8) == trials
    for count in (5, 0, 7):
        asked = made(name, 3).propose(goal, trials[:count])
        assert used.propose(goal, trials[:count]) == asked
        assert asked == trials[count].pool


@every_strategy
def test_seeds_differ(name: str) -> None:
    space = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(4, 5))
    goal = CheapestInTime(space=space)
    assert len({made(name, seed).propose(goal, ()) for seed in range(9)}) > 1
