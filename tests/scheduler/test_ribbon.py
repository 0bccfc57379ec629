"""Ribbon's own rules; what it shares with other strategies is in the contract suite."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.pool.ribbon import Ribbon, expected_improvement
from circinus.scheduler.pool.search import CheapestInTime, Pool, PoolSpace, PoolTrial, search

SPACE = PoolSpace(types=("a", "b"), prices=(2.0, 1.0), most=(4, 6))
PUBLISHED = CheapestInTime(space=SPACE, prunes_below=0.01)


def enough_for_seven(pool: Pool) -> PoolTrial:
    """An `a` serves 3, a `b` 1; 7 are needed."""
    return PoolTrial(pool, min((3 * pool[0] + pool[1]) / 7, 1.0))


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"ribbon.first must be >= 1, got 0"):
        Ribbon(first=0)
    with pytest.raises(InvalidInput, match=r"ribbon.xi must be finite and >= 0"):
        Ribbon(xi=-0.1)


def test_the_first_pools_are_drawn_by_the_seed() -> None:
    drawn = {tuple(search(PUBLISHED, Ribbon(seed=seed), enough_for_seven, 2)) for seed in range(9)}
    assert len(drawn) > 5


def test_it_finds_the_cheapest_with_fewer_trials_than_there_are_pools() -> None:
    # 2 a + 1 b serve 7 for 5 USD/h; the only cheaper ones serve less
    for seed in range(5):
        trials = search(PUBLISHED, Ribbon(seed=seed), enough_for_seven, 100)
        assert (2, 1) in {trial.pool for trial in trials}
        assert len(trials) < len(SPACE.pools) / 2


def test_what_clearly_violates_prunes_what_it_contains_only_as_published() -> None:
    trials = [PoolTrial((2, 3), 0.9), PoolTrial((3, 0), 0.985)]
    safe = CheapestInTime(space=SPACE)
    pruned, kept = PUBLISHED.hopeless(trials), safe.hopeless(trials)
    assert pruned[SPACE.place((1, 3))]
    assert not kept[SPACE.place((1, 3))]
    assert not pruned[SPACE.place((1, 4))]  # holds one more
    # 0.985 is within the threshold of 0.99: nothing but itself
    only = PUBLISHED.hopeless(trials[1:])
    assert only.tolist() == (np.arange(len(SPACE.pools)) == SPACE.place((3, 0))).tolist()


@pytest.mark.parametrize(("mean", "deviation", "above"), [(0.5, 0.1, 0.6), (0.2, 0.3, 0.0)])
def test_expected_improvement_is_the_integral_that_it_stands_for(
    mean: float, deviation: float, above: float
) -> None:
    found = expected_improvement(np.array([mean]), np.array([deviation]), above)
    integral, _ = quad(
        lambda y: (y - above) * norm.pdf(y, mean, deviation), above, mean + 12 * deviation
    )
    assert found == pytest.approx([integral], rel=1e-6)


def test_nothing_is_expected_of_a_pool_that_is_known_to_be_worse() -> None:
    found = expected_improvement(np.array([0.2]), np.array([1e-6]), 0.5)
    assert found == pytest.approx([0.0], abs=1e-12)
