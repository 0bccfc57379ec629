"""The methods that search pools in the study, by name.

What a trial rules out for each is in docs/studies/pool.md: less where Ribbon's authors search than
in their text. For Ribbon and climbing it is the artefact's code, whose loops over counts end one
earlier for the first type; its Ribbon leaves in other pools of the same price, to the cent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from circinus.pipelines.model.profile import BoolArray
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import (
    CheapestInTime,
    PoolGoal,
    PoolStrategy,
    PoolTrial,
    Trials,
    contained,
)
from circinus.studies.pool import competitors
from circinus.studies.pool.calibration import misled
from circinus.studies.pool.competitors import WalkingStrategy
from circinus.studies.pool.lookups import PoolLookup

RuledOut = Callable[[CheapestInTime, PoolTrial], BoolArray]
"""Returns which pools, (P,), a trial rules out besides the one that was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedGoal(CheapestInTime):
    """A `PoolGoal`: the cheapest in time, but for what a trial rules out."""

    ruled_out: RuledOut

    def hopeless(self, trials: Trials) -> BoolArray:  # (P,)
        """See `PoolGoal.hopeless`."""
        excluded = np.zeros(len(self.space.pools), dtype=np.bool_)
        for trial in trials:
            excluded[self.space.place(trial.pool)] = True
            excluded |= self.ruled_out(self, trial)
        return excluded


def by_ribbon(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """Rule out what costs as much, or what a violating pool contains with fewer of the first."""
    if goal.feasible(trial):
        return CheapestInTime.hopeless(goal, [trial])  # by prices
    pools = goal.space.pools
    return contained(pools, trial.pool) & (pools[:, 0] < trial.pool[0])


# deviates: competitors-prune-by-price
def by_random(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """Rule out what has more of each type, or fewer of each than a violating pool."""
    pools, tried = goal.space.pools, np.array(trial.pool)
    beyond = pools > tried if goal.feasible(trial) else pools < tried
    return np.asarray(beyond.all(axis=1))


def by_climbing(goal: CheapestInTime, trial: PoolTrial) -> BoolArray:  # (P,)
    """Rule out nothing."""
    return np.zeros(len(goal.space.pools), dtype=np.bool_)


CALIBRATED = "calibrated"


class PoolMethod(NamedTuple):
    """A strategy and its goal: what a violating trial prunes for it."""

    made: Callable[[PoolLookup, int], PoolStrategy]  # for what is searched, and a seed
    goal: Callable[[PoolLookup], PoolGoal]


def _paper(lookup: PoolLookup) -> PoolGoal:
    return lookup.goal(0.01)


def _published(ruled_out: RuledOut) -> Callable[[PoolLookup], PoolGoal]:
    return lambda lookup: PublishedGoal(
        space=lookup.space, in_time=lookup.in_time, ruled_out=ruled_out
    )


def _ribbon(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed)


def _artefact(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed, xi=0.1)


def _walking(walk: competitors.WalkMaker, goal: Callable[[PoolLookup], PoolGoal]) -> PoolMethod:
    return PoolMethod(lambda lookup, seed: WalkingStrategy(walk=walk, seed=seed), goal)


POOL_METHODS: Mapping[str, PoolMethod] = {
    "ribbon": PoolMethod(_ribbon, _paper),
    "ribbon_artefact": PoolMethod(_artefact, _published(by_ribbon)),
    "ribbon_safe": PoolMethod(_ribbon, PoolLookup.goal),
    "random": _walking(competitors.random, _published(by_random)),
    "hill_climb": _walking(competitors.hill_climb, _published(by_climbing)),
    "response_surface": _walking(competitors.response_surface, _published(by_climbing)),
    "annealing": _walking(competitors.annealing, PoolLookup.goal),
    # "the same sub-configuration pruning" as the method that it is compared with (Kairos, 8.3)
    "genetic": _walking(competitors.genetic, _paper),
    CALIBRATED: PoolMethod(misled, PoolLookup.goal),
}
WITHOUT_LATENCIES = tuple(name for name in POOL_METHODS if name != CALIBRATED)
"""Those who know no latencies."""
