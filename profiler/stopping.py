"""When enough inputs of a configuration were measured (Circinus 4.1, appendix A.4).

A rule sees the scores so far and says whether the mean over all inputs is decided to be on one
side of the accuracy SLO. The one rule: a verdict other than undecided costs nothing more, so it
must be earned.

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
from scipy import special

from pipelines import checks
from pipelines.evaluation import Verdict
from pipelines.profile import FloatArray

_SAME = 1e-9  # scores closer than this are one score: their variance is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class TTest:
    """The paper's rule: a two-sided t-test of "mean score = A" after each input.

    As published it looks after every draw at a test made for one look, so over large data sets
    it errs more often than 1 - confidence says. A rule that is valid at any time is to replace it
    as the default; this one stays for comparison.

    Deviations, none of which decides where the t-test would decide otherwise:

    - At n = N the mean is known, and the verdict exact.
    - Scores are in [0, 1]: once no score of the inputs still unseen could change the verdict, it
      is given.
    - Constant scores have no variance, and a t-test would stop at once. Instead the fraction of
      inputs that score unlike them is bounded by 1 - (alpha / 2)^(1 / n), the exact limit of
      Clopper and Pearson (1934) when none was seen, and these are taken to score as badly (or as
      well) as can be.

    Attributes:
        confidence: 1 - alpha of each look, in (0, 1). The paper's 99 %.
        minimum: Fewest scores to decide on unless there are fewer inputs, `>= 2`. The paper's 50,
            for the central limit theorem.
    """

    confidence: float = 0.99
    minimum: int = 50

    def __post_init__(self) -> None:
        rule = "must be in (0, 1)"
        checks.require(0 < self.confidence < 1, "confidence", rule, self.confidence)
        checks.require(self.minimum >= 2, "minimum", "must be >= 2", self.minimum)

    def judge(
        self,
        scores: FloatArray,  # (n,)
        *,
        bound: float,
        population: int,
    ) -> Verdict:
        """Give whether the mean over the population is decided to be above or below.

        Args:
            scores: Scores so far, in [0, 1], without failures.
            bound: A, in [0, 1]; a mean equal to it counts as above.
            population: N. A caller that met failures takes them off: they never give a score.

        Raises:
            InvalidInput: If a score or the bound is not in [0, 1], or n exceeds N.
        """
        count = len(scores)
        _check(scores, bound, population)
        if count < min(self.minimum, population) or count == 0:
            return Verdict.UNDECIDED
        total = math.fsum(scores.tolist())  # exact: equality with the bound must be seen
        sure = _between(total / population, (total + population - count) / population, bound)
        if sure is not Verdict.UNDECIDED:
            return sure
        if np.ptp(scores) <= _SAME:
            return self._of_constant(scores, bound)
        return self._of_t_test(scores, bound)

    def _of_constant(self, scores: FloatArray, bound: float) -> Verdict:
        others = 1.0 - ((1.0 - self.confidence) / 2) ** (1.0 / len(scores))
        low = float(scores.min()) * (1.0 - others)
        high = float(scores.max()) * (1.0 - others) + others
        return _between(low, high, bound)

    def _of_t_test(self, scores: FloatArray, bound: float) -> Verdict:
        count = len(scores)
        mean = float(scores.mean())
        t = (mean - bound) / (float(scores.std(ddof=1)) / math.sqrt(count))
        p_value = 2.0 * float(special.stdtr(count - 1, -abs(t)))
        if p_value > 1.0 - self.confidence:
            return Verdict.UNDECIDED
        return Verdict.ABOVE if mean >= bound else Verdict.BELOW


def _between(low: float, high: float, bound: float) -> Verdict:
    if low >= bound:
        return Verdict.ABOVE
    return Verdict.BELOW if high < bound else Verdict.UNDECIDED


def _check(scores: FloatArray, bound: float, population: int) -> None:
    checks.probability("bound", bound)
    rule = f"must be at least the number of scores, {len(scores)}"
    checks.require(population >= max(len(scores), 1), "population", rule, population)
    bad = scores[~((scores >= 0) & (scores <= 1))]
    checks.require(bad.size == 0, "scores", "must be in [0, 1]", bad[:1].tolist())
