"""The least shares with which a configuration still meets its latency SLO.

Circinus 4.2, algorithm 1, ParetoOptimize: "multi-dimensional binary search to tighten
resource usage until the latency SLO is violated". For every placement that meets the
SLO on full machines, the share of one used tier after the other is lowered as far as
it goes, in every order of the tiers: the tier that comes first saves most, so the
orders give plans of unlike demand. All operators of a tier have the same share.

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
from planner.placement import Placements
from planner.prediction import Prediction, Scene, predict

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

    Without a request rate latency falls with the share, and binary search finds the least one.
    With a rate a lower share can add a copy and so wait less: then what is found meets the SLO,
    but a lower share may as well.
    """
    full = predict(scene, placements, work, placements.full_steps)
    start = placements.take(np.flatnonzero(_meets(scene, full)))
    found, steps = [np.zeros(0, dtype=np.int64)], [start.full_steps[:0]]
    groups, which = np.unique(start.widths > 0, axis=0, return_inverse=True)
    for g, used in enumerate(groups):
        rows = np.flatnonzero(which.ravel() == g)
        for order in _orders(
            [int(t) for t in np.flatnonzero(used) if not _is_free(scene, int(t))]
        ):
            found.append(rows)
            steps.append(_lowered(scene, start.take(rows), work, order))
    return allocations(scene, start.take(np.concatenate(found)), work, np.concatenate(steps))


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


def _meets(scene: Scene, prediction: Prediction) -> npt.NDArray[np.bool_]:
    return np.asarray((prediction.latency_s <= scene.slo.latency_s) & prediction.fits)


def _is_free(scene: Scene, tier: int) -> bool:
    kind = scene.infrastructure.tiers[tier]
    return kind.dedicated and kind.price_usd_per_hour == 0


def _orders(tiers: list[int]) -> list[tuple[int, ...]]:
    if len(tiers) <= _ALL_ORDERS:
        return list(itertools.permutations(tiers))
    turns = [tuple(tiers[i:] + tiers[:i]) for i in range(len(tiers))]
    return turns + [turn[::-1] for turn in turns]


def _lowered(
    scene: Scene, placements: Placements, work: Work, order: tuple[int, ...]
) -> TierArray:  # (P, T)
    steps = placements.full_steps.copy()
    for tier in order:
        # Invariant: with `met` steps the SLO holds, with `missed` it does not (0: no share).
        met = steps[:, tier].copy()
        missed = np.zeros_like(met)
        while (apart := np.flatnonzero(met - missed > 1)).size:
            middle = (met[apart] + missed[apart]) // 2
            tried = steps[apart]
            tried[:, tier] = middle
            ok = _meets(scene, predict(scene, placements.take(apart), work, tried))
            met[apart] = np.where(ok, middle, met[apart])
            missed[apart] = np.where(ok, missed[apart], middle)
        steps[:, tier] = met
    return steps
