"""When enough inputs of a configuration were measured (Circinus 4.1, appendix A.4).

A rule sees the scores so far and says whether the mean over all inputs is decided to be on one
side of the accuracy SLO. A failed measurement is NaN, is no part of the mean, and keeps its place
in the order, as rules may rest on which input it was. The one rule: a verdict other than undecided
costs nothing more, so it must be earned.

    symbol  meaning
    n       number of scores so far
    N       number of inputs there are
    A       the bound: least mean score that is good enough
    alpha   1 - confidence
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, Verdict

Signs = npt.NDArray[np.int8]  # 1: above, -1: below, 0: undecided

_ROUNDING = 1e-12
_SAME = 1e-9  # scores closer than this are one score: their variance is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class TTest:
    """The paper's rule: a two-sided t-test of "mean score = A" after each input.

    As published it looks after every draw at a test made for one look, so over large data sets
    it errs more often than 1 - confidence says. `betting.Betting` is valid at any time and the
    default; this one stays for comparison.

    Deviations, none of which decides where the t-test would decide otherwise:

    - At n = N the mean is known, and the verdict exact.
    - Scores are in [0, 1]: once no score of the inputs still unseen could change the verdict, it
      is given.
    - Constant scores have no variance, and a t-test would stop at once. Instead the fraction of
      inputs that score unlike them is bounded by 1 - (alpha / 2)^(1 / n), the exact limit of
      Clopper and Pearson (1934) when none was seen, and these are taken to score as badly (or as
      well) as can be.
    """

    confidence: float = 0.99  # 1 - alpha of each look, in (0, 1). The paper's 99 %
    # fewest scores to decide on unless there are fewer inputs, `>= 2`. The paper's 50, for the
    # central limit theorem
    minimum: int = 50

    def __post_init__(self) -> None:
        checks.open_probability("confidence", self.confidence)
        checks.at_least("minimum", self.minimum, 2)

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:  # (n,)
        """Return what is decided, see `StoppingRule`; InvalidInput if scores are not in [0, 1]."""
        check_scores(scores, bound, population)
        good = scores[~np.isnan(scores)]
        population -= len(scores) - len(good)
        if len(good) < min(self.minimum, population) or len(good) == 0:
            return Verdict.UNDECIDED
        sure = certain(good, bound, population)
        if sure is not Verdict.UNDECIDED:
            return sure
        return first_verdict(self.path(good[None], np.array([bound]), population)[0, -1:])

    def path(self, scores: FloatArray, bounds: FloatArray, population: int) -> Signs:  # (B, n)
        """Return what the t-test says after each input of many profiles, without failures.

        Without what is `certain`; before `minimum` scores nothing is said.
        """
        n = np.arange(1, scores.shape[1] + 1)
        mean = np.cumsum(scores, axis=1) / n
        lowest = np.minimum.accumulate(scores, axis=1)
        highest = np.maximum.accumulate(scores, axis=1)
        bound = bounds[:, None]
        others = 1.0 - ((1.0 - self.confidence) / 2) ** (1.0 / n)
        squares = np.cumsum((scores - bound) ** 2, axis=1) - n * (mean - bound) ** 2
        error = np.sqrt(np.maximum(squares, _SAME**2) / np.maximum(n - 1, 1) / n)
        p_value = 2.0 * special.stdtr(np.maximum(n - 1, 1), -np.abs((mean - bound) / error))
        constant = highest - lowest <= _SAME
        sided = np.where(mean >= bound, 1, -1) * (p_value <= 1.0 - self.confidence)
        low, high = lowest * (1.0 - others), highest * (1.0 - others) + others
        signs = np.where(constant, 1 * (low >= bound) - (high < bound), sided)
        signs[:, : min(self.minimum, population) - 1] = 0
        return signs.astype(np.int8)


def check_scores(scores: FloatArray, bound: float, population: int) -> None:
    """Raise InvalidInput unless scores, bound and population go together; NaN: a failure."""
    checks.probability("bound", bound)
    rule = f"must be at least the number of scores, {len(scores)}"
    checks.require(population >= max(len(scores), 1), "population", rule, population)
    bad = scores[(scores < 0) | (scores > 1)]
    checks.require(bad.size == 0, "scores", "must be in [0, 1] or NaN", bad[:1].tolist())


def certain(scores: FloatArray, bound: float, population: int) -> Verdict:
    """Return the verdict that no score still unseen can change; NaN: a failure."""
    good = scores[~np.isnan(scores)]
    # Failures that are still to come leave a mean between the two extremes below.
    count = population - (len(scores) - len(good))
    if count == 0:
        return Verdict.UNDECIDED
    total = math.fsum(good.tolist())  # exact: equality with the bound must be seen
    if total / count >= bound:
        return Verdict.ABOVE
    highest = (total + count - len(good)) / count
    return Verdict.BELOW if highest < bound else Verdict.UNDECIDED


def certain_path(scores: FloatArray, bounds: FloatArray, population: int) -> Signs:  # (B, n)
    """Return `certain` after each input of profiles without failures, up to rounding."""
    sums = np.cumsum(scores, axis=1)
    needed = population * bounds[:, None]
    unseen = population - 1 - np.arange(scores.shape[1])
    above = sums >= needed - _ROUNDING * population
    below = ~above & (sums + unseen < needed - _ROUNDING * population)
    return above.astype(np.int8) - below.astype(np.int8)


def first_verdict(signs: Signs) -> Verdict:
    """Return the verdict that came first, signs of shape (n,)."""
    decided = np.flatnonzero(signs)
    if not decided.size:
        return Verdict.UNDECIDED
    return Verdict.ABOVE if signs[decided[0]] > 0 else Verdict.BELOW
