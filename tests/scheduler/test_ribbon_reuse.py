"""What trials at an earlier load are worth at a new one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.scheduler.pool.ribbon import Ribbon, carried_over
from circinus.scheduler.pool.search import (
    CheapestInTime,
    MeasurePool,
    Pool,
    PoolSpace,
    PoolTrial,
    best,
    search,
)

SPACE = PoolSpace(types=("a", "b"), prices=(2.0, 0.9), most=(8, 12))
GOAL = CheapestInTime(space=SPACE, prunes_below=0.01)
EARLIER = [PoolTrial((3, 0), 0.999), PoolTrial((2, 0), 0.90), PoolTrial((4, 0), 1.0)]


def test_nothing_is_estimated_where_the_pool_is_feasible_still() -> None:
    again = PoolTrial((3, 0), 0.995)
    assert carried_over(GOAL, EARLIER, again) == [again]


def test_nothing_is_estimated_from_a_pool_that_was_never_tried_or_ended_early() -> None:
    again = PoolTrial((5, 5), 0.3)
    assert carried_over(GOAL, EARLIER, again) == [again]
    ended = PoolTrial((5, 5), 0.5, ended_early=True)
    assert carried_over(GOAL, [*EARLIER, ended], again) == [again]
    nothing = PoolTrial((5, 5), 0.0)
    assert carried_over(GOAL, [*EARLIER, nothing], again) == [again]


def test_what_was_no_better_is_estimated_as_the_paper_does() -> None:
    # 99.9 to 33.3 %: what had 90 % gets 30 %; (4, 0) was better and is not told of
    again = PoolTrial((3, 0), 0.333)
    found = carried_over(GOAL, EARLIER, again)
    assert found[0] == again
    assert [(trial.pool, trial.ended_early) for trial in found[1:]] == [((2, 0), True)]
    assert found[1].value == pytest.approx(0.30)
    assert not any(map(GOAL.feasible, found))


def test_what_was_as_good_may_be_the_way_out() -> None:
    saturated = [PoolTrial((3, 0), 1.0), PoolTrial((4, 0), 1.0)]
    again = PoolTrial((3, 0), 0.5)
    assert carried_over(GOAL, saturated, again) == [again]


def test_what_is_estimated_is_not_tried_and_prunes_what_it_contains() -> None:
    hopeless = GOAL.hopeless(carried_over(GOAL, EARLIER, PoolTrial((3, 0), 0.333)))
    for pool in ((3, 0), (2, 0), (1, 0)):
        assert hopeless[SPACE.place(pool)]
    assert not hopeless[SPACE.place((4, 0))]


def measure_at(rate: float) -> MeasurePool:
    """An `a` serves 3, a `b` 1; what comes beyond is late."""

    def measure(pool: Pool) -> PoolTrial:
        return PoolTrial(pool, min((3 * pool[0] + pool[1]) / rate, 1.0))

    return measure


@given(
    seed=st.integers(0, 999),
    rate=st.integers(6, 20),
    growth=st.sampled_from([1.2, 1.5, 1.8]),
)
@pytest.mark.slow
@settings(max_examples=10, deadline=None)
def test_the_new_optimum_is_found_without_trying_what_is_known(
    seed: int, rate: int, growth: float
) -> None:
    # where more instances are never worse, no more than violating pools is left out
    earlier = search(GOAL, Ribbon(seed=seed), measure_at(rate), 200)
    settled, now = best(GOAL, earlier), measure_at(growth * rate)
    assert settled is not None
    known = carried_over(GOAL, earlier, now(settled.pool))
    trials = search(GOAL, Ribbon(seed=seed), now, 200, known)
    found = best(GOAL, trials)
    every = [now(tuple(pool)) for pool in SPACE.pools.tolist()]
    cheapest = min(SPACE.cost(trial.pool) for trial in every if GOAL.feasible(trial))
    assert found is not None
    assert SPACE.cost(found.pool) == pytest.approx(cheapest)
    assert {trial.pool for trial in known}.isdisjoint(trial.pool for trial in trials)
