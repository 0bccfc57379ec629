"""How well an expected score is known where the same input scores differently each time.

| symbol | meaning |
| --- | --- |
| N, n | inputs there are, inputs met |
| d_i | draws met of input i |
| s^2 | variance of a single score |
| q | part of s^2 that is between draws of one input, the rest is between inputs; in (0, 1] |
| t | what measurements are worth: s^2 over the variance of the mean |

The mean over inputs of means over draws has the variance
s^2 ((1 - q) (1 / n - 1 / N) + q sum_i 1 / d_i / n^2) (two-stage sampling: Cochran, "Sampling
Techniques", 1977, section 10.6): the first term ends when all inputs are met, the second never
does. q is only told by inputs that were drawn again. Until they say otherwise all of the variance
is taken to be between draws, which makes n inputs worth n, as if they were drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from circinus.pipelines.model.draws import MOST_DRAWS, draws_of, means_of_inputs
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.slo import Estimate

_PRIOR_WEIGHT = 6.0
"""Repeats for which q = 1 counts. With 6, of n repeats that were all alike q is 6 / (6 + n): above
the 95 % limit of Clopper and Pearson where one in two differs, 3 / n, and the more so below."""
_SHARED_WEIGHT = 16.0  # repeats for which what all configurations say counts for one of them
_LEAST_PART = 0.01  # of q: no repeats prove that draws are all alike
_LEAST_GAIN = 1e-3  # that a measurement is worth at least, so that t rises


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """What the draws of inputs that were drawn again say."""

    squares: float  # squared deviations from the mean of the input, over s^2
    count: int  # draws beyond the first of each input

    @classmethod
    def of(cls, inputs: IntArray, scores: FloatArray, variance: float) -> Repeats:
        """Return those of a configuration, whose single scores have such a variance, `> 0`."""
        _, which = np.unique(inputs, return_inverse=True)
        which = which.reshape(-1)
        count = np.bincount(which)
        means = np.bincount(which, weights=scores) / count
        squares = float(np.square(scores - means[which]).sum())
        return cls(squares=squares / variance, count=len(inputs) - len(count))

    def part(self, prior: float, weight: float) -> float:
        """Return q, where a prior counts for so many repeats."""
        q = (prior * weight + self.squares) / (weight + self.count)
        return min(max(q, _LEAST_PART), 1.0)


def part_within(each: Iterable[Repeats]) -> float:
    """Return q for all configurations: that of the one whose draws differ most.

    They met the same draws, so what they say together counts as one of them does.
    """
    told = [one for one in each if one.count]
    if not told:
        return 1.0
    most, total = max(one.count for one in told), sum(one.count for one in told)
    mean = sum(one.squares for one in told) / total
    shared = Repeats(squares=mean * most, count=most).part(1.0, _PRIOR_WEIGHT)
    return max(shared, *(one.part(shared, _SHARED_WEIGHT) for one in told))


class Drawn:
    """What the first measurements of the common order are worth. A value."""

    def __init__(self, population: int, order: IntArray | None = None, part: float = 1.0) -> None:
        self.population, self.part = population, part
        # inputs that were met so far; beyond it is taken to go on with inputs that were not
        self.order = np.zeros(0, dtype=np.int64) if order is None else order
        met, thin = _counts(self.order, population)
        between = 1 / np.maximum(met, 1) - 1 / population
        variance = (1 - part) * between + part * thin / np.square(np.maximum(met, 1))
        t = np.maximum.accumulate(1 / variance)
        self._worth = np.concatenate([[0.0], t + _LEAST_GAIN * np.arange(len(t))])

    @property
    def size(self) -> int:
        """How many measurements there are."""
        return len(self._worth) - 1

    def worth(self, inputs: FloatArray | IntArray) -> FloatArray:
        """Return t of the first so many measurements, same shape."""
        at = np.minimum(np.asarray(inputs, dtype=np.int64), self.size)
        return np.asarray(self._worth[at])

    def following(self, order: IntArray) -> Drawn:
        """Return the same where so much of the order is known."""
        same = len(order) <= len(self.order)
        return self if same else Drawn(self.population, order, self.part)

    def of_part(self, part: float) -> Drawn:
        """Return the same with another q."""
        return Drawn(self.population, self.order, part)


def drawn_estimate(
    scores: FloatArray,  # in [0, 1], (n,), n >= 1
    inputs: IntArray,  # that they are of, (n,)
    *,
    population: int,
    confidence: float,
) -> Estimate:
    """Return the mean over inputs of means over draws, with an interval from these scores alone.

    A t-interval of as many degrees of freedom as inputs were met. Where no score differs,
    Wilson's interval for as many as these are worth.
    """
    means = means_of_inputs(inputs, scores)
    n = len(means)
    mean = min(max(fsum(means.tolist()) / n, 0.0), 1.0)
    variance = float(scores.var(ddof=1)) if len(scores) > 1 else 0.0
    if variance <= 0:
        part, z = 1.0, float(ndtri((1 + confidence) / 2))
        t = float(_exact_worth(inputs, population, part))
        centre = (mean + z * z / (2 * t)) / (1 + z * z / t)
        half = z * sqrt(mean * (1 - mean) / t + (z / (2 * t)) ** 2) / (1 + z * z / t)
        low, high = centre - half, centre + half
    else:
        part = Repeats.of(inputs, scores, variance).part(1.0, _PRIOR_WEIGHT)
        t = float(_exact_worth(inputs, population, part))
        half = float(stdtrit(max(n - 1, 1), (1 + confidence) / 2)) * sqrt(variance / t)
        low, high = mean - half, mean + half
    low, high = min(max(low, 0.0), mean), max(min(high, 1.0), mean)
    return Estimate(value=mean, low=low, high=high, confidence=confidence, inputs=len(scores))


def _exact_worth(inputs: IntArray, population: int, part: float) -> float:
    count = np.unique(inputs, return_counts=True)[1]
    n = len(count)
    left = max(1 / n - 1 / population, 0.0)
    return 1 / float((1 - part) * left + part * (1 / count).sum() / n**2)


def _counts(order: IntArray, population: int) -> tuple[IntArray, FloatArray]:
    """Return n and sum 1 / d_i after each measurement, (inputs x draws,) each."""
    # Only how often inputs repeat matters: those not met yet get numbers of their own.
    known, which = np.unique(order, return_inverse=True)
    which = which.reshape(-1)
    drawn = np.zeros(max(population, len(known)), dtype=np.int64)
    drawn[: len(known)] = np.bincount(which, minlength=len(known))
    left = [np.flatnonzero(drawn <= draw) for draw in range(MOST_DRAWS)]
    draws = draws_of(np.concatenate([which, *left]))
    gained = np.where(draws == 0, 1.0, 1 / (draws + 1.0) - 1 / np.maximum(draws, 1.0))
    return np.cumsum(draws == 0), np.cumsum(gained)
