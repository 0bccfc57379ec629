"""How much longer some inputs take than others, whatever the setting: learnt over cells.

All configurations meet the inputs in one order, most of them only the first few. Where those take
twice as long as others, everything looks twice as slow as it is, and whatever met more inputs
looks fast beside it. What is heavy for one setting of an operator mostly is for others: seconds
over inputs correlate by 0.4 to 0.8 between the configurations of pipelines that read pages, clips
or speech. So a mean over few inputs is divided by how heavy these are.

| symbol | meaning |
| --- | --- |
| cell | an operator under one setting of its lineage; it has met the first n of N inputs |
| z_i | seconds of a cell on input i over the mean of all it met, less 1 |
| d_i | by how much input i is heavier than others, in parts of a mean; e its own deviation |
| q | share of d in the variance of seconds; `cv2` of which is that variance |
| D(n) | mean of d over the first n inputs |

Of each cell z_i = d_i - D(n) + e_i - mean of e: a linear model with random effects d and a free
mean per cell. Its normal equations are (diag(k_i + (1 - q) / q) - sum over n of c_n / n 1_n 1_n')
d = sum of z, with k_i cells that met input i, c_n cells that met n, and 1_n ones at the first n:
diagonal but for a few ranks, one for each n that occurs (Woodbury), so they are solved exactly in
the time of a sum.

The mean of a cell over all N is then its mean over n divided by 1 + D(n) - D(N), with the relative
variance (1 - q) cv2 (1/n - 1/N) + Var[D(n) - D(N)]: what its own deviations add, and what is not
known of d. A cell alone keeps its own mean and cv2 (1/n - 1/N).
"""

from __future__ import annotations

import numpy as np

from pipelines.configuration import IndexArray
from pipelines.profile import FloatArray

_PRIOR_SHARE, _PRIOR_WEIGHT = 0.5, 40.0  # q before anything is seen, in pairs of seconds
_FEWEST = 5  # inputs: a mean of fewer eats up what two cells share
_MOST_SHARE = 0.95  # q: something is a cell's own
_MOST_HEAVY = 3.0  # z: a spike is not the input's
_LEAST = 0.2  # of its mean over few inputs that a mean over all may be
_SHORTEST_S = 1e-12


class Heaviness:
    """Learns d from the seconds of an operator's cells.

    Args:
        population: N.
        learning: Whether d is learnt; False (for studies): all inputs are alike.
    """

    def __init__(self, population: int, *, learning: bool = True) -> None:
        self._population = population
        self._learning = learning
        self._z: dict[int, FloatArray] = {}
        self._sum = np.zeros(population)  # of z over cells
        self._cells = np.zeros(population, dtype=np.int64)  # k_i
        self._ending = np.zeros(population + 1, dtype=np.int64)  # c_n
        self._paired = np.zeros((3, population))  # cells of _FEWEST inputs: count, sums of z, z^2

    def add(self, cell: int, seconds: FloatArray) -> None:
        """Take in all that is known of a cell, in place of what was known before.

        Args:
            cell: Which.
            seconds: On the first n >= 1 inputs of the common order.
        """
        if cell in self._z:
            self._count(self._z[cell], -1)
        z = seconds / max(float(seconds.mean()), _SHORTEST_S) - 1
        self._z[cell] = np.minimum(z, _MOST_HEAVY)
        self._count(self._z[cell], 1)

    def _count(self, z: FloatArray, sign: int) -> None:
        n = len(z)
        self._sum[:n] += sign * z
        self._cells[:n] += sign
        self._ending[n] += sign
        if n >= _FEWEST:
            self._paired[:, :n] += sign * np.stack([np.ones(n), z, z * z])

    @property
    def share(self) -> float:
        """q, from products of two cells' z on one input, drawn towards a half."""
        if not self._learning:
            return 0.0
        count, total, squares = self._paired
        pairs = float((count * (count - 1)).sum())
        if pairs <= 0:
            return _PRIOR_SHARE
        together = float((total * total - squares).sum())
        alone = float((np.maximum(count - 1, 0.0) * squares).sum())
        prior = _PRIOR_WEIGHT * alone / pairs
        found = (together + _PRIOR_SHARE * prior) / max(alone + prior, _SHORTEST_S)
        return float(np.clip(found, 0.0, _MOST_SHARE))

    def corrected(
        self, mean: FloatArray, inputs: IndexArray, cv2: float
    ) -> tuple[FloatArray, FloatArray]:
        """Give means over all inputs, and their relative variances.

        Args:
            mean: Mean seconds of cells that were added, over the inputs each met, shape (k,).
            inputs: n of each, shape (k,).
            cv2: Relative variance of seconds over inputs.

        Returns:
            Both of shape (k,); where n = N the mean as it is, and 0.
        """
        if not len(mean):
            return mean, np.zeros(0)
        population, share = self._population, self.share
        own = (1 - share) * cv2
        ends = np.flatnonzero(self._ending)  # the n that occur, ascending
        heavier, variance = self._known(ends, share) if share else (np.zeros(len(ends)),) * 2
        at = np.searchsorted(ends, inputs)
        corrected = mean / np.maximum(1 + heavier, _LEAST)[at]
        relative = own * (1 / inputs - 1 / population) + own * variance[at]
        whole = inputs >= population
        return np.where(whole, mean, corrected), np.where(whole, 0.0, relative)

    def _known(self, ends: IndexArray, share: float) -> tuple[FloatArray, FloatArray]:
        """Give D(n) - D(N) at some n, and its variances in units of (1 - q) cv2."""
        population, longest = self._population, int(ends[-1])
        ridge = (1 - share) / share
        weight = 1 / (self._cells[:longest] + ridge)
        told = (weight * self._sum[:longest]).cumsum()[ends - 1]
        between = weight.cumsum()[np.minimum.outer(ends, ends) - 1]
        inner = np.diag(ends / self._ending[ends]) - between
        solved = np.linalg.solve(inner, np.column_stack([told, between]))
        total = told + between @ solved[:, 0]  # of d over the first n
        spread = between + between @ solved[:, 1:]  # covariances of these
        variance = np.diag(spread) / ends**2 - 2 * spread[:, -1] / (ends * population)
        variance += spread[-1, -1] / population**2
        unmet = (population - longest) / population**2 / ridge
        return total / ends - total[-1] / population, np.maximum(variance, 0.0) + unmet
