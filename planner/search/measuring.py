"""Measures configurations on as few inputs as it takes to know.

Inputs are added until the stopping rule decides on accuracy or the population ends.
A configuration is left earlier when its latency is infeasible: at 10, 20, 40, ...
inputs, if even the lower end of the 99.9 % interval exceeds the SLO at full shares
on every placement. Ten, because a t-interval on fewer follows single outliers; few
looks and a high confidence, because a looked-at-often interval errs more often than
its level (over eight looks still below 1 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.execution.metrics import SCORING
from circinus.pipelines.model.draws import units_of
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.profile import (
    UNPLANNABLE,
    BoolArray,
    Evaluator,
    Failure,
    FloatArray,
    Profile,
    StoppingRule,
    Verdict,
)
from circinus.pipelines.model.slo import Estimate, LatencyStatistic
from circinus.planner.deployment.prediction import (
    effective_latency,
    least_latency,
    predict,
)
from circinus.planner.models.estimates import CONFIDENCE, accuracy_estimate, latency_at_least
from circinus.planner.search.auditing import Audit, audited
from circinus.planner.search.failing import standing, standing_on
from circinus.planner.strategy.protocol import Ending, Measured, Proposal, SearchSetting

_ONE_BY_ONE, _STEP_PART = 500, 100  # deviates: looks-thin-out
"""Up to so many inputs every one is looked at, so that nothing is paid after a decision;
beyond, every hundredth of what is measured, because every look reads all of it."""

_PICKED = 0.998
"""Confidence of intervals where operators draw, of a configuration by itself. It is looked at and
picked for its lucky draws: of a 95 % interval's, 2 of 40 plans shown as met were not."""

_FIRST_OF_SET = 32
"""Inputs of which a metric of all outputs is computed first; then of twice as many."""
_TOO_FEW = "a metric over the set says nothing of so few outputs"

MustStop = Callable[[int], bool]
"""Asked after each step, with the inputs met so: whether a limit or a client ends the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLooks:
    """When an infeasible latency ends a measurement."""

    # deviates: late-plans-end-early
    first: int = 10  # inputs at the first look, then twice as many, `>= 2`
    confidence: float = 0.999  # of the interval at each look, in (0, 1)
    # Fewest inputs of an accepted configuration, unless there are fewer, `>= 1`. 20: accuracy may
    # be decided sooner, but what is promised of latency rests on them too.
    accepted: int = 20

    def __post_init__(self) -> None:
        checks.at_least("latency_looks.first", self.first, 2)
        checks.open_probability("latency_looks.confidence", self.confidence)
        checks.at_least("latency_looks.accepted", self.accepted, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedMeasurement:
    """A configuration that failed on an input: it never enters a model or a front."""

    number: int
    failure: Failure  # the first one
    inputs: int  # that it was measured on
    profile: Profile  # all that is known of it


class PartScores(Protocol):
    """Knows what single inputs add to a metric of all outputs together."""

    def of(self, profile: Profile, counts: BoolArray, *, whole: bool) -> FloatArray | None:
        """Return a score for each measurement of a profile that counts, at least one.

        Their mean is the metric's figure and their spread shows how far it may be off. None: so
        few outputs determine nothing yet, which the `whole` set does. OperatorFailed if the
        metric is at fault.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What measurements are judged by, the same for all configurations of a search."""

    setting: SearchSetting
    rule: StoppingRule | None  # decides on accuracy; None: nothing does before all inputs are met
    looks: LatencyLooks = field(default_factory=LatencyLooks)
    audit: Audit | None = None  # knows better than scores; None: scores are right
    # scores inputs by all outputs of a configuration; None: each output has a score of its own
    scores: PartScores | None = None

    def accuracy(self, profile: Profile) -> Estimate:
        """Return the mean score of a counted profile with its interval, or that of the audit."""
        population = self.setting.population
        if self.audit is not None:
            return audited(self.audit, profile, population, None)
        return _accuracy(self.setting, profile)

    def goal(self, inputs: int | None) -> int:
        """Return on how many inputs to measure where so many are wanted; None: on all.

        A metric of all outputs is computed at few numbers of inputs, and few show little.
        """
        most = self.setting.measurable
        if inputs is None:
            return most
        if self.scores is not None:
            inputs = max(_FIRST_OF_SET, 1 << (inputs - 1).bit_length())
        return min(max(inputs, 1), most)

    def scored(self, profile: Profile) -> Profile | None:
        """Return a counted profile with the scores that count; None: it has none yet.

        A failed input takes its part of the value away. OperatorFailed if the metric is at fault.
        """
        if self.scores is None:
            return profile
        included = standing(profile)
        counts = included & (profile.score > 0)
        score = np.zeros(len(profile.inputs))
        if counts.any():
            whole = len(profile.inputs) >= self.setting.measurable
            parts = self.scores.of(profile, counts, whole=whole)
            if parts is None:
                return None
            score[counts] = parts
        if included.any():
            score[~included] = score[included].mean()
        return replace(profile, score=score)


def measured(
    bench: Bench,
    evaluator: Evaluator,
    proposals: Sequence[Proposal],  # unlike configurations, at most as many as it measures at once
    met: Callable[[int], int],  # how many inputs a configuration has met already, by number
    must_stop: MustStop,
) -> tuple[Measured | FailedMeasurement, ...]:
    """Return what proposals that are made together give, in their order.

    A proposal without a number of inputs stands alone and ends when the rule decides; others end
    with as many inputs as are wanted, decided or not. As many measurements are made at once as the
    evaluator makes, and limits are looked at after each time: what is left is cut off.
    """
    if proposals[0].inputs is None and bench.scores is None:
        return (_until_decided(bench, evaluator, proposals[0].number, must_stop),)
    space = bench.setting.space
    wanted = {proposal.number: bench.goal(proposal.inputs) for proposal in proposals}
    profiles: dict[int, Profile] = {}
    results: dict[int, Measured | FailedMeasurement] = {}
    stopped = False
    while len(results) < len(wanted):
        while not stopped and (goals := _goals(wanted, profiles, met, evaluator.width)):
            requests = [(space.configuration(number), inputs) for number, inputs in goals.items()]
            profiles.update(zip(goals, evaluator.measure_each(requests), strict=True))
            stopped = must_stop(sum(len(profile.inputs) for profile in profiles.values()))
        for number in [number for number in wanted if number not in results]:
            one = ended(bench, number, profiles[number], wanted[number], stopped=stopped)
            if one is None:
                wanted[number] = bench.goal(2 * wanted[number])
            else:
                results[number] = one
    return tuple(results[number] for number in wanted)


def _goals(
    wanted: Mapping[int, int],
    profiles: Mapping[int, Profile],
    met: Callable[[int], int],
    width: int,
) -> dict[int, int]:
    """Return on how many inputs to measure which next: one more of each, the rest of the first."""
    goals: dict[int, int] = {}
    for number, inputs in wanted.items():
        profile = profiles.get(number)
        before = met(number) if profile is None else len(profile.inputs)
        if profile is None or (before < inputs and failure_of(number, profile) is None):
            goals[number] = min(before + 1, inputs)
    idle = width - len(goals)
    for number, goal in goals.items():
        more = min(wanted[number] - goal, idle)
        goals[number], idle = goal + more, idle - more
    return goals


def ended(
    bench: Bench,
    number: int,
    profile: Profile,
    wanted: int,
    *,
    stopped: bool,  # whether a limit ends the search
) -> Measured | FailedMeasurement | None:
    """Return the measurement that a profile makes, of which so many inputs were wanted.

    None: so few outputs have no score yet, and more may be measured.
    """
    if (failed := failure_of(number, profile)) is not None:
        return failed
    scored = _scored(bench, number, profile)
    if isinstance(scored, FailedMeasurement):
        return None if scored.failure.cause == _TOO_FEW and not stopped else scored
    ending = Ending.CUT_OFF
    if len(profile.inputs) >= wanted:
        ending = judged(bench, scored) or Ending.PARTIAL
    return _measured(bench, number, scored, ending)


def _scored(bench: Bench, number: int, profile: Profile) -> Profile | FailedMeasurement:
    cause = _TOO_FEW
    try:
        if (scored := bench.scored(profile)) is not None:
            return scored
    except OperatorFailed as error:
        cause = f"{UNPLANNABLE}{error.cause.removeprefix(UNPLANNABLE)}"
    failure = Failure(input=int(profile.inputs[-1]), operator=SCORING, cause=cause)
    failed = replace(profile, failures=(*profile.failures, failure))
    inputs = len(profile.inputs)
    return FailedMeasurement(number=number, failure=failure, inputs=inputs, profile=failed)


def counted_anew(
    bench: Bench, one: Measured | FailedMeasurement, profile: Profile
) -> Measured | FailedMeasurement:
    """Return what was measured, now that its failed inputs count otherwise, or operators draw."""
    same = profile is one.profile and not bench.setting.draws
    if isinstance(one, FailedMeasurement) or same:
        return one
    if (failed := failure_of(one.number, profile)) is not None:
        return failed
    scored = _scored(bench, one.number, profile)
    if isinstance(scored, FailedMeasurement):
        return scored
    ending = one.ending
    if ending not in (Ending.SLOW, Ending.CUT_OFF):
        ending = judged(bench, scored) or Ending.PARTIAL
    return _measured(bench, one.number, scored, ending)


def _until_decided(
    bench: Bench, evaluator: Evaluator, number: int, must_stop: MustStop
) -> Measured | FailedMeasurement:
    """Measure a configuration on as many inputs as the rule needs."""
    configuration, most = bench.setting.space.configuration(number), bench.setting.measurable
    inputs, look = 0, bench.looks.first
    while True:
        step = 1 if inputs < _ONE_BY_ONE else inputs // _STEP_PART
        goal = min(inputs + step, most)
        while True:  # a limit ends a step early: limits are hard
            profile = evaluator.measure(configuration, inputs + 1)
            inputs = len(profile.inputs)
            stopped = must_stop(inputs)
            if inputs >= goal or stopped:
                break
        if (failed := failure_of(number, profile)) is not None:
            return failed
        ending = judged(bench, profile)
        if ending is None and inputs >= look:
            look = 2 * inputs
            ending = Ending.SLOW if _is_infeasible(bench, profile) else None
        if ending is None and stopped:
            ending = Ending.CUT_OFF
        if ending is None and inputs >= most:  # draws may leave it open
            ending = Ending.PARTIAL
        if ending is not None:
            return _measured(bench, number, profile, ending)


def failure_of(number: int, profile: Profile) -> FailedMeasurement | None:
    """Return the failure of a configuration; None: its figures are all finite."""
    figures = (profile.score, profile.operator_s, profile.output_bytes, profile.input_bytes)
    bad = np.flatnonzero(~np.isfinite(np.vstack(figures)).all(axis=0))
    if not len(bad):
        return None
    cause = "the measurement is not finite"
    unknown = Failure(input=int(profile.inputs[bad[0]]), operator="score", cause=cause)
    failure = next(iter(profile.failures), unknown)
    inputs = len(profile.inputs)
    return FailedMeasurement(number=number, failure=failure, inputs=inputs, profile=profile)


def judged(bench: Bench, profile: Profile) -> Ending | None:
    """Return what is decided of a profile's accuracy; None: nothing is."""
    bound, population = bench.setting.slo.accuracy, bench.setting.population
    if bench.setting.draws:
        return _judged_drawn(bench, profile)
    verdict = Verdict.UNDECIDED
    if bench.rule is not None:
        verdict = bench.rule.judge(profile.score, bound=bound, population=population)
    if verdict is Verdict.UNDECIDED and len(profile.inputs) >= population:
        verdict = Verdict.ABOVE if profile.score.mean() >= bound else Verdict.BELOW
    if verdict is Verdict.BELOW:
        return Ending.INACCURATE
    few = len(profile.inputs) < min(bench.looks.accepted, population)
    return None if few or verdict is Verdict.UNDECIDED else Ending.ACCURATE


def _judged_drawn(bench: Bench, profile: Profile) -> Ending | None:  # deviates: draws-of-an-input
    """Return what is decided where operators draw: no number of draws gives the expected score.

    The rule takes inputs to be endless, as no draw is the last: scores of draws with replacement
    vary no less than of those that are made. Draws of one input that were made at once are
    one score. Once nothing is left to measure, the interval decides.
    """
    setting, verdict = bench.setting, Verdict.UNDECIDED
    bound, few = setting.slo.accuracy, len(profile.inputs) < bench.looks.accepted
    if bench.rule is not None:
        scores = units_of(profile.inputs, profile.score)
        verdict = bench.rule.judge(scores, bound=bound, population=setting.runs)
    if verdict is Verdict.UNDECIDED and len(profile.inputs) >= setting.measurable:
        known, few = _accuracy(setting, profile), False
        if known.low >= bound:
            verdict = Verdict.ABOVE
        elif known.high < bound:
            verdict = Verdict.BELOW
    if verdict is Verdict.BELOW:
        return Ending.INACCURATE
    return None if few or verdict is Verdict.UNDECIDED else Ending.ACCURATE


def _accuracy(setting: SearchSetting, profile: Profile) -> Estimate:
    score, population = profile.score, setting.population
    if not setting.draws:
        return accuracy_estimate(score, population=population)
    drawn = profile.inputs
    known = accuracy_estimate(score, population=population, confidence=_PICKED, drawn=drawn)
    return replace(known, confidence=CONFIDENCE)  # what it holds of one that was picked


def _is_infeasible(bench: Bench, profile: Profile) -> bool:
    context, work = bench.setting.context, Work.of(profile)
    placements = bench.setting.placements_of(profile.configuration)
    least = partial(
        latency_at_least, population=bench.setting.runs, confidence=bench.looks.confidence
    )
    of_latency = partial(least, statistic=context.statistic)
    steps = placements.full_steps
    lowest = predict(context, placements, work, steps, figure=of_latency)
    if context.requests_per_s is not None:  # copies follow from means
        light = _at_least(work, partial(least, statistic=LatencyStatistic.MEAN))
        crowding = predict(context, placements, light, steps).crowding
        # Waits are left out: of less work there may be one copy fewer, for which more wait.
        bare_s = lowest.latency_s - lowest.tier_wait_s.sum(axis=1)
        lowest = replace(lowest, latency_s=bare_s, crowding=crowding)
    return bool(effective_latency(context, lowest).min() > context.slo.latency_s)


def _at_least(work: Work, least: Callable[[FloatArray], FloatArray]) -> Work:
    """Return the lower ends of all means, as one input."""
    operator_s = least(work.operator_s)[:, None]
    return Work(
        operator_s=operator_s,
        output_bytes=least(work.output_bytes)[:, None],
        input_bytes=least(work.input_bytes[None]),
        used=None if work.used is None else least(work.used)[:, :, None],
        waited_s=None if work.waited_s is None else work.waiting[:, None] * operator_s,
    )


def _measured(bench: Bench, number: int, profile: Profile, ending: Ending) -> Measured:
    setting = bench.setting
    spots = setting.placements_of(profile.configuration)
    least = least_latency(setting.context, spots, Work.of(profile))
    return measured_as(bench, number, profile, ending, least)


def measured_as(
    bench: Bench, number: int, profile: Profile, ending: Ending, latency_s: float
) -> Measured:
    """Return what was measured of a configuration, its ending and least latency known."""
    return Measured(
        number=number,
        configuration=profile.configuration,
        ending=ending,
        scores=profile.score,
        work=Work.of(profile),
        accuracy=standing_on(bench.accuracy(profile), profile),
        latency_s=latency_s,
        profile=profile,
    )
