"""What a trial rules out in the authors' code."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.scheduler.pool.search import CheapestInTime, Pool, PoolSpace, PoolTrial
from circinus.studies.pool.methods import (
    PublishedGoal,
    RuledOut,
    by_climbing,
    by_random,
    by_ribbon,
)

SPACE = PoolSpace(types=("a", "b", "c"), prices=(3.0, 2.0, 1.0), most=(2, 2, 3))
PLAIN = CheapestInTime(space=SPACE)
POOLS = st.tuples(*(st.integers(0, most) for most in SPACE.most)).filter(any)

every_rule = pytest.mark.parametrize("rule", [by_ribbon, by_random, by_climbing])


def looped(pool: Pool, ends: tuple[int, int, int]) -> set[Pool]:
    """The authors' loops: up to a count itself where it ends at 1, or to the one before at 0."""
    counts = [range(count + end) for count, end in zip(pool, ends, strict=True)]
    return {other for other in product(*counts) if any(other)} | {pool}


def above(pool: Pool) -> set[Pool]:
    counts = [range(count + 1, most + 1) for count, most in zip(pool, SPACE.most, strict=True)]
    return {*product(*counts)} | {pool}


def as_dear(pool: Pool) -> set[Pool]:
    pools = [tuple(of) for of in SPACE.pools.tolist()]
    return {other for other in pools if SPACE.cost(other) >= SPACE.cost(pool)}


def hopeless(rule: RuledOut, trial: PoolTrial) -> set[Pool]:
    ruled_out = PublishedGoal(space=SPACE, ruled_out=rule).hopeless([trial])
    return {tuple(of) for of in SPACE.pools[ruled_out].tolist()}


@pytest.mark.parametrize(
    ("rule", "violating", "in_time"),
    [
        (by_ribbon, lambda pool: looped(pool, (0, 1, 1)), as_dear),
        (by_random, lambda pool: looped(pool, (0, 0, 0)), above),
        (by_climbing, lambda pool: {pool}, lambda pool: {pool}),
    ],
)
@given(pool=POOLS)
def test_a_trial_rules_out_what_the_loops_over_counts_do(
    rule: RuledOut,
    violating: Callable[[Pool], set[Pool]],
    in_time: Callable[[Pool], set[Pool]],
    pool: Pool,
) -> None:
    assert hopeless(rule, PoolTrial(pool, 0.9899)) == violating(pool)
    assert hopeless(rule, PoolTrial(pool, 0.99)) == in_time(pool)


@every_rule
def test_nothing_tried_rules_nothing_out(rule: RuledOut) -> None:
    assert not PublishedGoal(space=SPACE, ruled_out=rule).hopeless([]).any()


@every_rule
@given(pool=POOLS, share=st.sampled_from([0.5, 0.9899, 0.99, 1.0]))
def test_what_is_good_and_feasible_is_of_the_plain_goal(
    rule: RuledOut, pool: Pool, share: float
) -> None:
    goal, trial = PublishedGoal(space=SPACE, ruled_out=rule), PoolTrial(pool, share)
    assert (goal.worth(trial), goal.feasible(trial)) == (PLAIN.worth(trial), PLAIN.feasible(trial))
