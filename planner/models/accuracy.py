"""Model of the accuracy of every candidate: a process over knobs that observes mean scores.

Every few inputs that a configuration meets are an observation of its mean, with the noise that
`planner.models.score_noise` gives them: shared with the other configurations that met the same
inputs. Where operators draw, an observation is of the mean over inputs of means over draws, and
`planner.models.estimates` computes what it is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from scipy.special import ndtri

from circinus.pipelines.model.configuration import ConfigurationSpace, IndexArray
from circinus.pipelines.model.draws import means_of_inputs
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.slo import Estimate
from circinus.planner.models.estimates import (
    CONFIDENCE,
    Drawn,
    Repeats,
    accuracy_estimate,
    fraction_estimate,
    part_within,
)
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.models.knob_process import KnobKernel, KnobProcess, correlations
from circinus.planner.models.score_noise import (
    Increment,
    NoiseModel,
    between,
    increment,
    learnt,
    score_variance,
    worth,
)

_MEAN, _CONSTANT, _EFFECTS, _TOGETHER = 0.6, 0.03, 0.05, 0.012
"""Accuracies before anything is known: mean, and variances of what is common to all, of all knobs'
own effects together, of what knobs do together."""
_OTHER_OWN, _OTHER_SHIFT, _BETWEEN = 0.05, 0.002, 0.003
"""How accuracies differ between queries: see `KnobKernel.own` and `shift`; variance of the mean of
a configuration between them."""
_REPEATS_GROWTH = 1.5  # times as many repeats after which models are fitted anew
_OWN_EASED = 0.5  # deviations less that a configuration's own scores must be ahead by
_UNSURE, _LEARNT_FROM = 1.3, 100
"""Times the variance of accuracies: hyper-parameters and noise are guesses that the process takes
for known. Truth lay 1.1 to 1.3 deviations about its predictions; and 1.6 costs a tenth more. Where
so many configurations are recalled, hyper-parameters are learnt from them and no guesses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accuracies:
    """Predictions for all candidates."""

    mean: FloatArray  # shape (C,)
    variance: FloatArray  # shape (C,)
    part: float  # p of `planner.models.score_noise`: how much single scores vary
    drawn: Drawn | None = None  # what measurements are worth where operators draw; None: none does

    def worth(self, inputs: FloatArray, population: int) -> FloatArray:
        """Return what so many measurements are worth, same shape."""
        return worth(inputs, population) if self.drawn is None else self.drawn.worth(inputs)

    def at(self, rows: IndexArray) -> Accuracies:
        """Return the same of some candidates."""
        return replace(self, mean=self.mean[rows], variance=self.variance[rows])

    def sure_of(
        self,
        row: int,
        scores: FloatArray,
        population: int,
        z: float,
        mean: float | None = None,  # of inputs' means over draws; None: that of the scores
    ) -> float:
        """Return what an accuracy is at least, by the models and by its own n scores alone.

        Both have to show it: models may be wrong, and of many configurations the luckiest is
        looked at. The own scores, which know nothing of the others, are granted half a deviation.
        """
        mean = float(scores.mean()) if mean is None else mean
        noise = float(score_variance(np.array(mean), self.part))
        own = sqrt(noise / float(self.worth(np.array(float(len(scores))), population)))
        modelled = float(self.mean[row]) - z * sqrt(float(self.variance[row]))
        return min(modelled, mean - (z - _OWN_EASED) * own)

    def estimate(self, row: int, scores: FloatArray, population: int) -> Estimate:
        """Return an accuracy with its interval: the posterior, exact where all inputs are met.

        A configuration is looked at because its scores are good, and its interval as often as
        the search likes: one that rests on these scores alone is too high. The posterior draws
        them towards the estimates of alike configurations, whose scores on the same inputs are
        known to be lucky together (`docs/studies/planning.md` has what it covers).
        """
        if self.drawn is None and len(scores) >= population:
            return accuracy_estimate(scores, population=population)
        mean = min(max(float(self.mean[row]), 0.0), 1.0)
        half = float(ndtri((1 + CONFIDENCE) / 2)) * sqrt(float(self.variance[row]))
        low, high, inputs = mean - half, mean + half, len(scores)
        return fraction_estimate(mean, low, high, confidence=CONFIDENCE, inputs=inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Measurements that were taken in at once, where operators draw."""

    row: int
    n: tuple[int, int]  # measurements before and after
    means: tuple[float, float]  # over inputs of means over draws, before and after

    def increment(self, drawn: Drawn, deviation: float) -> Increment:
        start, stop = drawn.worth(np.array(self.n)).tolist()
        return between(self.row, (start, stop), self.means, deviation=deviation)


def _span(row: int, before: int, scores: FloatArray, inputs: IntArray) -> _Span:
    means = [
        float(means_of_inputs(inputs[:n], scores[:n]).mean()) if n else 0.0
        for n in (before, len(scores))
    ]
    return _Span(row=row, n=(before, len(scores)), means=(means[0], means[1]))


class AccuracyModel:
    """Learns from the scores of measured configurations."""

    def __init__(
        self,
        space: ConfigurationSpace,
        population: int,
        knobs: IndexArray,  # value indices of the candidates, (C, knobs)
        *,
        ordered: bool = True,  # whether neighbouring values of ordered knobs are alike
        paired: bool = True,  # whether noise is shared by configurations that met the same inputs
        draws: bool = False,  # whether an operator draws
    ) -> None:
        self._drawn = Drawn(population) if draws else None
        self._inputs: dict[int, IntArray] = {}  # that scores are of, where operators draw
        self._spans: list[_Span] = []  # of the increments, where operators draw
        self._repeats_at = 1  # repeats of an input at which q is estimated anew
        self._knobs = knobs
        self._population = population
        self._paired = paired
        self._noise = self._shared(NoiseModel())
        self._scores: dict[int, FloatArray] = {}
        self._increments: list[Increment] = []
        self._guessed = True
        choices = sum(radix > 1 for radix in space.radices)
        kernel = KnobKernel(
            mean=_MEAN,
            constant=_CONSTANT,
            effects=(_EFFECTS / max(choices, 1),) * choices,
            interaction=_TOGETHER,
        )
        slots = space.graph.slots
        flags = tuple(ordered and bool(slot.knob.ordered) for slot in slots)
        self._process = KnobProcess(knobs, correlations(space.radices, flags), kernel)

    @property
    def observations(self) -> int:
        """How many were taken in."""
        return len(self._increments)

    def recall(self, rows: Sequence[int], earlier: Sequence[ConfigurationRecord]) -> None:
        """Start from what earlier queries measured of rows, at least one, before any of this."""
        self._guessed = len(rows) < _LEARNT_FROM
        means = np.array([one.accuracy for one in earlier])
        inputs = np.array([one.inputs for one in earlier], dtype=float)
        noise = score_variance(means, self._noise.part) / inputs + _BETWEEN
        self._process.recall(rows, means, noise, own=_OTHER_OWN, shift=_OTHER_SHIFT)

    @property
    def is_out_of_date(self) -> bool:
        """Whether so many inputs were drawn again that models should be fitted anew."""
        return self._repeats >= self._repeats_at

    def observe(self, row: int, scores: FloatArray, inputs: IntArray | None = None) -> None:
        """Learn all scores of a candidate, those known before included; no new ones: nothing.

        Where operators draw with the inputs that they are of, (n,).
        """
        before = self._scores.get(row, np.zeros(0))
        self._scores[row] = scores
        if len(scores) <= len(before):
            return
        deviation = float(self._deviations([row])[0])
        if self._drawn is None or inputs is None:
            step = increment(row, before, scores, self._population, deviation=deviation)
        else:
            self._drawn, self._inputs[row] = self._drawn.following(inputs), inputs
            self._spans.append(_span(row, len(before), scores, inputs))
            step = self._spans[-1].increment(self._drawn, deviation)
        self._increments.append(step)
        apart = self._apart([row], [i.row for i in self._increments])
        noise = self._noise.covariances(self._increments, [step], apart)[0]
        self._process.add(row, step.value, noise)

    def refit(self) -> None:
        """Choose noise and hyper-parameters anew."""
        rows = list(self._scores)
        means = np.asarray(self._process.mean)
        scores = [self._scores[row] for row in rows]
        self._noise = self._shared(learnt(scores, means[rows], self._apart(rows, rows)))
        met = [step.row for step in self._increments]
        deviations = self._deviations(met).tolist()
        steps = zip(self._increments, deviations, strict=True)
        every = [replace(step, deviation=to) for step, to in steps]
        if self._drawn is not None:
            self._repeats_at = int(_REPEATS_GROWTH * self._repeats) + 1
            drawn = self._drawn = self._drawn.of_part(part_within(self._repeated()))
            spans = zip(self._spans, deviations, strict=True)
            every = [span.increment(drawn, to) for span, to in spans]
        self._increments = every
        self._process.refit(self._noise.covariances(every, every, self._apart(met, met)))

    def predict(self) -> Accuracies:
        """Return predictions from observed or recalled configurations, at least one."""
        process = self._process
        widened = (_UNSURE if self._guessed else 1.0) * max(1.0, process.squared_residual)
        return Accuracies(
            mean=process.mean,
            variance=process.variance * widened,
            part=self._noise.part,
            drawn=self._drawn,
        )

    @property
    def _repeats(self) -> int:
        """Number of draws beyond the first of each input, of the configuration with most."""
        if self._drawn is None:
            return 0
        return max((len(met) - len(np.unique(met)) for met in self._inputs.values()), default=0)

    def _repeated(self) -> list[Repeats]:
        rows = list(self._inputs)
        variances = np.square(self._deviations(rows)).tolist()
        return [
            Repeats.of(self._inputs[row], self._scores[row], variance)
            for row, variance in zip(rows, variances, strict=True)
        ]

    def _shared(self, noise: NoiseModel) -> NoiseModel:
        return noise if self._paired else replace(noise, shared=0.0, near=0.0)

    def _deviations(self, rows: Sequence[int]) -> FloatArray:
        """Return how far single scores of configurations are off, shape (n,)."""
        means = np.asarray(self._process.mean)
        return np.sqrt(score_variance(means[rows], self._noise.part))

    def _apart(self, rows: Sequence[int], others: Sequence[int]) -> FloatArray:
        """Return in how many knobs configurations differ, shape (rows, others)."""
        unlike = self._knobs[rows][:, None] != self._knobs[others]
        return np.asarray(unlike.sum(axis=2), dtype=np.float64)
