"""Ribbon: Bayesian optimisation over pools (Li et al., SC 2021, section 4).

A Gaussian process learns what pools are worth (equation 2, `PoolGoal.worth`) from those tried;
proposed is the one with the largest expected improvement among all that are not `hopeless`. What
is pruned is the goal's choice: `CheapestInTime` with `prunes_below=0.01` is as published.

| symbol | meaning | shape |
| --- | --- | --- |
| P | pools that may be tried | |
| mu, sigma | predicted worth and its standard deviation | (P,) |
| f* | the largest worth so far | |

    z = (mu - f* - xi) / sigma,    EI = sigma (z Phi(z) + phi(z))
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.pool.pools import Pool
from circinus.scheduler.pool.search import PoolGoal, Trials
from circinus.scheduler.pool.surrogate import PoolSurrogateSettings, predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A `PoolStrategy`. The same trials and seed give the same proposal.

    The paper does not say where it starts, but for a picture with a fixed pool; the artefact
    draws two pools at random, and so does this.
    """

    seed: int = 0
    first: int = 2  # pools drawn at random before the process is asked, `>= 1`
    # improvement of worth that does not count, `>= 0`. 0, as the paper tells of none: the
    # artefact's 0.1 tries a few more pools (docs/studies/pool.md)
    xi: float = 0.0
    surrogate: PoolSurrogateSettings = field(default_factory=PoolSurrogateSettings)

    def __post_init__(self) -> None:
        checks.at_least("ribbon.first", self.first, 1)
        checks.non_negative("ribbon.xi", self.xi)

    def propose(self, goal: PoolGoal, trials: Trials) -> Pool | None:
        """See `PoolStrategy.propose`."""
        hopeful = np.flatnonzero(~goal.hopeless(trials))
        if not len(hopeful):
            return None
        if len(trials) < self.first:
            rng = np.random.Generator(np.random.PCG64([self.seed, len(trials)]))
            return _pool(goal, rng.choice(hopeful))
        worth = np.array([goal.worth(trial) for trial in trials])
        mean, deviation = predicted(
            np.array([trial.pool for trial in trials], dtype=np.float64),
            worth,
            goal.space.pools[hopeful].astype(np.float64),
            self.surrogate,
        )
        gained = expected_improvement(mean, deviation, worth.max() + self.xi)
        return _pool(goal, hopeful[np.argmax(gained)])


def expected_improvement(
    mean: FloatArray, deviation: FloatArray, above: float
) -> FloatArray:  # (P,)
    """Return by how much normal values are expected to exceed a bound; deviations are `> 0`."""
    z = (mean - above) / deviation
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(deviation * (z * ndtr(z) + density))


def _pool(goal: PoolGoal, place: int) -> Pool:
    return tuple(goal.space.pools[place].tolist())
