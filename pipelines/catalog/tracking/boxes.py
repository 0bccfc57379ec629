"""How much boxes (x, y, w, h) have in common, which go together at what cost, and the metric IDF1.

Ristani et al. 2016, "Performance measures and a data set for multi-target, multi-camera tracking",
section 3.

Notation: `N[i, j]` frames in which true identity i and found identity j overlap with an IoU of at
least 0.5; `IDTP` the most frames that pairs of identities, each used once, agree in; then
`IDF1 = 2 IDTP / (true boxes + found boxes)`. The paper's least false positives and negatives are
the most IDTP, as each frame more that agrees takes one of either away.
"""

from __future__ import annotations

import numpy as np

from circinus.pipelines.catalog.tracking.footage import BoxArray, FloatArray


def iou(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, 4), (m, 4) -> (n, m)
    """Intersection over union, in [0, 1]."""
    common, union, _ = _areas(a, b)
    return common / union


def generalised_iou(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, 4), (m, 4) -> (n, m)
    """The IoU less the share of the box around both that is in neither, in (-1, 1].

    Below 0 it tells near boxes from far, both of IoU 0 (Rezatofighi et al. 2019, algorithm 1).
    """
    common, union, around = _areas(a, b)
    return common / union - (around - union) / around


def _areas(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Areas of the intersection, the union and the smallest box around both, (n, m) each."""
    low_a, low_b = a[:, None, :2], b[None, :, :2]
    high_a, high_b = low_a + a[:, None, 2:], low_b + b[None, :, 2:]
    sides = np.minimum(high_a, high_b) - np.maximum(low_a, low_b)
    common = np.maximum(sides, 0).prod(axis=2)
    union = a[:, 2:].prod(axis=1)[:, None] + b[:, 2:].prod(axis=1)[None] - common
    around = (np.maximum(high_a, high_b) - np.minimum(low_a, low_b)).prod(axis=2)
    return common, union, around


Pairs = list[tuple[int, int]]  # (row, column), no row or column twice


def greedy_pairs(costs: FloatArray, limit: float) -> Pairs:  # (n, m)
    """The cheapest pair first, then the cheapest of what it leaves; none dearer than the limit."""
    rows, columns = set[int](), set[int]()
    pairs: Pairs = []
    for place in np.argsort(costs, axis=None, kind="stable").tolist():
        row, column = divmod(place, costs.shape[1])
        if costs[row, column] > limit:
            break
        if row not in rows and column not in columns:
            pairs.append((row, column))
            rows.add(row)
            columns.add(column)
    return pairs


def best_pairs(costs: FloatArray, limit: float) -> Pairs:  # (n, m)
    """The pairs of least cost in all, where going unpaired costs the limit for each row."""
    from scipy.optimize import linear_sum_assignment  # slow to import: only where it is used

    rows, columns = linear_sum_assignment(np.minimum(costs, limit))
    chosen = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in chosen if costs[row, column] <= limit]


HIT = 0.5  # IoU from which on a box counts as found


def idf1(found: BoxArray, true: BoxArray) -> float:  # (n, 6): frame, identity, x, y, w, h
    """Share of boxes found under the right identity, in [0, 1]; 1 where there are none at all."""
    from scipy.optimize import linear_sum_assignment  # slow to import: only where it is used

    if not len(true) or not len(found):
        return float(len(true) == len(found))
    N = _agreeing_frames(found, true)
    IDTP = N[linear_sum_assignment(N, maximize=True)].sum()
    return float(2 * IDTP / (len(true) + len(found)))


def _agreeing_frames(found: BoxArray, true: BoxArray) -> FloatArray:
    true_ids, i = np.unique(true[:, 1], return_inverse=True)
    found_ids, j = np.unique(found[:, 1], return_inverse=True)
    N = np.zeros((len(true_ids), len(found_ids)))
    for time in np.unique(true[:, 0]):
        here, there = true[:, 0] == time, found[:, 0] == time
        hits = iou(true[here, 2:].astype(np.float64), found[there, 2:].astype(np.float64)) >= HIT
        N[np.ix_(i[here], j[there])] += hits
    return N
