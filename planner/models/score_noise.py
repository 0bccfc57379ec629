"""How noisy the mean score of a few inputs is, and how noises of configurations hang together.

| symbol | meaning |
| --- | --- |
| N, n | inputs there are, inputs measured |
| t(n) | n N / (N - n): what n inputs are worth; infinite at N, where the mean is known |
| s_c^2 | p m_c (1 - m_c): variance of a score of configuration c with mean m_c |
| p | pooled over configurations; 1 for scores that are 0 or 1, less for others |
| h | number of knobs in which two configurations differ |
| r(h) | e + f exp(-h / 3): how their scores of one input correlate |
| e, f | what is hard for all, what is hard for like configurations only, e + f <= 0.95 |

All configurations meet the inputs in one order, so the mean of n inputs is off by
W(t) / t of a Brownian motion W in t, and what further inputs add is an increment of it:
independent of the inputs before, and correlated (by r) with the increments of other
configurations over the same inputs. A hard start makes all look bad, not one; and what
one configuration happens to fail at, its neighbours do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.model.profile import FloatArray

_PRIOR_PART, _PRIOR_WEIGHT = 0.4, 10.0  # p before any data, in observations
_PRIOR_SHARED, _PRIOR_NEAR, _SHARED_WEIGHT = 0.15, 0.3, 40.0  # e, f, in pairs of scores
_REACH = 3.0  # knobs: on two measured pipelines r falls by about a third with each
_MOST_SHARED = 0.95  # e + f: something is a configuration's own
_FEWEST_PAIRED = 8  # inputs: the mean of fewer eats up what they share
_NEVER_SURE = 0.25  # of an input: keeps t finite at n = N
_EDGE = 0.08  # means nearer to 0 or 1 than this count as this far away


def worth(inputs: FloatArray, population: int) -> FloatArray:
    """Return t(n), same shape."""
    return np.asarray(inputs * population / (population - inputs + _NEVER_SURE))


def score_variance(mean: FloatArray, part: float) -> FloatArray:
    """Return s_c^2 of configurations with those means, same shape."""
    inner = np.clip(mean, _EDGE, 1 - _EDGE)  # at 0 and 1 nothing would vary
    return np.asarray(part * inner * (1 - inner))


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """What some inputs add to a configuration's mean score."""

    row: int  # which configuration
    start: float  # t before
    stop: float  # t after
    value: float  # mean score that the increment alone stands for
    # s_c as it was thought to be, `> 0`. It stays with the increment: covariances that mix old and
    # new ones are none.
    deviation: float


def between(
    row: int, t: tuple[float, float], means: tuple[float, float], *, deviation: float
) -> Increment:
    """Return what was added to a mean score that was worth t before and after; deviation s_c."""
    (start, stop), (before, now) = t, means
    value = (stop * now - start * before) / (stop - start)
    return Increment(row=row, start=start, stop=stop, value=value, deviation=deviation)


def increment(
    row: int, before: FloatArray, now: FloatArray, population: int, *, deviation: float
) -> Increment:
    """Return what scores `now`, shape (n,), add to `before`, their first n0 < n; deviation s_c."""
    start, stop = (float(worth(np.array(float(len(x))), population)) for x in (before, now))
    means = (float(before.mean()) if len(before) else 0.0, float(now.mean()))
    return between(row, (start, stop), means, deviation=deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """p, e and f."""

    part: float = _PRIOR_PART
    shared: float = _PRIOR_SHARED
    near: float = _PRIOR_NEAR

    def covariances(
        self, every: Sequence[Increment], some: Sequence[Increment], apart: FloatArray
    ) -> FloatArray:  # (some, every)
        """Return the covariances of the noise of increments, `apart` (h) of the same shape."""
        row, start, stop, deviation = _columns(every)
        rows, starts, stops, deviations = (column[:, None] for column in _columns(some))
        overlap = np.maximum(np.minimum(stop, stops) - np.maximum(start, starts), 0.0)
        both = (stop - start) * (stops - starts)
        alike = self.shared + self.near * _nearness(apart)
        # Increments of one configuration overlap with themselves only.
        alike = np.where(row == rows, 1.0, alike)
        return np.asarray(alike * overlap / both * deviation * deviations)


def _columns(increments: Sequence[Increment]) -> FloatArray:  # (4, n)
    """Return row, start, stop and deviation of each."""
    return np.array([(i.row, i.start, i.stop, i.deviation) for i in increments], dtype=float).T


def _nearness(apart: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-apart / _REACH))


def learnt(scores: Sequence[FloatArray], means: FloatArray, apart: FloatArray) -> NoiseModel:
    """Return p, e and f from scores of k configurations, in the common order of inputs.

    That is with their predicted means, shape (k,), and h of each two, shape (k, k).
    """
    scale = np.sqrt(score_variance(means, 1.0))
    squares, weight = _PRIOR_PART * _PRIOR_WEIGHT, _PRIOR_WEIGHT
    longest = max((len(s) for s in scores), default=0)
    off, met = np.zeros((len(scores), longest)), np.zeros((len(scores), longest))
    for i, (one, unit) in enumerate(zip(scores, scale, strict=True)):
        if len(one) < 2:
            continue
        own = (one - one.mean()) / unit
        squares, weight = squares + float(own @ own), weight + len(one) - 1
        if len(one) >= _FEWEST_PAIRED:
            off[i, : len(one)], met[i, : len(one)] = own, 1.0
    part = squares / weight
    shared, near = _fitted(off @ off.T / part, met @ met.T, apart)
    return NoiseModel(part=part, shared=shared, near=near)


def _fitted(products: FloatArray, counts: FloatArray, apart: FloatArray) -> tuple[float, float]:
    """Return e and f by least squares over pairs of scores, drawn towards what they start from.

    Products are sums over common inputs, counts those of these inputs, both of shape (k, k) as h.
    """
    pairs = np.triu(counts > 0, 1)
    n, x = 2 * counts[pairs], _nearness(apart[pairs])
    y = 2 * products[pairs]
    ridge = _SHARED_WEIGHT * np.eye(2)
    normal = np.array([[n.sum(), n @ x], [n @ x, n @ (x * x)]]) + ridge
    right = np.array([y.sum(), y @ x]) + ridge @ [_PRIOR_SHARED, _PRIOR_NEAR]
    e, f = np.clip(np.linalg.solve(normal, right), 0.0, _MOST_SHARED)
    return float(e), float(min(f, _MOST_SHARED - e))
