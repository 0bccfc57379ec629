"""The metric: IDF1.

Ristani et al. 2016, "Performance measures and a data set for multi-target, multi-camera tracking",
section 3.

Notation: `N[i, j]` frames in which true identity i and found identity j overlap with an IoU of at
least 0.5; `IDTP` the most frames that pairs of identities, each used once, agree in; then
`IDF1 = 2 IDTP / (true boxes + found boxes)`. The paper's least false positives and negatives are
the most IDTP, as each frame more that agrees takes one of either away.
"""

from __future__ import annotations

import numpy as np

from pipelines.catalog.tracking.handed_over import BoxArray, FloatArray
from pipelines.catalog.tracking.overlap import iou

HIT = 0.5
"""IoU from which on a box counts as found."""


def idf1(
    found: BoxArray,  # (n, 6): frame, identity, x, y, w, h
    true: BoxArray,  # (m, 6)
) -> float:
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
