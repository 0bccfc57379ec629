"""Every way to put a pipeline's operators on tiers.

| symbol | meaning |
| --- | --- |
| P, O, T | placements, operators (topological order), tiers |
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import SHARE_STEP, Infrastructure
from circinus.pipelines.latency import TierArray
from circinus.pipelines.restrictions import Restrictions, allowed_tiers

FULL_STEPS = round(1 / SHARE_STEP)  # a whole machine in share steps

MOST_PLACEMENTS = 5_000  # beyond so many, placements that send data back down are left out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placements:
    """Placements with what a machine can give each of them."""

    tiers: TierArray  # position of each operator's tier, shape (P, O)
    # Largest number of operators on a tier that can run at once; 0 on unused tiers, shape (P, T).
    widths: TierArray
    # Largest share per operator in steps of `SHARE_STEP`, such that share x width fits a machine;
    # 0 on unused tiers, shape (P, T).
    full_steps: TierArray

    def __len__(self) -> int:
        """Give P."""
        return len(self.tiers)

    def take(self, rows: TierArray) -> Placements:
        """Give the placements of those rows, in that order."""
        return Placements(
            tiers=self.tiers[rows], widths=self.widths[rows], full_steps=self.full_steps[rows]
        )


def placements(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    *,
    most: int = MOST_PLACEMENTS,
    restrictions: Restrictions | None = None,
) -> Placements:
    """Give all placements on tiers that have machines and that the restrictions allow.

    When there are more than `most`, only those that never send data back down: each operator's
    tier comes no earlier in the infrastructure than its parents'. InvalidInput if no tier has a
    machine, even those are too many, so many operators can run at once that no machine can share
    itself between them, or the restrictions leave an operator no tier that has machines.
    """
    usable = [i for i, tier in enumerate(infrastructure.tiers) if tier.machines > 0]
    checks.require(bool(usable), "infrastructure.tiers", "must have at least one machine", 0)
    choices = _choices(graph, infrastructure, usable, restrictions or Restrictions())
    if prod(map(len, choices)) <= most:
        tiers = np.array(list(itertools.product(*choices)), dtype=np.int64)
    else:
        tiers = _upwards(graph, choices, most)
    widths = _widths(graph, tiers, len(infrastructure.tiers))
    fits = np.flatnonzero((widths <= FULL_STEPS).all(axis=1))
    rule = f"must have a placement with at most {FULL_STEPS} operators at once on a machine"
    checks.require(len(fits) > 0, f"pipeline {graph.name}", rule, int(widths.max(axis=1).min()))
    full = np.where(widths > 0, FULL_STEPS // np.maximum(widths, 1), 0)
    return Placements(tiers=tiers, widths=widths, full_steps=full).take(fits)


def _choices(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    usable: list[int],
    restrictions: Restrictions,
) -> list[list[int]]:
    """Give the tiers that each operator may be on."""
    allowed = allowed_tiers(graph, infrastructure, restrictions)
    choices = [[tier for tier in tiers if tier in usable] for tiers in allowed]
    for operator, tiers, choice in zip(graph.operators, allowed, choices, strict=True):
        names = [infrastructure.tiers[i].name for i in tiers]
        field = f"restrictions.tiers.{operator.name}"
        checks.require(bool(choice), field, "must leave a tier that has machines", names)
    return choices


def _upwards(graph: PipelineGraph, choices: list[list[int]], most: int) -> TierArray:  # (P, O)
    rows = np.zeros((1, 0), dtype=np.int64)
    for parents, usable in zip(graph.parents, choices, strict=True):
        lowest = rows[:, list(parents)].max(axis=1, initial=0)
        rows = np.concatenate(
            [
                np.column_stack([rows[lowest <= tier], np.full((lowest <= tier).sum(), tier)])
                for tier in usable
            ]
        )
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
