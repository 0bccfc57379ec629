"""Which of many options are worth keeping: none beaten by another in everything."""

from __future__ import annotations

import numpy as np

from circinus.pipelines.model.profile import FloatArray, IntArray


def undominated(objectives: FloatArray) -> IntArray:  # (m, k) -> (front,)
    """Return the rows that no other row beats, ascending; of equal rows the first.

    A row beats another when it is at most as large everywhere and smaller somewhere.
    """
    order = np.lexsort(objectives.T[::-1])  # who beats a row comes before it
    rows = objectives[order]
    front = 0
    members = np.zeros(len(rows), dtype=np.int64)
    for i, row in enumerate(rows):
        if not (rows[members[:front]] <= row).all(axis=1).any():
            members[front] = i
            front += 1
    return np.asarray(np.sort(order[members[:front]]))


def diverse(objectives: FloatArray, most: int, extremes: int) -> IntArray:  # (m, k) -> (<= most,)
    """Return at most `most` rows that span the others, ascending.

    First the smallest row of each of the first `extremes` objectives, in their order; then
    always the row farthest from those taken, objectives scaled to their ranges.
    """
    if len(objectives) <= most:
        return np.arange(len(objectives))
    spread = np.ptp(objectives, axis=0)
    scaled = (objectives - objectives.min(axis=0)) / np.where(spread > 0, spread, 1.0)
    taken: list[int] = []
    for column in range(extremes):
        # Ties go to the row that is smallest in the objectives before and after, in order.
        keys = [column, *(c for c in range(objectives.shape[1]) if c != column)]
        first = int(np.lexsort(objectives[:, keys[::-1]].T)[0])
        if first not in taken and len(taken) < most:
            taken.append(first)
    distance = np.min([_distance(scaled, row) for row in taken], axis=0)
    while len(taken) < most:
        distance[taken] = -1.0  # equal rows are at distance 0 too
        farthest = int(np.argmax(distance))
        taken.append(farthest)
        distance = np.minimum(distance, _distance(scaled, farthest))
    return np.array(sorted(taken), dtype=np.int64)


def _distance(scaled: FloatArray, row: int) -> FloatArray:
    return np.asarray(np.square(scaled - scaled[row]).sum(axis=1))
