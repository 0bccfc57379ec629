"""All share vectors of a placement that meet the latency SLO and none of which is too large.

Circinus 4.2 lowers one tier's share after the other, each as far as it goes; where two
tiers could give up a step each, that finds the two corners and nothing between, and the
cheapest deployment is often between. Here every vector is found from which no tier can
take a step, over a grid of 20 steps per tier.

| symbol | meaning |
| --- | --- |
| P, T | placements, tiers |
| k_t | share of tier t in steps of `SHARE_STEP` |
| c_t(k) | copies that tier t needs at that share |

One request at a time: latency falls with every k_t, so for given shares of all tiers but
one the least share of that one is found by bisection. A vector is minimal when it is
feasible and neither it nor any vector with one step less elsewhere allows less.

With a request rate or a throughput the demand c_t(k) k of a tier does not fall with k: a
share may be lowered into more copies. Then of each tier the steps count that no larger
step matches in demand and waiting; all combinations of these are tried.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pipelines.latency import TierArray, Work
from planner.pareto import undominated
from planner.placement import FULL_STEPS, Placements
from planner.prediction import Scene, effective_latencies, meets, predict

MOST_ROWS = 20_000
"""Deployments tried at once; where exactness takes more, the caller lowers tier by tier."""

BoolArray = npt.NDArray[np.bool_]


def grid_rows(count: int, tiers: int) -> int:
    """Give how many deployments are tried for `count` placements on as many priced tiers."""
    return int(count * FULL_STEPS ** max(tiers - 1, 0))


def lowered(
    scene: Scene, placements: Placements, work: Work, steps: TierArray, tier: int
) -> TierArray:  # (P, T)
    """Give steps that meet the SLO with those of one tier lowered as far as it goes."""
    steps = steps.copy()
    # Invariant: with `met` steps the SLO holds, with `missed` it does not (0: no share).
    met = steps[:, tier].copy()
    missed = np.zeros_like(met)
    while (apart := np.flatnonzero(met - missed > 1)).size:
        middle = (met[apart] + missed[apart]) // 2
        tried = steps[apart]
        tried[:, tier] = middle
        ok = _feasible(scene, placements.take(apart), work, tried)
        met[apart] = np.where(ok, middle, met[apart])
        missed[apart] = np.where(ok, missed[apart], middle)
    steps[:, tier] = met
    return steps


def _feasible(
    scene: Scene, placements: Placements, work: Work, steps: TierArray
) -> BoolArray:  # (P,)
    found = effective_latencies(scene, placements, work, steps)
    return np.asarray(found <= scene.slo.latency_s)


def minimal(
    scene: Scene, placements: Placements, work: Work, tiers: list[int]
) -> tuple[TierArray, TierArray]:  # (A,), (A, T)
    """Give all minimal deployments for one request at a time: rows of placements, and steps.

    Args:
        scene: Without request rate and throughput.
        placements: That meet the SLO at full shares, all using the same tiers.
        work: Of the configuration.
        tiers: Those to lower, at least one; the others keep their full share.
    """
    *gridded, last = tiers
    full = placements.full_steps
    least = (
        np.stack(
            [lowered(scene, placements, work, full, tier)[:, tier] for tier in gridded], axis=1
        )
        if gridded
        else np.zeros((len(placements), 0), dtype=np.int64)
    )
    shape = (len(placements), *[FULL_STEPS] * len(gridded))
    needed = np.full(shape, FULL_STEPS + 1, dtype=np.int64)  # of the last tier; too many: never
    cells = np.indices(shape).reshape(len(shape), -1).T
    inside = (least[cells[:, 0]] <= cells[:, 1:] + 1) & (
        cells[:, 1:] + 1 <= full[cells[:, 0]][:, gridded]
    )
    cells = cells[inside.all(axis=1)]
    steps = full[cells[:, 0]].copy()
    steps[:, gridded] = cells[:, 1:] + 1
    good = _feasible(scene, placements.take(cells[:, 0]), work, steps)
    cells, steps = cells[good], steps[good]
    steps = lowered(scene, placements.take(cells[:, 0]), work, steps, last)
    needed[tuple(cells.T)] = steps[:, last]
    kept = np.ones(len(cells), dtype=np.bool_)
    for axis in range(1, len(shape)):
        inside = cells[:, axis] > 0
        before = cells[inside].copy()
        before[:, axis] -= 1
        kept[inside] &= needed[tuple(before.T)] > steps[inside, last]
    return cells[kept, 0], steps[kept]


def combinations(
    scene: Scene, placements: Placements, work: Work, tiers: list[int]
) -> tuple[TierArray, TierArray] | None:  # (A,), (A, T)
    """Give the least demanding deployments for a rate: rows of placements, and steps.

    Of deployments with equal demand the one with the fewest copies, then the fastest. None: there
    are more than `MOST_ROWS` to try.
    """
    worthwhile = _worthwhile(scene, placements, work, tiers)
    if worthwhile.sum(axis=2).prod(axis=1).sum() > MOST_ROWS:
        return None
    rows, steps = _tried(placements, tiers, worthwhile)
    if not len(rows):
        return rows, steps
    prediction = predict(scene, placements.take(rows), work, steps)
    good = np.flatnonzero(meets(scene, prediction))
    demand = np.round(steps * placements.widths[rows] * prediction.replicas, 9)[:, tiers]
    copies = prediction.replicas.sum(axis=1)
    # Of equal rows the first is kept.
    good = good[np.lexsort((prediction.latency_s[good], copies[good]))]
    kept: list[int] = []
    for row in np.unique(rows):
        mine = good[rows[good] == row]
        kept += mine[undominated(demand[mine].astype(np.float64))].tolist() if len(mine) else []
    chosen = np.array(kept, dtype=np.int64)
    return rows[chosen], steps[chosen]


def _tried(
    placements: Placements, tiers: list[int], worthwhile: BoolArray
) -> tuple[TierArray, TierArray]:
    found = list(_products(placements, tiers, worthwhile))
    rows = np.array([row for row, _ in found], dtype=np.int64)
    steps = placements.full_steps[rows].copy()
    if len(rows):
        steps[:, tiers] = np.array([combination for _, combination in found])
    return rows, steps


def _products(
    placements: Placements, tiers: list[int], worthwhile: BoolArray
) -> Iterator[tuple[int, tuple[int, ...]]]:
    for row in range(len(placements)):
        options = [(np.flatnonzero(worthwhile[row, i]) + 1).tolist() for i in range(len(tiers))]
        yield from ((row, combination) for combination in itertools.product(*options))


def _worthwhile(
    scene: Scene, placements: Placements, work: Work, tiers: list[int]
) -> BoolArray:  # (P, tiers, FULL_STEPS)
    """Give the steps of each tier that no larger step matches in demand and waiting.

    What a tier asks and how long requests wait there does not depend on the shares of others.
    """
    full = placements.full_steps
    shape = (len(placements), len(tiers), FULL_STEPS)
    demand, wait = np.full(shape, np.inf), np.full(shape, np.inf)
    for k in range(1, FULL_STEPS + 1):
        prediction = predict(scene, placements, work, np.minimum(full, k))
        for i, tier in enumerate(tiers):
            possible = k <= full[:, tier]
            asked = k * placements.widths[:, tier] * prediction.replicas[:, tier]
            demand[:, i, k - 1] = np.where(possible, asked, np.inf)
            wait[:, i, k - 1] = np.where(possible, prediction.tier_wait_s[:, tier], np.inf)
    kept = np.isfinite(demand)
    for k in range(FULL_STEPS - 1):
        later = slice(k + 1, None)
        matched = (demand[:, :, later] <= demand[:, :, [k]]) & (
            wait[:, :, later] <= wait[:, :, [k]]
        )
        kept[:, :, k] &= ~matched.any(axis=2)
    return np.asarray(kept)
