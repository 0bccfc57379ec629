"""What a trial rules out where Ribbon's authors search, which is less than their words say.

| search | a pool in time rules out | a violating one, by however little |
| --- | --- | --- |
| Ribbon | what costs as much | what it contains, with fewer of the first type |
| random | what has more of each type | what has fewer of each type |
| climbing | nothing | nothing |

For Ribbon and for climbing this is the artefact's code (its loops over counts end one earlier for
the first type); for random search the paper says it, too (5.3). The artefact's Ribbon keeps other
pools of the same price, to the cent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.model.profile import BoolArray
from circinus.scheduler.pool.pools import PoolSpace, PoolTrial, contained
from circinus.scheduler.pool.search import CheapestInTime, Trials

RuledOut = Callable[[CheapestInTime, PoolTrial], BoolArray]
"""Returns which pools, (P,), a trial rules out besides the one that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGoal:
    """A `PoolGoal`: the cheapest in time, but for what a trial rules out."""

    plain: CheapestInTime
    ruled_out: RuledOut

    @property
    def space(self) -> PoolSpace:
        """See `PoolGoal.space`."""
        return self.plain.space

    def worth(self, trial: PoolTrial) -> float:
        """See there."""
        return self.plain.worth(trial)

    def feasible(self, trial: PoolTrial) -> bool:
        """See there."""
        return self.plain.feasible(trial)

    def hopeless(self, trials: Trials) -> BoolArray:  # (P,)
        """See there."""
        found = np.zeros(len(self.space.pools), dtype=np.bool_)
        for trial in trials:
            found[self.space.place(trial.pool)] = True
            found |= self.ruled_out(self.plain, trial)
        return found


def by_ribbon(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """See the table: Ribbon."""
    if goal.feasible(trial):
        return goal.hopeless([trial])
    pools = goal.space.pools
    return contained(pools, trial.pool) & (pools[:, 0] < trial.pool[0])


def by_random(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """See the table: random."""
    pools, tried = goal.space.pools, np.array(trial.pool)
    beyond = pools > tried if goal.feasible(trial) else pools < tried
    return np.asarray(beyond.all(axis=1))


def by_climbing(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """See the table: climbing."""
    return np.zeros(len(goal.space.pools), dtype=np.bool_)
