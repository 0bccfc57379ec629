"""Covariances of knob values with all candidates as sums of a few rows that do not change.

| symbol | meaning | shape |
| --- | --- | --- |
| m, K | candidates, knobs with a choice | |
| B | ones; R_k(v, x_k) of all k and values v; exp(-theta h(x', x)) of all x' met | (., m) |

k(x', x) = sum_k a_k R_k(x'_k, x_k) + b exp(-theta h(x', x)) + c is a sum of K + 2 rows of B, those
of x', and what changes with the hyper-parameters is how much of each. So whatever is linear in
covariances is one product with B, however often candidates are observed, and no exponential
is taken twice.
"""

from __future__ import annotations

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray


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
        self._decay = decay
        first = 1 + np.cumsum([0, *(len(tables[k]) for k in knobs)])
        self._own = candidates[:, knobs] + first[:-1]  # rows of B by candidate and knob
        self._count = int(first[-1])
        values = [tables[k][:, candidates[:, k]] for k in knobs]
        self._rows = np.concatenate([np.ones((1, len(candidates))), *values])
        self._met: dict[int, int] = {}

    @property
    def rows(self) -> FloatArray:
        """B."""
        return self._rows[: self._count]

    def parts(self, candidate: int) -> IndexArray:  # (K + 2,)
        """Give the rows of B that a candidate's covariances are made of, in the order of a."""
        alike = self._own[candidate]
        if candidate not in self._met:
            unlike = len(alike) - self._rows[alike].sum(axis=0)
            self._add(np.exp(-self._decay * unlike))
            self._met[candidate] = self._count - 1
        return np.array([*alike, self._met[candidate], 0])

    def _add(self, row: FloatArray) -> None:
        if self._count == len(self._rows):
            more = np.empty_like(self._rows)  # as many again: seldom, and rows are never touched
            self._rows = np.concatenate([self._rows, more])
        self._rows[self._count] = row
        self._count += 1
