"""How well accuracy and latency are known from the inputs measured.

The inputs measured are n of a population of N, drawn without replacement: at n = N
every interval collapses to the figure itself. Where operators draw, accuracy is told by
`planner.models.drawn`, and every run is a sample of latency: N counts as endless.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, fsum, sqrt

import numpy as np
from scipy.special import ndtri, stdtrit

from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.slo import SURE, Estimate, LatencyStatistic
from circinus.planner.models.drawn import drawn_estimate

CONFIDENCE = SURE  # of the intervals that plans carry
_RANKS = 4096  # remembered: what requests got is looked at each second, for every query


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
    # Summed exactly, as stopping rules do: a mean that equals the SLO must be seen to.
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
    low, high = min(max(low, 0.0), mean), max(min(high, 1.0), mean)
    return Estimate(value=mean, low=low, high=high, confidence=confidence, inputs=n)


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
