"""The rectangular assignment problem, solved by shortest augmenting paths.

| symbol | meaning | shape |
| --- | --- | --- |
| m, n | rows, columns, m <= n | |
| c | cost | (m, n) |
| u, v | dual potentials: c_ij - u_i - v_j >= 0, = 0 on matched pairs | (m + 1,), (n + 1,) |

The Hungarian method in the form of Jonker and Volgenant (Kairos' reference 51): a row after the
other is matched along a path of least reduced cost, O(m^2 n).
"""

from __future__ import annotations

from math import inf

import numpy as np

from scheduler.dispatch.kernel import compiled_part
from scheduler.dispatch.policy import FloatArray, IntArray


@compiled_part
def assigned_columns(  # noqa: C901 - three nested loops are the method
    cost: FloatArray,  # (m, n)
) -> IntArray:  # (m,)
    """Give the column of each row in an assignment of all rows of least total cost.

    Args:
        cost: Finite, with no more rows than columns.
    """
    m, n = cost.shape
    u = np.zeros(m + 1)
    v = np.zeros(n + 1)
    row_of = np.zeros(n + 1, dtype=np.int64)  # 1-based; row_of[0] is the row being placed
    came_from = np.zeros(n + 1, dtype=np.int64)
    least = np.empty(n + 1)
    seen = np.empty(n + 1, dtype=np.bool_)
    for row in range(1, m + 1):
        row_of[0] = row
        at = 0
        least[:] = inf
        seen[:] = False
        while row_of[at] != 0:
            seen[at] = True
            i = row_of[at]
            delta = inf
            step_to = 0
            for j in range(1, n + 1):
                if seen[j]:
                    continue
                reduced = cost[i - 1, j - 1] - u[i] - v[j]
                if reduced < least[j]:
                    least[j] = reduced
                    came_from[j] = at
                if least[j] < delta:
                    delta = least[j]
                    step_to = j
            for j in range(n + 1):
                if seen[j]:
                    u[row_of[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            at = step_to
        while at != 0:
            row_of[at] = row_of[came_from[at]]
            at = came_from[at]
    columns = np.empty(m, dtype=np.int64)
    for j in range(1, n + 1):
        if row_of[j] > 0:
            columns[row_of[j] - 1] = j - 1
    return columns
