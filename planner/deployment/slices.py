"""Slices of their own for operators that may run at once: the allocation r of Circinus 4.2.

The paper tightens a share for each operator. Here operators of which no two may run at once share
a slice, as they would only wait in slices of their own while others run. Those of branches may be
in further slices of their tier, each with a share and copies of its own, and run side by side.
A further slice is a tier of the infrastructure behind all others, so that shares are tightened,
copies counted and seconds composed per slice as they are per tier.

| symbol | meaning |
| --- | --- |
| P, O, T, F | placements, operators, tiers, further slices of them |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np

from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import divided
from circinus.pipelines.model.latency import TierArray
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import FULL_STEPS
from circinus.planner.deployment.callers import Callers
from circinus.planner.deployment.placement import Placements, placed

# deviates: most-partitions
_MOST_PARTITIONS = 6
"""Ways to share a tier out to the branches on it that are tried, the first ones there are."""
_MOST_PLACEMENTS = 5_000  # beyond so many with further slices the others are left out
_MOST_STEM = 58  # characters of a tier's name in those of its slices, which are names, too


def with_own_slices(
    context: PlanningContext, callers: Callers, spots: Placements
) -> tuple[PlanningContext, Callers, Placements]:
    """Return a planning problem in which branches may have slices of their own, too.

    The first of the placements are those that were there, with a slice for each tier. A tier gives
    as many slices as may run at once, and no more than it has machines: in two slices of one
    machine branches take as long as in turns on both.
    """
    # deviates: shares-in-common: operators that never run at once have one share of a tier
    graph, tiers = context.graph, context.infrastructure.tiers
    widest = graph.width(range(len(graph.operators)))
    further = tuple(
        t for t, tier in enumerate(tiers) for _ in range(1, min(widest, tier.machines))
    )
    if not further:
        return context, callers, spots
    names = _names(tuple(tier.name for tier in tiers), further)
    slices = {name: tiers[t].name for name, t in zip(names, further, strict=True)}
    own = replace(
        context,
        infrastructure=divided(context.infrastructure, slices),
        further=further,
    )
    return own, callers.in_slices(tier_of(own)), _shared_out(own, spots)


def tier_of(context: PlanningContext) -> TierArray:  # (T + F,)
    """Return the position of the tier that each slice is of; tiers are slices of themselves."""
    own = len(context.infrastructure.tiers) - len(context.further)
    return np.array([*range(own), *context.further], dtype=np.int64)


def own_shares(
    context: PlanningContext, slices: Sequence[str], allocation: Sequence[float]
) -> list[float]:
    """Return the share of a machine of each operator in slices with these shares of one.

    Of those that may run at once in a slice each has its part of it, as `Deployment.demand_of`
    counts; for others the slice's share is the operator's.
    """
    if not context.further:
        return list(allocation)
    remote = {tier.name for tier in context.infrastructure.tiers if tier.remote}
    inside = {name: [o for o, of in enumerate(slices) if of == name] for name in slices}
    return [
        share if name in remote else share / context.graph.width(inside[name])
        for name, share in zip(slices, allocation, strict=True)
    ]


def by_tier(context: PlanningContext, figures: FloatArray) -> FloatArray:  # (A, T + F) -> (A, T)
    """Return the sums over the slices of each tier."""
    if not context.further:
        return figures
    of = tier_of(context)
    own = (of[:, None] == np.arange(len(of) - len(context.further))).astype(np.float64)
    return np.asarray(figures @ own)


def crowding_of(context: PlanningContext, steps: TierArray, replicas: IntArray) -> FloatArray:
    """Return the least part of a tier's machines that slices need together, the largest, (A,).

    `steps` are of whole slices, (A, T + F); with copies of unlike slices more may be needed.
    """
    needed = by_tier(context, (steps * replicas).astype(np.float64))
    machines = [tier.machines for tier in context.infrastructure.tiers[: needed.shape[1]]]
    return np.asarray((needed / (np.maximum(machines, 1) * FULL_STEPS)).max(axis=1))


def packed(context: PlanningContext, steps: TierArray, replicas: IntArray) -> BoolArray:  # (A,)
    """Return where machines hold all copies of the slices, first fit, the largest first."""
    fits = np.ones(len(steps), dtype=np.bool_)
    if not context.further:
        return fits
    of = tier_of(context)
    for tier in set(context.further):
        slices = np.flatnonzero(of == tier)
        machines = context.infrastructure.tiers[tier].machines
        several = np.flatnonzero((replicas[:, slices] * steps[:, slices] > 0).sum(axis=1) > 1)
        for row in several.tolist():
            items = np.repeat(steps[row, slices], replicas[row, slices])
            fits[row] &= _fit(tuple(sorted(items.tolist(), reverse=True)), machines)
    return fits


@lru_cache(maxsize=100_000)
def _fit(items: tuple[int, ...], machines: int) -> bool:
    left = [FULL_STEPS] * machines
    for item in items:
        at = next((i for i, room in enumerate(left) if room >= item), None)
        if at is None:
            return False
        left[at] -= item
    return True


def _names(tiers: Sequence[str], further: Sequence[int]) -> list[str]:
    """Return `cloud.2` of a second slice of `cloud`, unlike the names of tiers."""
    names, counts = list[str](), dict[int, int]()
    for t in further:
        counts[t] = counts.get(t, 1) + 1
        name = f"{tiers[t][:_MOST_STEM]}.{counts[t]}"
        while name in tiers or name in names:
            name += "_"
        names.append(name)
    return names


def _shared_out(context: PlanningContext, spots: Placements) -> Placements:
    """Return placements with those behind them that have further slices."""
    of, graph = tier_of(context), context.graph
    slices = {t: np.flatnonzero(of == t).tolist() for t in set(context.further)}

    @cache
    def options(tier: int, operators: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Return slices of each of the operators, those of the tier itself first."""
        together = [(tier,) * len(operators)]
        if tier not in slices or graph.width(operators) == 1:
            return together
        there = slices[tier]
        ways = itertools.islice(_chains(graph, operators), _MOST_PARTITIONS)
        return together + [
            tuple(there[group] for group in way) for way in ways if max(way) < len(there)
        ]

    rows = list[list[int]]()
    for row in spots.tiers.tolist():
        groups: dict[int, list[int]] = {}
        for o, tier in enumerate(row):
            groups.setdefault(tier, []).append(o)
        each = (options(tier, tuple(operators)) for tier, operators in groups.items())
        positions = list(itertools.chain(*groups.values()))
        for chosen in itertools.islice(itertools.product(*each), 1, None):
            further = row.copy()
            for o, slice_ in zip(positions, itertools.chain(*chosen), strict=True):
                further[o] = slice_
            rows.append(further)
        if len(rows) > _MOST_PLACEMENTS:
            break
    tiers = np.array([*spots.tiers.tolist(), *rows], dtype=np.int64)
    used = (tiers[:, :, None] == np.arange(len(of))).any(axis=1)
    # A share of a whole slice is tightened: operators there take turns on all of it.
    shared_out = placed(context.infrastructure, tiers, used.astype(np.int64))
    return shared_out.take(shared_out.fits)


def _chains(graph: PipelineGraph, operators: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to part operators into as few chains as there can be: the number of each."""
    width = graph.width(operators)

    def parted(way: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(way) == len(operators):
            yield way
            return
        o = operators[len(way)]
        used = max(way, default=-1) + 1
        for chain in range(min(used + 1, width)):
            inside = (operators[i] for i, of in enumerate(way) if of == chain)
            if not any(other in graph.beside[o] for other in inside):
                yield from parted((*way, chain))

    return parted(())
