"""Which row goes with which column, at what cost."""

from __future__ import annotations

import numpy as np

from pipelines.catalog.tracking.handed_over import FloatArray

Pairs = list[tuple[int, int]]
"""(row, column), no row or column twice."""


def greedy_pairs(
    costs: FloatArray,  # (n, m)
    limit: float,
) -> Pairs:
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


def best_pairs(
    costs: FloatArray,  # (n, m)
    limit: float,
) -> Pairs:
    """The pairs of least cost in all, where going unpaired costs the limit for each row."""
    from scipy.optimize import linear_sum_assignment  # slow to import: only where it is used

    rows, columns = linear_sum_assignment(np.minimum(costs, limit))
    chosen = zip(rows.tolist(), columns.tolist(), strict=True)
    return [(row, column) for row, column in chosen if costs[row, column] <= limit]
