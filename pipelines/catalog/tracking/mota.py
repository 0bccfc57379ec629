"""The metric MOTA: misses, false boxes and changes of identity, over the true boxes.

Bernardin and Stiefelhagen 2008, "Evaluating multiple object tracking performance: the CLEAR MOT
metrics", section 2.1.

Notation: of frame t, `m_t` true boxes that no box matches, `fp_t` boxes that match none, `mme_t`
true identities whose box has another identity than where they were matched last, `g_t` true boxes;
`MOTA = 1 - sum(m_t + fp_t + mme_t) / sum(g_t)`. Pairs of the frame before stay, as long as they
overlap; the others are the most that overlap with an IoU of at least 0.5.
"""

from __future__ import annotations

import numpy as np

from circinus.pipelines.catalog.tracking.footage import BoxArray, FloatArray
from circinus.pipelines.catalog.tracking.tracking import HIT, Pairs, best_pairs, iou

_STAYS, _NEW, _NEVER = -10.0, 1e-6, 2.0
"""Costs of a pair of the frame before, another one, and one without overlap; a row that is left
costs 1. So no pair that stays is given up for others."""


def mota(predicted: BoxArray, true: BoxArray) -> float:  # (n, 6): frame, identity, x, y, w, h
    """Return the MOTA, at most 1; below 0 where there are more errors than true boxes."""
    if not len(true):
        return float(not len(predicted))
    latest: dict[int, int] = {}  # true identity -> the identity that matched it last
    errors = 0
    for time in np.union1d(true[:, 0], predicted[:, 0]):
        here, there = true[true[:, 0] == time], predicted[predicted[:, 0] == time]
        pairs = _matched(here, there, latest)
        errors += len(here) + len(there) - 2 * len(pairs)
        for row, column in pairs:
            identity, other = int(here[row, 1]), int(there[column, 1])
            errors += latest.get(identity, other) != other
            latest[identity] = other
    return 1.0 - errors / len(true)


def _matched(here: BoxArray, there: BoxArray, latest: dict[int, int]) -> Pairs:
    """Return pairs of rows that overlap: those that were pairs, then as many as can be."""
    if not len(here) or not len(there):
        return []
    overlap = iou(here[:, 2:].astype(np.float64), there[:, 2:].astype(np.float64))
    return best_pairs(_costs(overlap, here, there, latest), limit=1.0)


def _costs(
    overlap: FloatArray, here: BoxArray, there: BoxArray, latest: dict[int, int]
) -> FloatArray:
    """Return the cost of each pair, see `_STAYS`; new ones that overlap more cost less."""
    was = np.array([latest.get(int(identity), -1) for identity in here[:, 1]])
    stays = was[:, None] == there[None, :, 1]
    costs = np.where(stays, _STAYS, _NEW * (2 - overlap))
    return np.where(overlap >= HIT, costs, _NEVER)
