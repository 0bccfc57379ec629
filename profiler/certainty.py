"""What scores in [0, 1] of a finite set say for certain, and what every stopping rule shares.

The one rule: a failed measurement is NaN, is no part of the mean, and keeps its place in the
order, as rules may rest on which input it was.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pipelines import checks
from pipelines.evaluation import Verdict
from pipelines.profile import FloatArray

Signs = npt.NDArray[np.int8]
"""1: above, -1: below, 0: undecided."""

_ROUNDING = 1e-12


def check_scores(scores: FloatArray, bound: float, population: int) -> None:
    """Raise InvalidInput unless scores, bound and population go together; NaN: a failure."""
    checks.probability("bound", bound)
    rule = f"must be at least the number of scores, {len(scores)}"
    checks.require(population >= max(len(scores), 1), "population", rule, population)
    bad = scores[(scores < 0) | (scores > 1)]
    checks.require(bad.size == 0, "scores", "must be in [0, 1] or NaN", bad[:1].tolist())


def certain(scores: FloatArray, bound: float, population: int) -> Verdict:
    """Give the verdict that no score still unseen can change.

    Args:
        scores: Scores so far, NaN where the measurement failed, shape (n,).
        bound: Least mean that is good enough.
        population: Number of inputs there are.
    """
    good = scores[~np.isnan(scores)]
    # Failures that are still to come leave a mean between the two extremes below.
    count = population - (len(scores) - len(good))
    if count == 0:
        return Verdict.UNDECIDED
    total = math.fsum(good.tolist())  # exact: equality with the bound must be seen
    return between(total / count, (total + count - len(good)) / count, bound)


def certain_path(
    scores: FloatArray,  # (B, n), without failures
    bounds: FloatArray,  # (B,)
    population: int,
) -> Signs:  # (B, n)
    """Give `certain` after each input of many profiles, up to rounding."""
    sums = np.cumsum(scores, axis=1)
    needed = population * bounds[:, None]
    unseen = population - 1 - np.arange(scores.shape[1])
    above = sums >= needed - _ROUNDING * population
    below = ~above & (sums + unseen < needed - _ROUNDING * population)
    return above.astype(np.int8) - below.astype(np.int8)


def between(low: float, high: float, bound: float) -> Verdict:
    """Give the verdict on a mean that lies in [low, high]."""
    if low >= bound:
        return Verdict.ABOVE
    return Verdict.BELOW if high < bound else Verdict.UNDECIDED


def first_verdict(signs: Signs) -> Verdict:
    """Give the verdict that came first, signs of shape (n,)."""
    decided = np.flatnonzero(signs)
    if not decided.size:
        return Verdict.UNDECIDED
    return Verdict.ABOVE if signs[decided[0]] > 0 else Verdict.BELOW
