"""How well accuracy and latency are known from the inputs measured.

The inputs measured are n of a population of N, drawn without replacement: at n = N
every interval collapses to the figure itself. Where operators draw, every run is a sample of
latency, N counts as endless, and an expected score is known as follows.

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
does. Only inputs that were drawn again determine q. Until there are any, all of the variance
is taken to be between draws, which makes n inputs worth n, as if they were drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, fsum, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from circinus.pipelines.model.draws import MOST_DRAWS, draws_of, means_of_inputs
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.slo import SURE, Estimate, LatencyStatistic

_PRIOR_WEIGHT = 6.0
"""Repeats for which q = 1 counts. With 6, of n repeats that were all alike q is 6 / (6 + n): above
the 95 % limit of Clopper and Pearson where one in two differs, 3 / n, and the more so below."""
_SHARED_WEIGHT = 16.0  # repeats that the evidence of all configurations counts as for one of them
_LEAST_PART = 0.01  # of q: no repeats prove that draws are all alike
_LEAST_GAIN = 1e-3  # that a measurement is worth at least, so that t rises


CONFIDENCE = SURE  # of the intervals that plans carry
_RANKS = 4096  # remembered: what requests got is looked at each second, for every query


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """Statistics of the inputs that were drawn again."""

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

    They met the same draws, so their evidence together counts as one of them does.
    """
    repeated = [one for one in each if one.count]
    if not repeated:
        return 1.0
    most, total = max(one.count for one in repeated), sum(one.count for one in repeated)
    mean = sum(one.squares for one in repeated) / total
    shared = Repeats(squares=mean * most, count=most).part(1.0, _PRIOR_WEIGHT)
    return max(shared, *(one.part(shared, _SHARED_WEIGHT) for one in repeated))


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
        low, high = _wilson(mean, _exact_worth(inputs, population, 1.0), confidence)
    else:
        part = Repeats.of(inputs, scores, variance).part(1.0, _PRIOR_WEIGHT)
        half = _t(n, confidence) * sqrt(variance / _exact_worth(inputs, population, part))
        low, high = mean - half, mean + half
    return fraction_estimate(mean, low, high, confidence=confidence, inputs=len(scores))


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


def accuracy_estimate(
    scores: FloatArray,  # in [0, 1], (n,), n >= 1
    *,
    population: int,
    confidence: float = CONFIDENCE,
    drawn: IntArray | None = None,  # inputs that scores are draws of, (n,); None: nothing draws
) -> Estimate:
    """Return the mean score with its t-interval, clipped to [0, 1].

    Without variance (or with a single score) a t-interval would claim certainty: then Wilson's
    interval for a fraction, which holds for any scores in [0, 1] since a fraction varies most.
    """
    if drawn is not None:
        return drawn_estimate(scores, drawn, population=population, confidence=confidence)
    n = len(scores)
    # Summed exactly, as stopping rules do: a mean that equals the SLO must compare as equal.
    mean = min(max(fsum(scores.tolist()) / n, 0.0), 1.0)
    shrink = _shrink(n, population)
    deviation = float(scores.std(ddof=1)) if n > 1 else 0.0
    if shrink == 0:
        low = high = mean
    elif deviation == 0:
        low, high = _wilson(mean, n / shrink**2, confidence)
    else:
        half = _t(n, confidence) * deviation / sqrt(n) * shrink
        low, high = mean - half, mean + half
    return fraction_estimate(mean, low, high, confidence=confidence, inputs=n)


def fraction_estimate(
    value: float, low: float, high: float, *, confidence: float, inputs: int, left_out: int = 0
) -> Estimate:
    """Return an estimate of a figure in [0, 1], its interval clipped to that and around it."""
    return Estimate(
        value=value,
        low=min(max(low, 0.0), value),
        high=max(min(high, 1.0), value),
        confidence=confidence,
        inputs=inputs,
        left_out=left_out,
    )


def latency_estimate(
    latencies_s: FloatArray,  # (n,), n >= 1, `>= 0`
    *,
    statistic: LatencyStatistic,
    population: int,  # N >= n
    confidence: float = CONFIDENCE,  # in (0, 1)
) -> Estimate:
    """Return the statistic with its interval.

    The mean has a t-interval (one input alone: its spread is taken to be as large as itself). A
    percentile lies between two order statistics. When there are too few inputs to bound it from
    above, the interval ends at the largest and `confidence` is what that holds: less than asked.
    """
    n = len(latencies_s)
    value = float(statistic.of(latencies_s))
    if statistic.quantile is None:
        half = float(_mean_half_width(latencies_s, population, confidence))
        low, high = max(value - half, 0.0), value + half
    else:
        ordered = np.sort(latencies_s)
        below, above, confidence = _order_statistics(statistic.quantile, n, population, confidence)
        low = min(float(ordered[below - 1]) if below else 0.0, value)
        high = max(float(ordered[above - 1]), value)
    return Estimate(value=value, low=low, high=high, confidence=confidence, inputs=n)


def latency_at_least(
    latencies_s: FloatArray,  # (..., n)
    *,
    statistic: LatencyStatistic,
    population: int,
    confidence: float,
) -> FloatArray:  # (...,)
    """Return the lower ends of the intervals that `latency_estimate` gives, for many plans."""
    n = latencies_s.shape[-1]
    if statistic.quantile is None:
        half = _mean_half_width(latencies_s, population, confidence)
        return np.asarray(np.maximum(latencies_s.mean(axis=-1) - half, 0.0))
    below, _, _ = _order_statistics(statistic.quantile, n, population, confidence)
    if below == 0:
        return np.zeros(latencies_s.shape[:-1])
    return np.asarray(np.partition(latencies_s, below - 1, axis=-1)[..., below - 1])


def _shrink(n: int, population: int) -> float:
    """Return the finite population correction of a standard error."""
    return sqrt(max(population - n, 0) / (population - 1)) if population > 1 else 0.0


def _t(n: int, confidence: float) -> float:
    return float(stdtrit(max(n - 1, 1), (1 + confidence) / 2))


def _wilson(mean: float, n: float, confidence: float) -> tuple[float, float]:
    z = float(ndtri((1 + confidence) / 2))
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    return centre - half, centre + half


def _mean_half_width(latencies_s: FloatArray, population: int, confidence: float) -> FloatArray:
    n = latencies_s.shape[-1]
    deviation = latencies_s.std(axis=-1, ddof=1) if n > 1 else latencies_s[..., 0]
    return np.asarray(_t(n, confidence) * deviation / sqrt(n) * _shrink(n, population))


@lru_cache(_RANKS)
def _order_statistics(
    quantile: float, n: int, population: int, confidence: float
) -> tuple[int, int, float]:
    """Return ranks j, k and the probability that X_(j) <= Q <= X_(k) holds at least.

    Q is the M-th smallest of the population, M = ceil(q N). Of the n drawn, a hypergeometric
    number B is <= Q and B' is < Q (without ties); X_(j) <= Q if B >= j, Q <= X_(k) if B' < k.
    j = 0 stands for no lower bound.
    """
    from scipy.stats import hypergeom  # seconds to import, and explanations need none

    rank = max(ceil(quantile * population - 1e-9), 1)
    counts = np.arange(n + 1)
    at_most = hypergeom.cdf(counts, population, rank, n)  # Pr[B <= count]
    before = hypergeom.cdf(counts, population, rank - 1, n)  # Pr[B' <= count]
    tail = (1 - confidence) / 2
    reaching = np.flatnonzero(before[:n] >= 1 - tail)
    k = int(reaching[0]) + 1 if len(reaching) else n
    upper = float(before[k - 1])
    # What the upper end cannot hold, the lower end must not use up.
    tail = min(tail, upper / 2)
    j = int(np.count_nonzero(at_most <= tail))
    missed = float(at_most[j - 1]) if j else 0.0
    return j, k, min(confidence, upper - missed)
