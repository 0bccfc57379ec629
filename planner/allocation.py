"""The least shares with which a configuration still meets its latency SLO.

Circinus 4.2, algorithm 1, ParetoOptimize: "multi-dimensional binary search to tighten
resource usage until the latency SLO is violated". For every placement that meets the
SLO on full machines all share vectors are found that nothing can be taken from
(`planner.minimal_shares`). Where these are too many to try, the share of one used tier
after the other is lowered as far as it goes, in every order of the tiers: the tier that
comes first saves most, so the orders give plans of unlike demand. All operators of a
tier have the same share.

A dedicated tier without price keeps its full share: nobody else could have what is
left over, and slack is worth more on tiers that cost.

| symbol | meaning |
| --- | --- |
| P, O, T | placements, operators, tiers |
| A | allocations found |
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.infrastructure import SHARE_STEP
from pipelines.latency import TierArray, Work
from pipelines.profile import FloatArray
from planner.minimal_shares import MOST_ROWS, combinations, grid_rows, lowered, minimal
from planner.placement import Placements
from planner.prediction import Scene, meets, predict

_ALL_ORDERS = 4
"""Up to so many tiers are tried in all orders; more in every rotation, both ways round."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Allocations:
    """Deployments with what they ask and give.

    Attributes:
        placements: Where operators are, A of them.
        steps: Share per tier in steps of `SHARE_STEP`, shape (A, T).
        demand: Machines asked of each tier, replicas included, shape (A, T).
        cost_usd_per_hour: Shape (A,).
        latency_s: In the SLO's statistic, shape (A,).
        fits: Whether the machines hold all copies, shape (A,).
    """

    placements: Placements
    steps: TierArray
    demand: FloatArray
    cost_usd_per_hour: FloatArray
    latency_s: FloatArray
    fits: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        """Give A."""
        return len(self.steps)

    def take(self, rows: npt.NDArray[np.int64]) -> Allocations:
        """Give the allocations of those rows, in that order."""
        return Allocations(
            placements=self.placements.take(rows),
            steps=self.steps[rows],
            demand=self.demand[rows],
            cost_usd_per_hour=self.cost_usd_per_hour[rows],
            latency_s=self.latency_s[rows],
            fits=self.fits[rows],
        )


def tightened(scene: Scene, placements: Placements, work: Work) -> Allocations:
    """Give the tightest allocations of every placement that meets the SLO at full shares.

    With a rate a placement that does not meet it at full shares may meet it in more copies of
    less: then it is not found.
    """
    full = predict(scene, placements, work, placements.full_steps)
    start = placements.take(np.flatnonzero(meets(scene, full)))
    found, steps = [np.zeros(0, dtype=np.int64)], [start.full_steps[:0]]
    groups, which = np.unique(start.widths > 0, axis=0, return_inverse=True)
    for g, used in enumerate(groups):
        rows = np.flatnonzero(which.ravel() == g)
        tiers = [int(t) for t in np.flatnonzero(used) if not _is_free(scene, int(t))]
        of, lowest = _tightest(scene, start.take(rows), work, tiers)
        found.append(rows[of])
        steps.append(lowest)
    return allocations(scene, start.take(np.concatenate(found)), work, np.concatenate(steps))


def _tightest(
    scene: Scene, placements: Placements, work: Work, tiers: list[int]
) -> tuple[TierArray, TierArray]:  # (A,), (A, T)
    if not tiers:
        return np.arange(len(placements)), placements.full_steps
    rated = scene.query.request_rate_per_s or scene.slo.throughput_per_s
    if rated is not None:
        found = combinations(scene, placements, work, tiers)
        return _cornered(scene, placements, work, tiers) if found is None else found
    if grid_rows(len(placements), len(tiers)) > MOST_ROWS:
        return _cornered(scene, placements, work, tiers)
    return minimal(scene, placements, work, tiers)


def allocations(scene: Scene, placements: Placements, work: Work, steps: TierArray) -> Allocations:
    """Give given deployments with what they ask and give; equal ones once."""
    both = np.concatenate([placements.tiers, steps], axis=1)
    _, once = np.unique(both, axis=0, return_index=True)
    placements, steps = placements.take(once), steps[once]
    prediction = predict(scene, placements, work, steps)
    demand = np.round(steps * SHARE_STEP * placements.widths * prediction.replicas, 9)
    price = np.array([tier.price_usd_per_hour for tier in scene.infrastructure.tiers])
    return Allocations(
        placements=placements,
        steps=steps,
        demand=demand,
        cost_usd_per_hour=demand @ price,
        latency_s=prediction.latency_s,
        fits=prediction.fits,
    )


def _is_free(scene: Scene, tier: int) -> bool:
    kind = scene.infrastructure.tiers[tier]
    return kind.dedicated and kind.price_usd_per_hour == 0


def _orders(tiers: list[int]) -> list[tuple[int, ...]]:
    if len(tiers) <= _ALL_ORDERS:
        return list(itertools.permutations(tiers))
    turns = [tuple(tiers[i:] + tiers[:i]) for i in range(len(tiers))]
    return turns + [turn[::-1] for turn in turns]


def _cornered(
    scene: Scene, placements: Placements, work: Work, tiers: list[int]
) -> tuple[TierArray, TierArray]:  # (A,), (A, T)
    """Give what lowering one tier after the other finds, in every order of them."""
    rows = np.arange(len(placements))
    found = []
    for order in _orders(tiers):
        steps = placements.full_steps
        for tier in order:
            steps = lowered(scene, placements, work, steps, tier)
        found.append(steps)
    return np.tile(rows, len(found)), np.concatenate(found)
