"""Measures configurations on as few inputs as it takes to know.

Inputs are added until the stopping rule decides on accuracy or the population ends.
A configuration is left earlier when its latency is hopeless: at 10, 20, 40, ...
inputs, if even the lower end of the 99.9 % interval exceeds the SLO at full shares
on every placement. Ten, because a t-interval on fewer follows single outliers; few
looks and a high confidence, because a looked-at-often interval errs more often than
it says (over eight looks still below 1 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from pipelines import checks
from pipelines.configuration import Configuration
from pipelines.evaluation import Evaluator, StoppingRule, Verdict
from pipelines.latency import Work
from pipelines.profile import Failure, FloatArray, Profile
from pipelines.slo import Estimate
from planner.estimates import accuracy_estimate, latency_at_least
from planner.placement import Placements
from planner.prediction import (
    Scene,
    condensed,
    effective_latencies,
    effective_latency,
    predict,
)
from planner.strategy import Observation

_ONE_BY_ONE = 500
"""Up to so many inputs every one is looked at, so that nothing is paid after a decision;
beyond, every hundredth of what is measured, because every look reads all of it."""

_STEP_PART = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLooks:
    """When a hopeless latency ends a measurement.

    Attributes:
        first: Inputs at the first look, each next at twice as many, `>= 2`.
        confidence: Of the interval at each look, in (0, 1).
        accepted: Fewest inputs of an accepted configuration, unless there are fewer, `>= 1`.
            20: accuracy may be decided sooner, but what is promised of latency rests on them too.
    """

    first: int = 10
    confidence: float = 0.999
    accepted: int = 20

    def __post_init__(self) -> None:
        checks.require(self.first >= 2, "latency_looks.first", "must be >= 2", self.first)
        rule = "must be in (0, 1)"
        checks.require(0 < self.confidence < 1, "latency_looks.confidence", rule, self.confidence)
        least = "must be >= 1"
        checks.require(self.accepted >= 1, "latency_looks.accepted", least, self.accepted)


class Ending(StrEnum):
    """Why measuring a configuration ended."""

    ACCURATE = "accurate"
    """The mean score is decided to be at least the SLO."""
    INACCURATE = "inaccurate"
    """It is decided to be below."""
    SLOW = "slow"
    """Latency is clearly violated on every placement; accuracy was not decided."""
    PARTIAL = "partial"
    """It met as many inputs as were asked for; accuracy is not decided."""
    CUT_OFF = "cut off"
    """A limit or a cancellation came first."""


_VERDICTS = {Ending.ACCURATE: Verdict.ABOVE, Ending.INACCURATE: Verdict.BELOW}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Measured:
    """A configuration that gave a score on every input it met.

    Attributes:
        number: Of the configuration.
        configuration: What was measured.
        ending: Why measuring ended.
        scores: Shape (n,), n >= 1.
        work: On the same inputs.
        accuracy: Mean score with its interval.
        latency_s: Least latency over placements at full shares, waits for copies included; above
            the SLO when the machines do not hold the copies.
        profile: All that is known of it.
    """

    number: int
    configuration: Configuration
    ending: Ending
    scores: FloatArray
    work: Work
    accuracy: Estimate
    latency_s: float
    profile: Profile

    @property
    def inputs(self) -> int:
        """n, the number of inputs measured."""
        return len(self.scores)

    @property
    def verdict(self) -> Verdict:
        """What the stopping rule says of the scores."""
        return _VERDICTS.get(self.ending, Verdict.UNDECIDED)

    def observation(self, best_cost: float | None = None) -> Observation:
        """Give what a strategy is told of it, and of the cheapest plan of the others."""
        return Observation(
            scores=self.scores,
            work=self.work,
            latency_s=self.latency_s,
            verdict=self.verdict,
            best_cost=best_cost,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A configuration that failed on an input: it never enters a model or a front.

    Attributes:
        number: Of the configuration.
        configuration: What was measured.
        failure: The first one.
        inputs: How many inputs it was measured on.
        profile: All that is known of it.
    """

    number: int
    configuration: Configuration
    failure: Failure
    inputs: int
    profile: Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Everything that measuring needs, the same for all configurations of a search.

    Attributes:
        scene: The query and where it runs.
        placements: All of them.
        evaluator: Who measures.
        rule: Decides on accuracy; None: nothing does before all inputs are met.
        looks: When latency ends it.
        must_stop: Asked after every step, with the inputs met so far of what is being measured:
            whether a limit or a cancellation ends the search.
    """

    scene: Scene
    placements: Placements
    evaluator: Evaluator
    rule: StoppingRule | None
    looks: LatencyLooks
    must_stop: Callable[[int], bool]

    @property
    def population(self) -> int:
        """Number of inputs there are."""
        return self.evaluator.population


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A configuration to be measured on so many inputs, decided or not.

    Attributes:
        number: Of the configuration.
        configuration: What to measure.
        inputs: In all, in [1, population].
        met: How many of them it has met already, `>= 0`.
    """

    number: int
    configuration: Configuration
    inputs: int
    met: int = 0


def measure_each(bench: Bench, wanted: Sequence[Wanted]) -> tuple[Measured | Failed, ...]:
    """Give what configurations score and take, each on as many inputs as are wanted.

    As many measurements are made at once as the evaluator makes, and limits are looked at after
    each time: what is left is cut off.

    Args:
        bench: With what to measure.
        wanted: Unlike configurations, at most as many as are measured at once.
    """
    profiles: dict[int, Profile] = {}
    while goals := _goals(wanted, profiles, bench.evaluator.width):
        asked = [(wanted[i].configuration, inputs) for i, inputs in goals.items()]
        profiles.update(zip(goals, bench.evaluator.measure_each(asked), strict=True))
        if bench.must_stop(sum(len(profile.inputs) for profile in profiles.values())):
            break
    return tuple(_ended(bench, one, profiles[i]) for i, one in enumerate(wanted))


def _goals(
    wanted: Sequence[Wanted], profiles: Mapping[int, Profile], width: int
) -> dict[int, int]:
    """Give on how many inputs to measure which next: one more of each, the rest of the first."""
    goals: dict[int, int] = {}
    for i, one in enumerate(wanted):
        profile = profiles.get(i)
        met = one.met if profile is None else len(profile.inputs)
        if profile is None or (met < one.inputs and _failure(profile) is None):
            goals[i] = min(met + 1, one.inputs)
    idle = width - len(goals)
    for i, goal in goals.items():
        more = min(wanted[i].inputs - goal, idle)
        goals[i], idle = goal + more, idle - more
    return goals


def _ended(bench: Bench, wanted: Wanted, profile: Profile) -> Measured | Failed:
    if (failure := _failure(profile)) is not None:
        return _gave_nothing(wanted.number, profile, failure)
    ending = Ending.CUT_OFF
    if len(profile.inputs) >= wanted.inputs:
        ending = _judged(bench, profile) or Ending.PARTIAL
    return _measured(bench, wanted.number, profile, ending)


def measure(bench: Bench, number: int, configuration: Configuration) -> Measured | Failed:
    """Give what a configuration scores and takes, on as many inputs as the rule needs.

    Args:
        bench: With what to measure.
        number: Of the configuration.
        configuration: What to measure.
    """
    inputs, look = 0, bench.looks.first
    while True:
        profile, must_stop = _stepped(bench, configuration, inputs)
        if (failure := _failure(profile)) is not None:
            return _gave_nothing(number, profile, failure)
        inputs = len(profile.inputs)
        ending = _judged(bench, profile)
        if ending is None and inputs >= look:
            look = 2 * inputs
            ending = Ending.SLOW if _is_hopeless(bench, profile) else None
        if ending is None and must_stop:
            ending = Ending.CUT_OFF
        if ending is not None:
            return _measured(bench, number, profile, ending)


def _stepped(bench: Bench, configuration: Configuration, inputs: int) -> tuple[Profile, bool]:
    """Measure the next step, a failure or a limit ends it early: limits are hard."""
    goal = min(inputs + max(_step(inputs), 1), bench.population)
    while True:
        profile = bench.evaluator.measure(configuration, inputs + 1)
        inputs = len(profile.inputs)
        must_stop = bench.must_stop(inputs)
        if inputs >= goal or must_stop or profile.failures:
            return profile, must_stop


def _gave_nothing(number: int, profile: Profile, failure: Failure) -> Failed:
    return Failed(
        number=number,
        configuration=profile.configuration,
        failure=failure,
        inputs=len(profile.inputs),
        profile=profile,
    )


def _step(inputs: int) -> int:
    return 1 if inputs < _ONE_BY_ONE else inputs // _STEP_PART


def _failure(profile: Profile) -> Failure | None:
    if profile.failures:
        return profile.failures[0]
    columns = np.vstack(
        [profile.score, profile.operator_s, profile.output_bytes, profile.input_bytes]
    )
    bad = np.flatnonzero(~np.isfinite(columns).all(axis=0))
    if not len(bad):
        return None
    return Failure(
        input=int(profile.inputs[bad[0]]), operator="score", cause="the measurement is not finite"
    )


def _judged(bench: Bench, profile: Profile) -> Ending | None:
    bound = bench.scene.slo.accuracy
    verdict = Verdict.UNDECIDED
    if bench.rule is not None:
        verdict = bench.rule.judge(profile.score, bound=bound, population=bench.population)
    if verdict is Verdict.UNDECIDED and len(profile.inputs) >= bench.population:
        verdict = Verdict.ABOVE if profile.score.mean() >= bound else Verdict.BELOW
    if verdict is Verdict.UNDECIDED:
        return None
    few = len(profile.inputs) < min(bench.looks.accepted, bench.population)
    if verdict is Verdict.ABOVE and few:
        return None
    return Ending.ACCURATE if verdict is Verdict.ABOVE else Ending.INACCURATE


def _is_hopeless(bench: Bench, profile: Profile) -> bool:
    least = partial(
        latency_at_least,
        statistic=bench.scene.statistic,
        population=bench.population,
        confidence=bench.looks.confidence,
    )
    placements = bench.placements
    steps = placements.full_steps
    lowest = predict(bench.scene, placements, Work.of(profile), steps, figure=least)
    return bool(effective_latency(bench.scene, lowest).min() > bench.scene.slo.latency_s)


def _measured(bench: Bench, number: int, profile: Profile, ending: Ending) -> Measured:
    work = Work.of(profile)
    return Measured(
        number=number,
        configuration=profile.configuration,
        ending=ending,
        scores=profile.score,
        work=work,
        accuracy=accuracy_estimate(profile.score, population=bench.population),
        latency_s=_least_latency(bench, work),
        profile=profile,
    )


def _least_latency(bench: Bench, work: Work) -> float:
    """Give the least effective latency, exact to the last bit where it is attained."""
    scene, placements = bench.scene, bench.placements
    quick = condensed(scene, work)
    rough = effective_latencies(scene, placements, quick, placements.full_steps)
    best = placements.take(np.flatnonzero(rough == rough.min())[:1])
    exact = effective_latencies(scene, best, work, best.full_steps)
    return float(exact[0])
