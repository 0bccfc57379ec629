"""When enough inputs of a configuration were measured (Circinus 4.1, appendix A.4).

A rule takes the scores so far and decides whether the mean over all inputs is on one
side of the accuracy SLO. A failed measurement is NaN, is no part of the mean, and keeps its place
in the order, as rules may rest on which input it was.

Betting may be looked at after every input, and still errs as seldom as promised. A gambler bets,
input by input, that the mean is better than the bound. If it is not, no way of
betting makes money on average, so the capital reaches 1 / alpha with a chance of at most alpha,
however often one looks (Ville 1939). The bets are those of Waudby-Smith and Ramdas, "Estimating
means of bounded random variables by betting" (2023), section 5, for inputs drawn at random
without replacement: no normality, no least number of inputs. Alike inputs lower the variance as
in Shekhar, Xu, Lipton, Liang and Ramdas, "Risk-limiting financial audits via weighted sampling
without replacement" (2023), section 4. The one rule: a bet on an input uses nothing that was
learnt from it or from later ones.

    symbol  meaning
    B       number of profiles
    n       number of scores so far
    N       number of inputs there are
    A       the bound: least mean score that is good enough
    alpha   1 - confidence
    G       number of groups of alike inputs
    x       a score
    m       mean of the inputs still unseen if the mean of all is the bound
    z       score, less what its group foretold, plus what it foretells of the unseen
    c       an effect over a variance, the size of a bet
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray, Verdict

Signs = npt.NDArray[np.int8]  # 1: above, -1: below, 0: undecided

_ROUNDING = 1e-12
_SAME = 1e-9  # scores closer than this are one score: their variance is rounding


_SIZES = np.geomspace(0.1, 4.0, 8)
"""c, bet on all at once in equal parts, as the true one is not known. From an effect of 0.025 at
the largest variance, 1/4, to one of 0.2 at 0.05; further sizes cost more than they bring."""
_MOST = 0.9  # largest part of the capital that a bet may lose: ruin cannot be made good
_PRIOR = 4.0
"""What a group foretells starts as the mean of all scores, with this many inputs' weight."""
_TINY = 1e-9  # means this far out of [0, 1] are not rounding
_RUIN = 1e-3
"""Least factor: rounding may take a bet a little below 1 - _MOST, an impossible mean far below."""
_CHUNK = 1_000_000  # array elements at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class TTest:
    """The paper's rule: a two-sided t-test of "mean score = A" after each input.

    As published it looks after every draw at a test made for one look, so over large data sets
    it errs more often than 1 - confidence states. `betting.Betting` is valid at any time and the
    default; this one stays for comparison.

    Deviations, none of which decides where the t-test would decide otherwise:

    - At n = N the mean is known, and the verdict exact.
    - Scores are in [0, 1]: once no score of the inputs still unseen could change the verdict, it
      is reached.
    - Constant scores have no variance, and a t-test would stop at once. Instead the fraction of
      inputs that score unlike them is bounded by 1 - (alpha / 2)^(1 / n), the exact limit of
      Clopper and Pearson (1934) when there was none, and these are taken to score as badly (or as
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
        # deviates: certain-verdicts
        sure = certain(good, bound, population)
        if sure is not Verdict.UNDECIDED:
            return sure
        return first_verdict(self.path(good[None], np.array([bound]), population)[0, -1:])

    def path(self, scores: FloatArray, bounds: FloatArray, population: int) -> Signs:  # (B, n)
        """Return the verdict of the t-test after each input of many profiles, without failures.

        Without what is `certain`; before `minimum` scores nothing is decided.
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
        # deviates: constant-scores
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
    total = math.fsum(good.tolist())  # exact: equality with the bound must count
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
    """Return the first verdict, signs of shape (n,)."""
    decided = np.flatnonzero(signs)
    if not decided.size:
        return Verdict.UNDECIDED
    return Verdict.ABOVE if signs[decided[0]] > 0 else Verdict.BELOW


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Betting:
    """Capital won by betting against "the mean is at the bound" decides.

    Valid when the inputs are drawn in a random order, every order as likely as any other; for a
    stratified one nothing is proven. Of one configuration: a search that looks at many picks
    those that looked good on the first inputs, and errs on these more often.

    The two sides are bet on separately, each for 1 / alpha: only one of them can be wrong. A
    failed measurement counts as a score equal to the bound, which leaves it open on which side
    the mean of the others is. A verdict once reached stays, whatever is measured after it.
    """

    confidence: float = 0.99  # 1 - alpha, in (0, 1): least chance that no verdict is ever wrong
    # group of alike inputs of every input in the order drawn, shape (N,), fixed before anything
    # was measured; None: no groups are known
    groups: IntArray | None = None

    def __post_init__(self) -> None:
        checks.open_probability("confidence", self.confidence)
        if self.groups is not None:
            groups = self.groups
            good = groups.ndim == 1 and groups.size > 0
            good = good and bool(groups.min() >= 0 and groups.max() < groups.size)
            rule = "must be numbers in [0, inputs), one per input"
            checks.require(good, "groups", rule, groups.tolist())

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:  # (n,)
        """Return whether the mean is decided to be above or below the bound, see `StoppingRule`.

        InvalidInput if a score or the bound is not in [0, 1], n exceeds N, or there are not as
        many groups as inputs.
        """
        check_scores(scores, bound, population)
        if self.groups is not None:
            rule = f"must be of the {population} inputs"
            checks.require(len(self.groups) == population, "groups", rule, len(self.groups))
        if len(scores) == 0:
            return Verdict.UNDECIDED
        known = np.where(np.isnan(scores), bound, scores)
        groups = None if self.groups is None else self.groups[None]
        signs = self.path(known[None], np.array([bound]), population, groups)[0]
        verdict = first_verdict(signs)
        return certain(scores, bound, population) if verdict is Verdict.UNDECIDED else verdict

    def path(
        self,
        scores: FloatArray,  # (B, n)
        bounds: FloatArray,  # (B,)
        population: int,
        groups: IntArray | None = None,  # (B, N)
    ) -> Signs:  # (B, n)
        """Return the verdict by capital after each input of many profiles, without failures."""
        price = 1 / (1 - self.confidence)
        signs = np.zeros(scores.shape, dtype=np.int8)
        width = len(_SIZES) + (0 if groups is None else 4 * (int(groups.max()) + 1))
        step = max(1, _CHUNK // max(scores.shape[1] * width, 1))
        for start in range(0, len(scores), step):
            part = slice(start, start + step)
            of = None if groups is None else groups[part]
            above = capital(scores[part], bounds[part], population, of) >= price
            below = capital(1 - scores[part], 1 - bounds[part], population, of) >= price
            signs[part] = above.astype(np.int8) - below.astype(np.int8)
        return signs


def capital(
    x: FloatArray, bounds: FloatArray, population: int, groups: IntArray | None = None
) -> FloatArray:  # x (B, n), bounds (B,), groups (B, N) -> (B, n)
    """Return the capital, 1 at first, of betting on a mean above the bound, after each input.

    A martingale if the mean is the bound, and falling on average if it is less.
    """
    unseen = population - np.arange(x.shape[1])  # this input included, (n,)
    correction, least = _foretold(x, groups, unseen)
    return wealth(x, correction, least, bounds, population)


def wealth(
    x: FloatArray,  # (B, n)
    correction: FloatArray,  # z - x, of mean 0 over the unseen: broadcasts to (B, n)
    least: FloatArray,  # that z can be, foreseen before each input: broadcasts to (B, n)
    bounds: FloatArray,  # (B,)
    population: int,
) -> FloatArray:  # (B, n)
    """Return the capital of bets on z = x + correction, see `capital`; it falls as bounds rise."""
    before = np.cumsum(x, axis=1) - x
    unseen = population - np.arange(x.shape[1])
    m = (population * bounds[:, None] - before) / unseen
    # The finite population makes the effect on the unseen N / unseen times as large.
    sizes = _SIZES[:, None, None] * (population / unseen)
    bets = np.minimum(sizes, _MOST / np.maximum(m - least, _TINY))  # (sizes, B, n)
    with np.errstate(over="ignore", under="ignore"):  # riches beyond counting, and none
        factors = np.maximum(1 + bets * (x + correction - m), _RUIN)
        each = np.cumprod(factors, axis=-1).mean(axis=0)
    # The scores seen are more than the bound allows for: the mean is above it for certain.
    impossible = np.maximum.accumulate(m < -_TINY, axis=1)
    return np.where(impossible, np.inf, each)


def _foretold(
    x: FloatArray, groups: IntArray | None, unseen: npt.NDArray[np.int64]
) -> tuple[FloatArray, FloatArray]:  # x (B, n), groups (B, N), unseen (n,) -> (B, n), (B, n)
    """Return z - x, and the least that z can be; 0 where no groups are known.

    The mean of z over the unseen is that of x, whatever a group foretells.
    """
    if groups is None:
        return np.zeros(1), np.zeros(1)
    member = groups[:, :, None] == np.arange(int(groups.max()) + 1)  # (B, N, G)
    drawn = member[:, : x.shape[1]]
    drawn_before = np.cumsum(drawn, axis=1) - drawn
    left = member.sum(axis=1)[:, None] - drawn_before
    scored = drawn * x[:, :, None]
    sums = np.cumsum(scored, axis=1) - scored
    every = (sums.sum(axis=2) + 0.5) / (np.arange(x.shape[1]) + 1)
    foretells = (sums + _PRIOR * every[:, :, None]) / (
        drawn_before + _PRIOR
    )  # (B, n, G), in [0, 1]
    mean = (left * foretells).sum(axis=2) / unseen
    own = (drawn * foretells).sum(axis=2)
    highest = np.where(left > 0, foretells, 0.0).max(axis=2)
    return mean - own, mean - highest
