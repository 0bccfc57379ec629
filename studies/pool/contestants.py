"""Who searches pools in the study, by name: a line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import PoolStrategy
from circinus.studies.pool import competitors
from circinus.studies.pool.competitors import WalkingStrategy
from circinus.studies.pool.lookups import PoolLookup


class PoolContestant(NamedTuple):
    """A strategy, and what a violating trial prunes for it."""

    made: Callable[[PoolLookup, int], PoolStrategy]  # for what is searched, and a seed
    # see `CheapestInTime`; None: prices alone prune, so the optimum is never thrown away
    prunes_below: float | None


def _ribbon(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed)


def _artefact(lookup: PoolLookup, seed: int) -> PoolStrategy:
    return Ribbon(seed=seed, xi=0.1)


def _walking(walk: competitors.WalkMaker) -> Callable[[PoolLookup, int], PoolStrategy]:
    return lambda lookup, seed: WalkingStrategy(walk=walk, seed=seed)


CONTESTANTS: Mapping[str, PoolContestant] = {
    "ribbon": PoolContestant(_ribbon, 0.01),  # the threshold of the paper
    # any violation prunes. The artefact spares those with as many of the first type
    "ribbon_artefact": PoolContestant(_artefact, 0.0),
    "ribbon_safe": PoolContestant(_ribbon, None),
    "random": PoolContestant(_walking(competitors.random), 0.0),  # both prunings, as published
    "hill_climb": PoolContestant(_walking(competitors.hill_climb), None),
    "response_surface": PoolContestant(_walking(competitors.response_surface), None),
    "annealing": PoolContestant(_walking(competitors.annealing), None),
    "genetic": PoolContestant(_walking(competitors.genetic), None),
}
