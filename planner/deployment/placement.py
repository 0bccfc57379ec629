"""Every way to put a pipeline's operators on tiers.

| symbol | meaning |
| --- | --- |
| P, O, T | placements, operators (topological order), tiers |
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from math import prod

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import TierArray
from circinus.pipelines.model.restrictions import Restrictions
from circinus.pipelines.model.shares import FULL_STEPS, SHARE_STEP
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.callers import Called, Callers

MOST_PLACEMENTS = 5_000  # beyond so many, placements that send data back down are left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """Placements with what a machine can give each of them.

    A tier without machines has nothing to share out: there it is as if it were not used.
    """

    tiers: TierArray  # position of each operator's tier, shape (P, O)
    # Largest number of operators on a tier that can run at once; 0 on unused tiers, shape (P, T).
    widths: TierArray
    # Largest share per operator in steps of `SHARE_STEP`, such that share x width fits a machine
    # and its GPUs grant it; 0 on unused tiers, shape (P, T).
    full_steps: TierArray
    # What operators call there; None: placements are of unlike configurations, or nothing is
    # called by any.
    called: Called | None = None
    _by_calls: dict[Called, Placements] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        """Return P."""
        return len(self.tiers)

    @property
    def fits(self) -> TierArray:
        """The rows in which a machine has a share for each operator, on every tier."""
        return np.flatnonzero(((self.full_steps > 0) | (self.widths == 0)).all(axis=1))

    def take(self, rows: TierArray) -> Placements:
        """Return the placements of those rows, in that order."""
        return Placements(
            tiers=self.tiers[rows],
            widths=self.widths[rows],
            full_steps=self.full_steps[rows],
            called=self.called,
        )

    def where(self, callers: Callers, called: Called) -> Placements:
        """Return those on which operators may be that call so, in their order.

        Answers are cached: equal questions have one answer. InvalidInput if all send data
        back down, and only those that do not were looked at.
        """
        if called not in self._by_calls:
            good = np.ones(len(self), dtype=np.bool_)
            for o, (endpoints, tiers) in enumerate(zip(called, callers.tiers, strict=True)):
                good &= np.isin(self.tiers[:, o], tiers[endpoints])
            names = sorted(frozenset[str]().union(*called))
            rule = "must have a placement that never sends data back down, also when it calls"
            checks.require(bool(good.any()), "pipeline", rule, names)
            self._by_calls[called] = replace(
                self.take(np.flatnonzero(good)), called=called, _by_calls={}
            )
        return self._by_calls[called]


def placements(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    *,
    most: int = MOST_PLACEMENTS,
    restrictions: Restrictions | None = None,
) -> Placements:
    """Return all placements on tiers that restrictions allow, under any configuration.

    An operator that may call something is on remote tiers that have what it calls, one that may
    call nothing on tiers that have machines. When there are more than `most`, only those that
    never send data back down: each operator's tier comes no earlier in the infrastructure than
    its parents', remote ones, which are nowhere in it, left aside. InvalidInput if no tier has a
    machine where one is needed, even those are too many, so many operators can run at once that
    no machine can share itself between them, or some settings leave an operator no tier.
    """
    callers = Callers.of(graph, infrastructure, restrictions or Restrictions())
    return placements_of(callers, graph, infrastructure, most=most)


def placements_of(
    callers: Callers,
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    *,
    most: int = MOST_PLACEMENTS,
) -> Placements:
    """Return the same of the tiers that callers may be on."""
    remote = [i for i, tier in enumerate(infrastructure.tiers) if tier.remote]
    choices = callers.choices()
    if prod(map(len, choices)) <= most:
        tiers = np.array(list(itertools.product(*choices)), dtype=np.int64)
    else:
        tiers = _upwards(graph, choices, remote, most)
    spots = placed(infrastructure, tiers, _widths(graph, tiers, len(infrastructure.tiers)))
    fits = spots.fits
    rule = (
        f"must have a placement with at most {FULL_STEPS} operators at once on a machine"
        f"{_of_gpus(infrastructure)}"
    )
    least = int(spots.widths.max(axis=1).min())
    checks.require(len(fits) > 0, f"pipeline {graph.name}", rule, least)
    return spots.take(fits)


def placed(infrastructure: Infrastructure, tiers: TierArray, widths: TierArray) -> Placements:
    """Return placements (P, O) with what machines can give so many at once on a tier, (P, T).

    Also where that is nothing.
    """
    widths = widths.copy()
    widths[:, [i for i, tier in enumerate(infrastructure.tiers) if tier.remote]] = 0
    # deviates: full-share-divided
    full = np.where(widths > 0, FULL_STEPS // np.maximum(widths, 1), 0)
    for tier, width in _limited(infrastructure, widths):
        full[widths[:, tier] == width, tier] = max(
            granted_steps(infrastructure.tiers[tier], width), default=0
        )
    return Placements(tiers=tiers, widths=widths, full_steps=full)


def granted_steps(tier: Tier, width: int) -> tuple[int, ...]:
    """Return the steps that each of so many operators at once may have on a tier, ascending."""
    if tier.share_steps is None:
        return tuple(range(1, FULL_STEPS // width + 1))
    return tuple(k // width for k in tier.share_steps if k % width == 0)


# deviates: gpu-shares
def raised(infrastructure: Infrastructure, placements: Placements, steps: TierArray) -> TierArray:
    """Return steps that are at most the full ones, raised to the next that GPUs grant, (P, T)."""
    granted = steps
    for tier, width in _limited(infrastructure, placements.widths):
        rows = placements.widths[:, tier] == width
        good = np.array(granted_steps(infrastructure.tiers[tier], width))
        granted = granted.copy() if granted is steps else granted
        granted[rows, tier] = good[np.searchsorted(good, steps[rows, tier])]
    return granted


def _limited(infrastructure: Infrastructure, widths: TierArray) -> Iterator[tuple[int, int]]:
    """Yield the tiers that do not grant every share, each with every width on it."""
    for t, tier in enumerate(infrastructure.tiers):
        if tier.share_steps is not None:
            yield from ((t, width) for width in np.unique(widths[:, t]).tolist() if width)


def _of_gpus(infrastructure: Infrastructure) -> str:
    granted = {t.name: t.share_steps for t in infrastructure.tiers if t.share_steps is not None}
    words = [
        f"{name}: {', '.join(f'{k * SHARE_STEP:g}' for k in steps)}"
        for name, steps in granted.items()
    ]
    return f", with a share that GPUs give ({'; '.join(words)})" if words else ""


def _upwards(
    graph: PipelineGraph, choices: list[list[int]], remote: list[int], most: int
) -> TierArray:  # (P, O)
    rows = np.zeros((1, 0), dtype=np.int64)
    levels = np.zeros((1, 0), dtype=np.int64)  # the tiers of those on machines that data was on
    for parents, usable in zip(graph.parents, choices, strict=True):
        lowest = levels[:, list(parents)].max(axis=1, initial=0)
        placed, reached = [], []
        for tier in usable:
            good = np.ones(len(rows), dtype=np.bool_) if tier in remote else lowest <= tier
            level = lowest[good] if tier in remote else np.full(good.sum(), tier)
            placed.append(np.column_stack([rows[good], np.full(good.sum(), tier)]))
            reached.append(np.column_stack([levels[good], level]))
        rows, levels = np.concatenate(placed), np.concatenate(reached)
        # Unless tiers are restricted every row can go on to the last one: rows get no fewer.
        if not 0 < len(rows) <= most:
            raise InvalidInput.of(
                f"pipeline {graph.name}",
                f"must have 1 to at most {most} placements that never send data back down",
                f"{len(graph.operators)} operators on {len(usable)} tiers",
            )
    return rows[np.lexsort(rows.T[::-1])]


def _widths(graph: PipelineGraph, tiers: TierArray, count: int) -> TierArray:  # (P, T)
    # Placements repeat few distinct groups of operators: one width per group.
    width_of = cache(
        lambda group: graph.width(np.flatnonzero(np.frombuffer(group, bool)).tolist())
    )
    widths = np.zeros((len(tiers), count), dtype=np.int64)
    for tier in range(count):
        groups, which = np.unique(tiers == tier, axis=0, return_inverse=True)
        of_group = np.array([width_of(group.tobytes()) for group in groups], dtype=np.int64)
        widths[:, tier] = of_group[which.ravel()]
    return widths
