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
would be read from memory at every observation, for longer than all else takes. By the fewer
cells rows are of few kinds, 48 of 35 cells; so of many sums each is taken by kind first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from circinus.pipelines.model.configuration import IndexArray
from circinus.pipelines.model.profile import FloatArray

_MOST_CELLS = 2
"""Pairs of cells per candidate: where candidates are few of all settings, B is not a product."""
_AT_ONCE = 16  # sums: few enough for a cache, enough for a fast product


class KnobBasis:
    """B, which grows by a row for every candidate that is met."""

    def __init__(
        self,
        candidates: IndexArray,  # index of each knob's value, (m, knobs)
        tables: tuple[FloatArray, ...],  # R_k of every knob, those without a choice included
        decay: float,  # theta
    ) -> None:
        knobs = [k for k, table in enumerate(tables) if len(table) > 1]
        tables = tuple(tables[k] for k in knobs)
        values = candidates[:, knobs]
        first = 1 + np.cumsum([0, *map(len, tables)])
        self._own = values + first[:-1]  # rows of B by candidate and knob
        self._decay = decay
        self._met: dict[int, int] = {}
        sides = [_Side(cell, values, tables, first, side) for cell, side in _split(values)]
        narrow, self._wide = sorted(sides, key=lambda side: len(side.firsts))
        fixed, cells = int(first[-1]), len(narrow.firsts)
        for i, candidate in enumerate(narrow.firsts):
            narrow.meet(fixed + i, self._own[candidate], decay)
        self._kinds, kind = np.unique(
            narrow.rows[: fixed + cells], axis=0, return_inverse=True
        )  # (kinds, cells)
        self._kind = kind.ravel()[:fixed].tolist()  # of each row of B
        self._kind_met = kind.ravel()[fixed:][narrow.cell]  # of the row of each candidate
        self._cell = narrow.cell

    def __len__(self) -> int:
        """Return how many rows B has."""
        return len(self._kind)

    def parts(self, candidate: int) -> IndexArray:  # (K + 2,)
        """Return the rows of B that a candidate's covariances are made of, in the order of a."""
        if candidate not in self._met:
            self._met[candidate] = len(self)
            self._wide.meet(len(self), self._own[candidate], self._decay)
            self._kind.append(int(self._kind_met[candidate]))
        return np.array([*self._own[candidate], self._met[candidate], 0])

    def at(self, candidates: Sequence[int]) -> FloatArray:  # (rows of B, n)
        """Return columns of B."""
        narrow = self._kinds[self._kind][:, self._cell[candidates]]
        return np.asarray(narrow * self._wide.rows[: len(self), self._wide.cell[candidates]])

    def combined(self, weights: FloatArray) -> FloatArray:  # (m,)
        """Return the sum of the rows of B, weights of shape (rows of B,)."""
        weighted = self._kinds[self._kind] * weights[:, None]
        pairs = weighted.T @ self._wide.rows[: len(self)]
        return np.asarray(pairs[self._cell, self._wide.cell])

    def squared(self, weights: FloatArray) -> FloatArray:  # (m,)
        """Return the sum of the squares of several such sums, weights of shape (k, rows of B)."""
        kind = np.array(self._kind)
        order = np.argsort(kind, kind="stable")
        ends = np.searchsorted(kind[order], np.arange(len(self._kinds) + 1)).tolist()
        weights, wide, narrow = weights[:, order], self._wide.rows[order], self._kinds.T
        by_kind = np.empty((len(self._kinds), _AT_ONCE, wide.shape[1]))
        total = np.zeros((len(narrow), wide.shape[1]))
        for start in range(0, len(weights), _AT_ONCE):
            some = weights[start : start + _AT_ONCE]
            sums = by_kind[:, : len(some)]
            for one, (first, last) in zip(sums, pairwise(ends), strict=True):
                np.matmul(some[:, first:last], wide[first:last], out=one)
            pairs = (narrow @ sums.reshape(len(sums), -1)).reshape(len(narrow), len(some), -1)
            total += np.einsum("nkw,nkw->nw", pairs, pairs)
        return np.asarray(total[self._cell, self._wide.cell])


class _Side:
    """What rows of B are by some of the knobs."""

    def __init__(
        self,
        cell: IndexArray,
        values: IndexArray,
        tables: tuple[FloatArray, ...],
        first: IndexArray,
        knobs: range,
    ) -> None:
        self.cell = cell  # setting of these knobs, of each candidate, (m,)
        self.firsts = np.unique(cell, return_index=True)[1]  # a candidate of each cell, (cells,)
        # Those of B by cell; beyond those in use there is room for more.
        self.rows: FloatArray = np.ones((2 * int(first[-1]), len(self.firsts)))
        self._knobs = knobs
        for k in knobs:
            self.rows[first[k] : first[k + 1]] = tables[k][:, values[self.firsts, k]]

    def meet(self, row: int, alike: IndexArray, decay: float) -> None:
        """Write the exponential of a candidate, from its rows of the tables, to a row of B."""
        if row == len(self.rows):
            grown = np.empty((2 * row, self.rows.shape[1]))
            grown[:row] = self.rows
            self.rows = grown
        own = alike[self._knobs.start : self._knobs.stop]
        self.rows[row] = np.exp(-decay * (len(own) - self.rows[own].sum(axis=0)))


def _split(values: IndexArray) -> list[tuple[IndexArray, range]]:
    """Return the fewest cells of the first knobs and of the others, and which these are."""
    m, k = values.shape
    left, right = _cells(values.T), _cells(values.T[::-1])[::-1]
    counts = [(int(a.max()) + 1, int(b.max()) + 1) for a, b in zip(left, right, strict=True)]
    few = [j for j, (a, b) in enumerate(counts) if a * b <= _MOST_CELLS * m]
    best = min(few, key=lambda j: sum(counts[j]))
    return [(left[best], range(best)), (right[best], range(best, k))]


def _cells(columns: IndexArray) -> list[IndexArray]:
    """Return the cell, from 0, of each candidate by its first 0, 1, 2 ... knobs."""
    cells = [np.zeros(columns.shape[1], dtype=np.int64)]
    for values in columns:
        both = cells[-1] * (values.max() + 1) + values
        cells.append(np.unique(both, return_inverse=True)[1])
    return cells
