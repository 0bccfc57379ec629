"""How noisy the mean score of a few inputs is, and how noises of configurations hang together.

| symbol | meaning |
| --- | --- |
| N, n | inputs there are, inputs measured |
| t(n) | n N / (N - n): what n inputs are worth; infinite at N, where the mean is known |
| s_c^2 | p m_c (1 - m_c): variance of a score of configuration c with mean m_c |
| p | pooled over configurations; 1 for scores that are 0 or 1, less for others |
| e | part of the variance that is the input's: hard for all configurations alike |

All configurations meet the inputs in one order, so the mean of n inputs is off by
W(t) / t of a Brownian motion W in t, and what further inputs add is an increment of it:
independent of what came before, and correlated (by e) with the increments of other
configurations over the same inputs. A hard start makes all look bad, not one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.profile import FloatArray

_PRIOR_PART, _PRIOR_WEIGHT = 0.4, 10.0  # p before anything is seen, in observations
_PRIOR_SHARED, _SHARED_WEIGHT = 0.2, 40.0  # e, in pairs of scores
_NEVER_SURE = 0.25  # of an input: keeps t finite at n = N
_EDGE = 0.08  # means nearer to 0 or 1 than this count as this far away


def worth(inputs: FloatArray, population: int) -> FloatArray:
    """Give t(n), same shape."""
    return np.asarray(inputs * population / (population - inputs + _NEVER_SURE))


def score_variance(mean: FloatArray, part: float) -> FloatArray:
    """Give s_c^2 of configurations with those means, same shape."""
    inside = np.clip(mean, _EDGE, 1 - _EDGE)
    return np.asarray(part * inside * (1 - inside))


@dataclass(frozen=True, slots=True, kw_only=True)
class Increment:
    """The inputs `start` to `stop` of a configuration's mean score.

    Attributes:
        row: Which configuration.
        start: t before.
        stop: t after.
        value: Mean score that the increment alone stands for.
        deviation: s_c as it was thought to be, `> 0`. It stays with the increment: covariances
            that mix old and new ones are none.
    """

    row: int
    start: float
    stop: float
    value: float
    deviation: float


def increment(
    row: int, before: FloatArray, now: FloatArray, population: int, *, deviation: float
) -> Increment:
    """Give what scores beyond those known before add.

    Args:
        row: Which configuration.
        before: Scores known, shape (n0,), a prefix of `now`.
        now: Scores known now, shape (n,), n > n0.
        population: N >= n.
        deviation: s_c.
    """
    start, stop = (float(worth(np.array(float(len(x))), population)) for x in (before, now))
    weighed = stop * float(now.mean()) - (start * float(before.mean()) if len(before) else 0.0)
    value = weighed / (stop - start)
    return Increment(row=row, start=start, stop=stop, value=value, deviation=deviation)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """p and e."""

    part: float = _PRIOR_PART
    shared: float = _PRIOR_SHARED

    def deviation(self, mean: float) -> float:
        """Give s_c of a configuration with that mean score."""
        return float(np.sqrt(score_variance(np.array(mean), self.part)))

    def covariances(self, increments: Sequence[Increment]) -> FloatArray:  # (n,)
        """Give the covariance of the last increment's noise with each, its own variance last."""
        rows = np.array([i.row for i in increments])
        start = np.array([i.start for i in increments])
        stop = np.array([i.stop for i in increments])
        deviation = np.array([i.deviation for i in increments])
        overlap = np.minimum(stop, stop[-1]) - np.maximum(start, start[-1])
        both = (stop - start) * (stop[-1] - start[-1])
        noise = self.shared * np.maximum(overlap, 0.0) / both * deviation * deviation[-1]
        noise[rows == rows[-1]] = 0.0  # increments of one configuration do not overlap
        noise[-1] = deviation[-1] ** 2 / (stop[-1] - start[-1])
        return np.asarray(noise)

    def matrix(self, increments: Sequence[Increment]) -> FloatArray:  # (n, n)
        """Give the covariance of the noise of all increments."""
        n = len(increments)
        total = np.zeros((n, n))
        for i in range(n):
            row = self.covariances(increments[: i + 1])
            total[i, : i + 1] = total[: i + 1, i] = row
        return total


def learnt(scores: list[FloatArray], means: FloatArray) -> NoiseModel:  # (k,)
    """Give p and e from scores of several configurations.

    Args:
        scores: Of each configuration, in the common order of inputs.
        means: Its predicted mean.
    """
    inside = np.clip(means, _EDGE, 1 - _EDGE)
    scale = np.sqrt(inside * (1 - inside))
    squares, weight = _PRIOR_PART * _PRIOR_WEIGHT, _PRIOR_WEIGHT
    longest = max((len(s) for s in scores), default=0)
    total, square, count = np.zeros(longest), np.zeros(longest), np.zeros(longest)
    for one, unit in zip(scores, scale, strict=True):
        if len(one) < 2:
            continue
        off = (one - one.mean()) / unit
        squares, weight = squares + float(off @ off), weight + len(one) - 1
        if len(one) >= 8:  # the mean of fewer eats up what they share
            total[: len(one)] += off
            square[: len(one)] += off**2
            count[: len(one)] += 1
    part = squares / weight
    pairs = count * (count - 1)
    together = float(((total**2 - square) / part).sum())
    shared = (_PRIOR_SHARED * _SHARED_WEIGHT + together) / (_SHARED_WEIGHT + pairs.sum())
    return NoiseModel(part=part, shared=float(np.clip(shared, 0.0, 0.8)))
