"""How much boxes (x, y, w, h) have in common."""

from __future__ import annotations

import numpy as np

from pipelines.catalog.tracking.handed_over import FloatArray


def iou(
    a: FloatArray,  # (n, 4)
    b: FloatArray,  # (m, 4)
) -> FloatArray:  # (n, m)
    """Intersection over union, in [0, 1]."""
    common, union, _ = _areas(a, b)
    return common / union


def generalised_iou(
    a: FloatArray,  # (n, 4)
    b: FloatArray,  # (m, 4)
) -> FloatArray:  # (n, m)
    """The IoU less the share of the box around both that is in neither, in (-1, 1].

    Below 0 it tells near boxes from far ones, where the IoU is 0 for both (Rezatofighi et al.
    2019, algorithm 1).
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
