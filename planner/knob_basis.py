"""Covariances of knob values with all candidates as sums of a few rows that do not change.

| symbol | meaning | shape |
| --- | --- | --- |
| m, K | candidates, knobs with a choice | |
| B | ones; R_k(v, x_k) of all k and values v; exp(-theta h(x', x)) of all x' met | (., m) |
| cell | one setting of the first knobs, or of the others | |

k(x', x) = sum_k a_k R_k(x'_k, x_k) + b exp(-theta h(x', x)) + c is a sum of K + 2 rows of B, those
of x', and what changes with the hyper-parameters is how much of each. So whatever is linear in
covariances is one product with B, however often candidates are observed, and no exponential
is taken twice.

A row of B is itself a product, of what it is by the first knobs and by the others. Where
candidates are all settings, 7,000 columns are 35 times 200, and B is never written out: that
would be read from memory at every observation, for longer than all else takes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray

_MOST_CELLS = 2
"""Pairs of cells per candidate: where candidates are few of all settings, B is not a product."""
_AT_ONCE = 24  # sums: few enough for a cache, enough for a fast product


class KnobBasis:
    """B, which grows by a row for every candidate that is met.

    Args:
        candidates: Index of each knob's value, shape (m, knobs).
        tables: R_k of every knob, those without a choice included.
        decay: theta.
    """

    def __init__(
        self, candidates: IndexArray, tables: tuple[FloatArray, ...], decay: float
    ) -> None:
        knobs = [k for k, table in enumerate(tables) if len(table) > 1]
        tables = tuple(tables[k] for k in knobs)
        values = candidates[:, knobs]
        first = 1 + np.cumsum([0, *map(len, tables)])
        self._own = values + first[:-1]  # rows of B by candidate and knob
        self._decay = decay
        self._count = int(first[-1])
        self._met: dict[int, int] = {}
        split = _split(values)
        self._sides = tuple(
            _Side(values, tables, first, side) for side in (range(split), range(split, len(knobs)))
        )
        narrow, wide = self._sides = tuple(sorted(self._sides, key=lambda side: side.cells))
        self._pair = narrow.cell * wide.cells + wide.cell

    def __len__(self) -> int:
        """Give how many rows B has."""
        return self._count

    def parts(self, candidate: int) -> IndexArray:  # (K + 2,)
        """Give the rows of B that a candidate's covariances are made of, in the order of a."""
        if candidate not in self._met:
            for side in self._sides:
                side.meet(self._count, self._own[candidate], self._decay)
            self._met[candidate] = self._count
            self._count += 1
        return np.array([*self._own[candidate], self._met[candidate], 0])

    def at(self, candidates: Sequence[int]) -> FloatArray:  # (rows of B, n)
        """Give columns of B."""
        narrow, wide = (side.rows[: self._count, side.cell[candidates]] for side in self._sides)
        return np.asarray(narrow * wide)

    def combined(self, weights: FloatArray) -> FloatArray:  # (m,)
        """Give the sum of the rows of B, weights of shape (rows of B,)."""
        return np.asarray(self._over_pairs(weights[None, :])[0, self._pair])

    def squared(self, weights: FloatArray) -> FloatArray:  # (m,)
        """Give the sum of the squares of several such sums, weights of shape (k, rows of B)."""
        total = np.zeros(math.prod(side.cells for side in self._sides))
        for start in range(0, len(weights), _AT_ONCE):
            some = weights[start : start + _AT_ONCE]
            # Of a triangular matrix the first rows have few columns.
            last = np.flatnonzero(np.abs(some).max(axis=0)).max(initial=-1)
            sums = self._over_pairs(some[:, : last + 1])
            total += np.einsum("kp,kp->p", sums, sums)
        return np.asarray(total[self._pair])

    def _over_pairs(self, weights: FloatArray) -> FloatArray:  # (k, pairs of cells)
        k, rows = weights.shape
        narrow, wide = (side.rows[:rows] for side in self._sides)
        weighted = weights[:, None, :] * np.ascontiguousarray(narrow.T)
        return np.asarray((weighted.reshape(-1, rows) @ wide).reshape(k, -1))


class _Side:
    """What rows of B are by some of the knobs.

    Attributes:
        cell: Setting of these knobs, of each candidate, shape (m,).
        cells: How many settings there are.
        rows: Those of B by cell; beyond those in use there is room for more.
    """

    def __init__(
        self,
        values: IndexArray,
        tables: tuple[FloatArray, ...],
        first: IndexArray,
        knobs: range,
    ) -> None:
        _, firsts, self.cell = np.unique(
            _codes(values, knobs), return_index=True, return_inverse=True
        )
        self.cells = len(firsts)
        self.rows: FloatArray = np.ones((2 * int(first[-1]), self.cells))
        self._knobs = knobs
        for k in knobs:
            self.rows[first[k] : first[k + 1]] = tables[k][:, values[firsts, k]]

    def meet(self, row: int, alike: IndexArray, decay: float) -> None:
        """Write the exponential of a candidate, from its rows of the tables, to a row of B."""
        if row == len(self.rows):
            self.rows = np.concatenate([self.rows, np.ones_like(self.rows)])
        own = alike[self._knobs.start : self._knobs.stop]
        self.rows[row] = np.exp(-decay * (len(own) - self.rows[own].sum(axis=0)))


def _codes(values: IndexArray, knobs: range) -> IndexArray:  # (m,)
    """Give numbers that are equal where all these knobs are."""
    codes = np.zeros(len(values), dtype=np.int64)
    for k in knobs:
        # Numbered anew each time: products of many knobs' values may not fit.
        codes = np.unique(codes, return_inverse=True)[1] * (values[:, k].max() + 1) + values[:, k]
    return codes


def _split(values: IndexArray) -> int:
    """Give how many of the knobs come first, so that there are fewest cells on both sides."""
    m, k = values.shape
    counts = [
        [len(np.unique(_codes(values, side))) for side in (range(j), range(j, k))]
        for j in range(k + 1)
    ]
    few = [j for j, (left, right) in enumerate(counts) if left * right <= _MOST_CELLS * m]
    return min(few, key=lambda j: sum(counts[j]))
