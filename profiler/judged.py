"""The accuracy of a configuration whose outputs a judge scored, and people a few of them.

A judge is cheap and may be wrong; a label is right and dear. The judge's mean over all inputs is
corrected by how far it was off on those with a label: prediction-powered inference, with the power
tuning of Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered inference" (2023).
The interval holds at any time, however often one looks and whenever one stops asking
for labels: bets as in `profiler.betting` on labels corrected by the judge,

    z_i = y_i + lambda_i (h-bar - h_i),

whose mean over the inputs without a label is that of y, whatever the judge says. Here it deviates
from PPI++, whose interval is a normal one for a number of labels fixed beforehand. The one rule:
lambda_i and the bet on input i use nothing that was learnt from label i or later ones, and labels
are of the first inputs in the random order that inputs are drawn in.

    symbol  meaning
    B       number of configurations
    N       number of inputs there are
    n       number of inputs that the judge scored, the first ones of the order
    m       number of them with a label, the first ones of these
    y       a label: the score by people, in [0, 1]
    h       the judge's score of the same output, in [0, 1]
    H       mean of h over all N
    lambda  how far the judge is believed, in [0, 1]: 0 leaves it out of account
    theta   mean of y over all N: what is wanted
    alpha   1 - confidence
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import SURE, Estimate
from circinus.profiler.betting import wealth

_BELIEF, _WEIGHT = 1.0, 0.5
"""lambda before there are labels, and the sum of squares of h that it counts for: as of two labels
of a fair coin. A judge that is no better than chance is found out after few labels."""

_JUDGE_PART = 0.05
"""Of alpha, for H as long as the judge has not scored all inputs. It lengthens the way to
1 / alpha by log(1 / 0.95), 1.4 % of what it takes at 95 %: about so many more labels."""

_HALVINGS = 24  # of [0, 1], to find an end of an interval: to 1e-7


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedScores:
    """What judge and people say of one configuration's outputs, in the order inputs are drawn.

    InvalidInput if scores are not in [0, 1], there are more labels than scores by the judge, or
    more of these than inputs.
    """

    judge: FloatArray  # h, shape (n,), n >= 1
    gold: FloatArray  # y of the first m of them, shape (m,)
    population: int  # N

    def __post_init__(self) -> None:
        for name in ("judge", "gold"):
            scores = getattr(self, name)
            bad = scores[~((scores >= 0) & (scores <= 1))]
            checks.require(not bad.size, name, "must be in [0, 1]", bad[:1].tolist())
        n, m = len(self.judge), len(self.gold)
        checks.require(1 <= n <= self.population, "judge", f"must be 1 to {self.population}", n)
        checks.require(m <= n, "gold", f"must be at most the {n} scores by the judge", m)


def judged_accuracy(scores: JudgedScores, confidence: float = SURE) -> Estimate:
    """Return the mean label over all inputs, as judge and labels tell it, with its interval.

    The interval holds at any number of labels and of scores by the judge at once; without labels
    nothing is known. `inputs` is n.
    """
    n, m = len(scores.judge), len(scores.gold)
    low, high = intervals(scores.gold[None], scores.judge[None], scores.population, confidence)
    value = point_estimate(scores.gold, scores.judge) if m else float(scores.judge.mean())
    value = min(max(value, float(low[0])), float(high[0]))
    return Estimate(
        value=value, low=float(low[0]), high=float(high[0]), confidence=confidence, inputs=n
    )


def bias(scores: JudgedScores, confidence: float = SURE) -> Estimate:
    """Return the mean of label less judge, in [-1, 1], with an interval that holds at any time.

    Below 0: the judge is too kind. `inputs` is m.
    """
    m = len(scores.gold)
    off = scores.gold - scores.judge[:m]
    low, high = intervals((off[None] + 1) / 2, None, scores.population, confidence)
    ends = 2 * float(low[0]) - 1, 2 * float(high[0]) - 1
    value = min(max(float(off.mean()) if m else 0.0, ends[0]), ends[1])
    return Estimate(value=value, low=ends[0], high=ends[1], confidence=confidence, inputs=m)


def point_estimate(gold: FloatArray, judge: FloatArray) -> float:  # (m,), (n,), 1 <= m <= n
    """Return theta by PPI++, with the lambda that its power tuning gives for a mean.

    Their unlabelled inputs are the n - m others here. With u of them lambda of PPI++ is that of a
    regression times u / n; so it is the regression's for the mean over all n less the labelled's.
    """
    m = len(gold)
    labelled = judge[:m]
    spread = float(judge.var(ddof=1)) if len(judge) > 1 else 0.0
    together = float(((gold - gold.mean()) * (labelled - labelled.mean())).mean())
    tuned = min(max(together / spread, 0.0), 1.0) if spread > 0 else 0.0
    return float(gold.mean() + tuned * (judge.mean() - labelled.mean()))


def intervals(
    gold: FloatArray,  # (B, m)
    judge: FloatArray | None,  # (B, n); None: there is no judge, labels stand alone
    population: int,
    confidence: float = SURE,
) -> tuple[FloatArray, FloatArray]:  # (B,), (B,)
    """Return the ends of anytime-valid intervals for theta, each side at alpha / 2.

    An end is where the capital of whoever bets against it has been as high as 2 / alpha: the
    intervals of fewer labels hold as well, so that more labels never widen one.
    """
    alpha = (1 - confidence) / 2
    if judge is None:
        low = _lowest(gold, None, population, alpha)
        high = 1 - _lowest(1 - gold, None, population, alpha)
        return low, np.maximum(low, high)
    low = _with_judge(gold, judge, population, alpha)
    high = 1 - _with_judge(1 - gold, 1 - judge, population, alpha)
    return low, np.maximum(low, high)


def believed(y: FloatArray, h: FloatArray) -> FloatArray:  # (B, m), (B, m) -> (B, m)
    """Return lambda before each label: the regression of earlier labels on judge's scores."""
    before = np.maximum(np.arange(y.shape[1]), 1)

    def earlier(values: FloatArray) -> FloatArray:
        return np.asarray(np.cumsum(values, axis=1) - values)

    together = earlier(y * h) - earlier(y) * earlier(h) / before
    spread = np.maximum(earlier(h * h) - earlier(h) ** 2 / before, 0.0)
    return np.asarray(np.clip((together + _BELIEF * _WEIGHT) / (spread + _WEIGHT), 0.0, 1.0))


def _with_judge(
    y: FloatArray, judge: FloatArray, population: int, alpha: float
) -> FloatArray:  # (B, m), (B, n) -> (B,)
    """Return the lower ends: z rises with H, and the capital too if bets do not know it.

    So the least that H may be, by the judge's scores so far, says no more than H itself would.
    """
    m = y.shape[1]
    if not m:
        return np.zeros(len(y))
    known, part = judge.shape[1] == population, _JUDGE_PART * alpha
    mean = judge.mean(axis=1) if known else _lowest(judge, None, population, part)
    h, unseen = judge[:, :m], population - np.arange(m)
    ahead = (population * mean[:, None] - np.cumsum(h, axis=1) + h) / unseen
    ahead, trust = np.clip(ahead, 0.0, 1.0), believed(y, h)
    # What z is for y = 0 and h = 1; where H is not known, as if nothing ahead scored above 0.
    floor = trust * (ahead - 1 if known else -1)
    return _lowest(y, (trust * (ahead - h), floor), population, alpha - part)


def _lowest(
    y: FloatArray,  # (B, m)
    judged: tuple[FloatArray, FloatArray] | None,  # z - y and the least z can be, (B, m) each
    population: int,
    alpha: float,
) -> FloatArray:  # (B,)
    """Return the largest theta that was bet against with success, or is impossible."""
    low: FloatArray = y.sum(axis=1) / population
    high: FloatArray = np.ones(len(y))
    correction, floor = (np.zeros(1), np.zeros(1)) if judged is None else judged
    for _ in range(_HALVINGS if y.shape[1] else 0):
        middle = (low + high) / 2
        won = wealth(y, correction, floor, middle, population).max(axis=1) >= 1 / alpha
        low, high = np.where(won, middle, low), np.where(won, high, middle)
    return np.asarray(low)
