"""Kairos+ (5.2, algorithm 1): try pools in the order of their bounds.

What is pruned is the goal's: `scheduler.pool.search.LargestRate` prunes by bound and sub-pool.
With bounds that no dispatcher exceeds, the best pool is found; with equation 15 it may be missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.pools import Pool
from circinus.scheduler.pool.search import PoolGoal, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class KairosPlus:
    """A `PoolStrategy`: the highest bound first; of equals the larger pool, then the first."""

    bounds: FloatArray  # (P,); on the rate of each pool of the goal's space

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """Return the pool with the highest bound that is not hopeless; None: all are."""
        left = np.flatnonzero(~goal.hopeless(trials))
        if not len(left):
            return None
        pools = goal.space.pools[left]
        first = np.lexsort((-pools.sum(axis=1), -self.bounds[left]))[0]
        return tuple(pools[first].tolist())
