"""Labels by people for what a judge scored: which there are, which are wanted, what follows.

A label is of an output on an input, so configurations that give the same have it together. The one
rule: labels are wanted in the order in which inputs are drawn, whatever their scores. Only
then are they a random sample, and the intervals of `judged_accuracy` hold.

A judge is cheap and may be wrong; a label is right and dear. The judge's mean over all inputs is
corrected by how far it was off on those with a label: prediction-powered inference, with the power
tuning of Angelopoulos, Duchi and Zrnic, "PPI++: efficient prediction-powered inference" (2023).
The interval holds at any time, however often one looks and whenever one stops asking
for labels: bets as of `profiler.stopping.Betting` on labels corrected by the judge,

    z_i = y_i + lambda_i (h-bar - h_i),

whose mean over the inputs without a label is that of y, whatever the judge does. Here it deviates
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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from math import ceil

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.payload import Payload, content_hash, decode
from circinus.pipelines.model.profile import BoolArray, FloatArray, Profile
from circinus.pipelines.model.slo import SURE, Estimate
from circinus.profiler.journal import Journal
from circinus.profiler.stopping import wealth

_FEWEST = 8  # labels wanted at once: people do not score one at a time
_PILOT, _PILOT_PART = 16, 5  # labels that measure the judge; at most a fifth of all
_LOG_PRICE = 7.5
"""What (gap / deviation)^2 times the labels comes to where bets decide: about 2 log(2 / 0.05)."""
_LEAST_GAP = 0.02  # between estimate and bound: closer ones are not known to be so close
_TRUSTED = 5.0  # labels' weight of the judge being right, before there are labels
_LEAST_SENSE = 0.2  # of its scores of good outputs over those of bad ones: less has no use


_BELIEF, _WEIGHT = 1.0, 0.5
"""lambda before there are labels, and the sum of squares of h that it counts for: as of two labels
of a fair coin. A judge that is no better than chance is detected after few labels."""
_JUDGE_PART = 0.05
"""Of alpha, for H as long as the judge has not scored all inputs. It lengthens the way to
1 / alpha by log(1 / 0.95), 1.4 % of what it takes at 95 %: about so many more labels."""
_HALVINGS = 24  # of [0, 1], to find an end of an interval: to 1e-7


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLabel:
    """An output for people to score."""

    label: str  # what it is called: equal for equal outputs on equal inputs
    input: int  # index in the data
    configuration: Configuration  # one that returned it
    payload: Payload  # of the input
    output: Payload  # what to score
    expected: Payload  # what the output should have been
    judge: float  # the judge's score, in [0, 1]


Ask = Callable[[Sequence[WantedLabel]], Mapping[str, float]]
"""Returns the labels of those that people scored, in [0, 1] each; of none where they would not."""


@dataclass(kw_only=True)
class Labelling:
    """The labels of a judge on one data set; a `planner.search.auditing.Audit`.

    An audit may use half of the labels that are left, so that one too close to call leaves some to
    others. InvalidInput if a label is not in [0, 1].
    """

    dataset: Dataset
    journal: Journal  # has the outputs that were judged
    labels: dict[str, float] = field(default_factory=dict)  # those there are, by name
    budget: int = 0  # most labels, the initial ones included, `>= 0`
    ask: Ask | None = None  # has people score; None: what is wanted is reported afterwards
    wanted: dict[str, WantedLabel] = field(default_factory=dict, init=False)  # by name, in order
    _pairs: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _estimates: dict[Configuration, tuple[object, Estimate]] = field(
        default_factory=dict, init=False, repr=False
    )
    # The latest request for each: its profile, which inputs count, of how many.
    _latest: dict[Configuration, tuple[Profile, BoolArray, int]] = field(
        default_factory=dict, init=False, repr=False
    )
    _outputs: dict[tuple[Configuration, int], str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        checks.at_least("metric.label_budget", self.budget, 0)
        self.labels = dict(self.labels)
        for name, score in self.labels.items():
            checks.probability(f"metric.gold, label {name}", score)

    @property
    def left(self) -> int:
        """How many more labels may be requested."""
        return max(self.budget - len(self.labels) - len(self.wanted), 0)

    def accuracy(
        self, profile: Profile, included: BoolArray, *, population: int, bound: float | None
    ) -> Estimate:
        """Return the accuracy of a configuration, see `Audit.accuracy`."""
        self._latest[profile.configuration] = (profile, included, population)
        names, judge = self._judged(profile, included)
        most = min(max(self.left - self.left // 2, _FEWEST), self.left)
        while True:
            known = self._known(profile.configuration, self._scores(names, judge, population))
            if bound is None or not known.low < bound <= known.high:
                return known
            missing = [i for i, name in enumerate(names) if name and name not in self.labels]
            labelled = len(names) - len(missing)
            count = min(self._more(known, bound, labelled), most)
            if self.ask is not None:  # a few at a time: they may decide sooner
                count = min(count, max(labelled // 2, _FEWEST))
            chosen = [self._wanted(profile, included, names, i) for i in missing[:count]]
            most -= count
            if not self._request(list({one.label: one for one in chosen}.values())):
                return known

    def pilot(self, profile: Profile, included: BoolArray) -> None:
        """Ask for a few labels of a configuration, see `Audit.pilot`."""
        names, _ = self._judged(profile, included)
        count = min(_PILOT, self.left // _PILOT_PART)
        missing = [i for i, name in enumerate(names[:_PILOT]) if name not in {"", *self.labels}]
        self._request([self._wanted(profile, included, names, i) for i in missing[:count]])

    def bias(self, configuration: Configuration) -> Estimate:
        """Return the mean of label less judge over a configuration's outputs, see `judged.bias`.

        Of one whose accuracy was requested.
        """
        profile, included, population = self._latest[configuration]
        names, judge = self._judged(profile, included)
        return bias(self._scores(names, judge, population))

    def corrected(self, scores: FloatArray) -> FloatArray:  # (n,) -> (n,)
        """Return what the judge's scores of a configuration are worth by all labels so far.

        Its scores of good and of bad outputs are alike for all configurations, what they mean is
        not: so their mean is that of outputs which it would score so. Each is drawn
        towards 0 or 1 for it. Where there are few labels the judge is taken to be right.
        """
        if not self._pairs or not len(scores):
            return scores
        y, h = np.array(list(self._pairs.values())).T
        basis, prior = np.stack([1 - y, y]), np.array([0.0, 1.0])
        squares = basis @ basis.T + _TRUSTED * np.eye(2)
        of_bad, of_good = np.linalg.solve(squares, basis @ h + _TRUSTED * prior)
        mean = float(scores.mean())
        right = (mean - of_bad) / max(of_good - of_bad, _LEAST_SENSE)
        wanted = min(max(right, 0.0), 1.0)
        if wanted <= mean:
            return np.asarray(scores * (wanted / mean if mean > 0 else 1.0))
        return np.asarray(1 - (1 - scores) * ((1 - wanted) / (1 - mean)))

    def _known(self, configuration: Configuration, scores: JudgedScores) -> Estimate:
        """Return the accuracy by such scores; worked out once while they are the same."""
        key = (scores.judge.tobytes(), scores.gold.tobytes(), scores.population)
        before = self._estimates.get(configuration)
        if before is None or before[0] != key:
            before = self._estimates[configuration] = (key, judged_accuracy(scores))
        return before[1]

    def _judged(self, profile: Profile, included: BoolArray) -> tuple[list[str], FloatArray]:
        """Return names and judge's scores of counted outputs; no name: it failed, score 0."""
        failed = {failure.input for failure in profile.failures}
        inputs = profile.inputs[included].tolist()
        names = ["" if i in failed else self._name(profile.configuration, i) for i in inputs]
        judge = profile.score[included]
        for name, score in zip(names, judge.tolist(), strict=True):
            if name in self.labels:
                self._pairs[name] = (self.labels[name], score)
        return names, judge

    def _scores(self, names: Sequence[str], judge: FloatArray, population: int) -> JudgedScores:
        """Return the scores with the labels of the first outputs, up to the first without one."""
        gold = list[float]()
        for name in names:
            if name and name not in self.labels:
                break
            gold.append(self.labels[name] if name else 0.0)
        return JudgedScores(judge=judge, gold=np.array(gold), population=population)

    def _more(self, known: Estimate, bound: float, labelled: int) -> int:
        """Return how many more labels are likely to decide."""
        off = [(gold - judge) ** 2 for gold, judge in self._pairs.values()]
        # As of a judge that is wrong on one in ten, with the weight of some labels.
        variance = (sum(off) + 0.1 * _FEWEST) / (len(off) + _FEWEST)
        gap = max(abs(known.value - bound), _LEAST_GAP)
        return max(ceil(_LOG_PRICE * variance / gap**2) - labelled, _FEWEST)

    def _request(self, chosen: Sequence[WantedLabel]) -> bool:
        """Request labels, and return whether there are new ones."""
        if not chosen:
            return False
        if self.ask is None:
            self.wanted |= {one.label: one for one in chosen}
            return False
        scores = self.ask(chosen)
        for one in chosen:
            if one.label in scores:
                score = scores[one.label]
                checks.probability(f"label {one.label}", score)
                self.labels[one.label] = score
                self._pairs[one.label] = (score, one.judge)
        return any(one.label in scores for one in chosen)

    def _name(self, configuration: Configuration, index: int) -> str:
        known = self._outputs.get((configuration, index))
        if known is None:
            for measured in self.journal.recall(configuration):
                if measured.output is not None and measured.draw == 0:
                    content = content_hash(self.dataset.examples[measured.input].input).encode()
                    digest = blake2b(content + b" " + measured.output, digest_size=8)
                    self._outputs[configuration, measured.input] = digest.hexdigest()
            known = self._outputs[configuration, index]
        return known

    def _wanted(
        self, profile: Profile, included: BoolArray, names: Sequence[str], position: int
    ) -> WantedLabel:
        index = int(profile.inputs[included][position])
        example = self.dataset.examples[index]
        recalled = self.journal.recall(profile.configuration)
        output = next(one.output for one in recalled if (one.input, one.draw) == (index, 0))
        return WantedLabel(
            label=names[position],
            input=index,
            configuration=profile.configuration,
            payload=example.input,
            output=None if output is None else decode(output),
            expected=example.expected,
            judge=float(profile.score[included][position]),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JudgedScores:
    """Scores by judge and people of one configuration's outputs, in the order inputs are drawn.

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
    """Return the mean label over all inputs, by judge and labels, with its interval.

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

    An end is where the capital of a bet against it has been as high as 2 / alpha: the
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

    So the least that H may be, by the judge's scores so far, claims no more than H itself would.
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
