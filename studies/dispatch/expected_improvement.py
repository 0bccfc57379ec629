"""Tries pools where improvement is expected, as Ribbon does (section 4).

| symbol | meaning | shape |
| --- | --- | --- |
| P, K | pools, types of instance | |
| mu, s | posterior mean and deviation of a pool's value | (P,) |
| best | largest value so far | |

    EI = s (z Phi(z) + phi(z)),  z = (mu - best) / s
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from circinus.pipelines.profile import FloatArray
from circinus.planner.strategy.surrogate import fit
from circinus.scheduler.pool.pools import Pool
from circinus.scheduler.pool.search import PoolGoal, Trials


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedImprovement:
    """A `PoolStrategy`: Bayesian optimisation as Ribbon's, for the largest value (Ribbon, 4).

    Matern 5/2 over counts as shares of the most of each type; the first pools are drawn.
    """

    drawn: int = 3  # pools before there is a model, `>= 1`
    seed: int = 0

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`."""
        open_places = np.flatnonzero(~goal.hopeless(trials))
        if not len(open_places):
            return None
        if len(trials) < self.drawn:
            rng = np.random.default_rng([self.seed, len(trials)])
            return _pool(goal, int(rng.choice(open_places)))
        scale = np.maximum(goal.space.most, 1)
        seen = np.array([trial.pool for trial in trials]) / scale
        model = fit(seen, _values(trials)[:, None])
        posterior = model.predict(goal.space.pools[open_places] / scale).target(0)
        gain = posterior.mean - _values(trials).max()
        z = gain / posterior.deviation
        density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        expected = gain * ndtr(z) + posterior.deviation * density
        return _pool(goal, int(open_places[np.argmax(expected)]))


def _values(trials: Trials) -> FloatArray:  # (n,)
    return np.array([trial.value for trial in trials])


def _pool(goal: PoolGoal, place: int) -> Pool:
    return tuple(goal.space.pools[place].tolist())
