"""Labels by people for what a judge scored: which there are, which are wanted, what they say.

A label is of an output on an input, so configurations that give the same have it together. The one
rule: labels are wanted in the order in which inputs are drawn, whatever judge and labels say. Only
then are they a random sample, and the intervals of `profiler.judged` hold.
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
from circinus.pipelines.model.slo import Estimate
from circinus.profiler.journal import Journal
from circinus.profiler.judged import JudgedScores, bias, judged_accuracy

_FEWEST = 8  # labels wanted at once: people are not asked for one at a time
_PILOT, _PILOT_PART = 16, 5  # labels that tell what the judge is like; at most a fifth of all
_LOG_PRICE = 7.5
"""What (gap / deviation)^2 times the labels comes to where bets decide: about 2 log(2 / 0.05)."""
_LEAST_GAP = 0.02  # between estimate and bound: closer ones are not known to be so close
_TRUSTED = 5.0  # labels' weight of the judge being right, before there are labels
_LEAST_SENSE = 0.2  # of its scores of good outputs over those of bad ones: less tells nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLabel:
    """An output that people are asked to score."""

    label: str  # what it is called: equal for equal outputs on equal inputs
    input: int  # index in the data
    configuration: Configuration  # one that gave it
    given: Payload  # the input
    output: Payload  # what to score
    expected: Payload  # what the output should have been
    judge: float  # what the judge said, in [0, 1]


Ask = Callable[[Sequence[WantedLabel]], Mapping[str, float]]
"""Returns the labels of those that people scored, in [0, 1] each; of none where they would not."""


@dataclass(kw_only=True)
class Labelling:
    """What is known of a judge on one data set; a `planner.plans.auditing.Audit`.

    An audit may use half of the labels that are left, so that one too close to call leaves some to
    others. InvalidInput if a label is not in [0, 1].
    """

    dataset: Dataset
    journal: Journal  # has the outputs that were judged
    labels: dict[str, float] = field(default_factory=dict)  # those there are, by name
    budget: int = 0  # most labels, those given at first included, `>= 0`
    ask: Ask | None = None  # has people score; None: they are told afterwards what is wanted
    wanted: dict[str, WantedLabel] = field(default_factory=dict, init=False)  # by name, in order
    _pairs: dict[str, tuple[float, float]] = field(default_factory=dict, init=False)
    _estimates: dict[Configuration, tuple[object, Estimate]] = field(
        default_factory=dict, init=False, repr=False
    )
    # What was asked for last of each: its profile, which inputs count, of how many.
    _seen: dict[Configuration, tuple[Profile, BoolArray, int]] = field(
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
        """How many more labels may be asked for."""
        return max(self.budget - len(self.labels) - len(self.wanted), 0)

    def accuracy(
        self, profile: Profile, kept: BoolArray, *, population: int, bound: float | None
    ) -> Estimate:
        """Return the accuracy of a configuration, see `Audit.accuracy`."""
        self._seen[profile.configuration] = (profile, kept, population)
        names, judge = self._judged(profile, kept)
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
            chosen = [self._wanted(profile, kept, names, i) for i in missing[:count]]
            most -= count
            if not self._asked(list({one.label: one for one in chosen}.values())):
                return known

    def pilot(self, profile: Profile, kept: BoolArray) -> None:
        """Ask for a few labels of a configuration, see `Audit.pilot`."""
        names, _ = self._judged(profile, kept)
        count = min(_PILOT, self.left // _PILOT_PART)
        missing = [i for i, name in enumerate(names[:_PILOT]) if name not in {"", *self.labels}]
        self._asked([self._wanted(profile, kept, names, i) for i in missing[:count]])

    def bias(self, configuration: Configuration) -> Estimate:
        """Return the mean of label less judge over a configuration's outputs, see `judged.bias`.

        Of one whose accuracy was asked for.
        """
        profile, kept, population = self._seen[configuration]
        names, judge = self._judged(profile, kept)
        return bias(self._scores(names, judge, population))

    def corrected(self, scores: FloatArray) -> FloatArray:  # (n,) -> (n,)
        """Return what the judge's scores of a configuration are worth by all labels so far.

        What it says of good and of bad outputs is alike for all configurations, not what its
        scores mean: so their mean is that of outputs which it would score so. Each is drawn
        towards 0 or 1 for it. Where there are few labels the judge is taken to be right.
        """
        if not self._pairs or not len(scores):
            return scores
        y, h = np.array(list(self._pairs.values())).T
        basis, prior = np.stack([1 - y, y]), np.array([0.0, 1.0])
        squares = basis @ basis.T + _TRUSTED * np.eye(2)
        of_bad, of_good = np.linalg.solve(squares, basis @ h + _TRUSTED * prior)
        mean = float(scores.mean())
        told = (mean - of_bad) / max(of_good - of_bad, _LEAST_SENSE)
        wanted = min(max(told, 0.0), 1.0)
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

    def _judged(self, profile: Profile, kept: BoolArray) -> tuple[list[str], FloatArray]:
        """Return names and judge's scores of counted outputs; no name: it failed, score 0."""
        failed = {failure.input for failure in profile.failures}
        inputs = profile.inputs[kept].tolist()
        names = ["" if i in failed else self._name(profile.configuration, i) for i in inputs]
        judge = profile.score[kept]
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

    def _asked(self, chosen: Sequence[WantedLabel]) -> bool:
        """Ask for labels, and say whether there are new ones."""
        if not chosen:
            return False
        if self.ask is None:
            self.wanted |= {one.label: one for one in chosen}
            return False
        given = self.ask(chosen)
        for one in chosen:
            if one.label in given:
                score = given[one.label]
                checks.probability(f"label {one.label}", score)
                self.labels[one.label] = score
                self._pairs[one.label] = (score, one.judge)
        return any(one.label in given for one in chosen)

    def _name(self, configuration: Configuration, index: int) -> str:
        known = self._outputs.get((configuration, index))
        if known is None:
            for measured in self.journal.recall(configuration):
                if measured.output is not None and measured.draw == 0:
                    given = content_hash(self.dataset.examples[measured.input].input).encode()
                    digest = blake2b(given + b" " + measured.output, digest_size=8)
                    self._outputs[configuration, measured.input] = digest.hexdigest()
            known = self._outputs[configuration, index]
        return known

    def _wanted(
        self, profile: Profile, kept: BoolArray, names: Sequence[str], position: int
    ) -> WantedLabel:
        index = int(profile.inputs[kept][position])
        example = self.dataset.examples[index]
        recalled = self.journal.recall(profile.configuration)
        output = next(one.output for one in recalled if (one.input, one.draw) == (index, 0))
        return WantedLabel(
            label=names[position],
            input=index,
            configuration=profile.configuration,
            given=example.input,
            output=None if output is None else decode(output),
            expected=example.expected,
            judge=float(profile.score[kept][position]),
        )
