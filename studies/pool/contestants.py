"""Who searches pools in the study, by name: a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import PoolGoal, PoolStrategy
from circinus.studies.pool import competitors
from circinus.studies.pool.calibration import misled
from circinus.studies.pool.competitors import WalkingStrategy
from circinus.studies.pool.lookups import PoolLookup
from circinus.studies.pool.published import (
    PublishedGoal,
    RuledOut,
    by_climbing,
    by_random,
    by_ribbon,
)

CALIBRATED = "calibrated"


class PoolContestant(NamedTuple):
    """A strategy, and the goal that it is given: what a violating trial prunes for it."""

    made: Callable[[PoolLookup, int], PoolStrategy]  # for what is searched, and a seed
    goal: Callable[[PoolLookup], PoolGoal]


def _paper(lookup: PoolLookup) -> PoolGoal:
    return lookup.goal(0.01)


def _published(ruled_out: RuledOut) -> Callable[[PoolLookup], PoolGoal]:
    return lambda lookup: PublishedGoal(plain=lookup.goal(), ruled_out=ruled_out)


def _ribbon(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed)


def _artefact(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed, xi=0.1)


def _walking(
    walk: competitors.WalkMaker, goal: Callable[[PoolLookup], PoolGoal]
) -> PoolContestant:
    return PoolContestant(lambda lookup, seed: WalkingStrategy(walk=walk, seed=seed), goal)


CONTESTANTS: Mapping[str, PoolContestant] = {
    "ribbon": PoolContestant(_ribbon, _paper),
    "ribbon_artefact": PoolContestant(_artefact, _published(by_ribbon)),
    "ribbon_safe": PoolContestant(_ribbon, PoolLookup.goal),
    "random": _walking(competitors.random, _published(by_random)),
    "hill_climb": _walking(competitors.hill_climb, _published(by_climbing)),
    "response_surface": _walking(competitors.response_surface, _published(by_climbing)),
    "annealing": _walking(competitors.annealing, PoolLookup.goal),
    # "the same sub-configuration pruning" as the method that it is compared with (Kairos, 8.3)
    "genetic": _walking(competitors.genetic, _paper),
    CALIBRATED: PoolContestant(misled, PoolLookup.goal),
}
UNTOLD = tuple(name for name in CONTESTANTS if name != CALIBRATED)
"""Those who know no latencies."""
