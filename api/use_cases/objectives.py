"""Whether a served query meets its objectives, by its recent requests.

A plan's own states are predictions from measurements; these are observations. Each objective is
judged by the shortest of some spans whose answers suffice: by a 95 % interval, the same as in
plans. Answers that wait for each other are more alike than the interval assumes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from math import sqrt

import numpy as np

from circinus.deploy.runtime.report import DeploymentReport, LatestAnswers
from circinus.pipelines import checks, units
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import (
    ANY_LATENCY_S,
    SURE,
    Estimate,
    LatencyStatistic,
    Slo,
    SloState,
)
from circinus.planner.answers.drift import ObservedRequests
from circinus.planner.models.ahead import MOST_EXAMPLES, accuracy_observed
from circinus.planner.models.estimates import latency_estimate

SPANS_S = (60.0, 600.0, 3600.0)
LEAST = 20
"""Answers that determine a mean, as for a drift. Percentiles have their own rule."""
_Z = 1.96  # of 95 %
_LEAST_S = 10.0  # over which answers are counted
_HOUR_S = 3600.0
_THOUSAND = 1000.0
_ACCURACY = "accuracy"


class ObservedState(StrEnum):
    """The verdict of a query's requests on an objective."""

    MET = "met"
    MISSED = "missed"
    UNSURE = "unsure"  # too few requests, or the figure is too near to the bound


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedObjective:
    """An objective, its observed value, and the verdict."""

    name: str  # as in `Plan.states`
    bound: float
    state: ObservedState
    observed: Estimate | None = None  # None: nothing was
    span_s: float | None = None  # within which; None: whenever
    why: str = ""  # of `unsure`, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What serving a query costs now, and how that is counted per request."""

    machines_usd_per_hour: float  # of all that it holds
    rated: bool  # whether its plan is for a rate, at which 1,000 requests arrive


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedObjectives:
    """How a query fares by its requests at a moment."""

    plan_id: str
    objectives: tuple[JudgedObjective, ...]
    report: DeploymentReport
    planned_per_s: float | None = None  # requests per second that its plan is for; None: any
    overload: str = ""  # why there is too much to do, in words; empty: there is not
    # whose replicas a number of replicas counts; None: there is none
    scaled_tier: str | None = None

    @property
    def state(self) -> ObservedState:
        """Of all together, without an accuracy that is unknown because no output is checked."""
        states = {each.name: each.state for each in self.objectives}
        if ObservedState.MISSED in states.values():
            return ObservedState.MISSED
        others = [state for name, state in states.items() if name != _ACCURACY]
        return ObservedState.UNSURE if ObservedState.UNSURE in others else ObservedState.MET

    @property
    def waiting(self) -> int:
        """Requests without a turn."""
        return sum(queue.waiting for queue in self.report.queues.values())

    @property
    def sentence(self) -> str:
        """The objectives and overload, in words."""
        texts = [_words(each) for each in self.objectives]
        return ". ".join(filter(None, (", ".join(texts), self.overload)))


def judged(
    slo: Slo, report: DeploymentReport, scores: FloatArray, spending: Spending
) -> tuple[JudgedObjective, ...]:
    """Return each objective judged by requests; `scores`, (k,), are of verified outputs."""
    judgements = [_accuracy(slo, scores)]
    if slo.latency_s < ANY_LATENCY_S:
        judgements.append(_latency(slo, report.answers))
    judgements += _costs(slo, report, spending)
    if slo.throughput_per_s is not None:
        judgements.append(_throughput(slo.throughput_per_s, report))
    return tuple(judgements)


def borne_per_s(
    plan: Plan, slo: Slo, rate_per_s: float | None, utilisation: float
) -> float | None:
    """Return how many requests a second a plan is for: those of its query's rate if any.

    Without a rate: as many as use its slowest tier to that part; None: any, as of batch work.
    """
    if rate_per_s is not None:
        return rate_per_s
    busy = any(plan.tier_service_s.get(name, 0.0) > 0 for name in plan.deployment.groups)
    if slo.throughput_per_s is not None or not busy:
        return None
    return utilisation * plan.throughput_per_s.value


def overloaded(
    plan: Plan, report: DeploymentReport, planned_per_s: float | None, beyond: float
) -> str:
    """Return why there is too much to do for those who work now, in words; empty: there is not.

    Too much is a rate of more than `beyond` times what they are for, or a queue of more requests
    than could be at work; `planned_per_s` is what the plan's own replicas are for, None: any.
    """
    if planned_per_s is not None:
        bears = planned_per_s * _grown(plan, report)
        if report.arrivals_per_s > beyond * bears:
            return f"{report.arrivals_per_s:.3g} requests/s come, and it is for {bears:.3g}/s"
    for tier, queue in report.queues.items():
        if queue.is_saturated:
            return (
                f"{queue.waiting} requests wait for tier {tier}, "
                f"whose instances take {queue.places} at once"
            )
    return ""


def _grown(plan: Plan, report: DeploymentReport) -> float:
    """Return how many times its own replicas a plan has now, on the slice that has grown least."""
    where = plan.deployment
    own = {name: where.replicas[operators[0]] for name, operators in where.groups.items()}
    there = [name for name in own if name in report.queues and name not in where.remote]
    return min((report.queues[name].workers / own[name] for name in there), default=1.0)


def _accuracy(slo: Slo, scores: FloatArray) -> JudgedObjective:
    if not len(scores):
        return _unsure(_ACCURACY, slo.accuracy, "no request's right output is known")
    estimate = accuracy_observed(scores)
    return _objective(_ACCURACY, slo.accuracy, estimate, estimate.at_least(slo.accuracy), None)


def _latency(slo: Slo, answers: LatestAnswers) -> JudgedObjective:
    bound, statistic = slo.latency_s, slo.latency_statistic
    judgement = _unsure("latency", bound, "no request was answered lately")
    for span_s in SPANS_S:
        latency_s = answers.within(span_s).sojourn_s
        if not len(latency_s):
            continue
        estimate = latency_estimate(latency_s, statistic=statistic, population=MOST_EXAMPLES)
        known = statistic is not LatencyStatistic.MEAN or len(latency_s) >= LEAST
        state = estimate.at_most(bound) if known else SloState.UNPROVEN
        if known and estimate.low > bound:  # few late ones may decide it earlier
            state = SloState.VIOLATED
        judgement = _objective("latency", bound, estimate, state, span_s)
        if judgement.state is not ObservedState.UNSURE or (known and estimate.confidence >= SURE):
            break
    return judgement


def _costs(slo: Slo, report: DeploymentReport, spending: Spending) -> Iterator[JudgedObjective]:
    span_s = SPANS_S[-1]
    answers, hourly = report.answers.within(span_s), spending.machines_usd_per_hour
    calls = _mean(answers.usd)
    if slo.cost_usd_per_hour is not None:
        estimate = _times(calls, _HOUR_S * report.arrivals_per_s, plus=hourly)
        state = estimate.at_most(slo.cost_usd_per_hour)
        yield _objective("cost", slo.cost_usd_per_hour, estimate, state, span_s)
    if slo.cost_usd_per_1000_requests is None:
        return
    name, bound = "cost_per_1000", slo.cost_usd_per_1000_requests
    if len(answers.usd) < LEAST or (spending.rated and report.arrivals_per_s <= 0):
        yield _unsure(name, bound, _few(len(answers.usd)))
        return
    # At a rate machines are paid for between requests, too; else they are used one by one.
    each_s = _mean(answers.sojourn_s)
    if spending.rated:
        each_s = _exactly(1 / report.arrivals_per_s, len(answers.usd))
    machines = _times(each_s, hourly / _HOUR_S)
    estimate = _times(_sum(machines, calls), _THOUSAND)
    yield _objective(name, bound, estimate, estimate.at_most(bound), span_s)


def _throughput(bound: float, report: DeploymentReport) -> JudgedObjective:
    """Judge what was finished in the last minute: less than wanted is missed if more waited."""
    minute = report.spans[0]
    lasted_s = min(max(report.serving_s, _LEAST_S), minute.span_s)
    n = minute.requests - minute.turned_away - minute.failed
    half = _Z * sqrt(n)
    estimate = Estimate(
        value=n / lasted_s,
        low=max(n - half, 0.0) / lasted_s,
        high=(n + half) / lasted_s,
        confidence=SURE,
        inputs=n,
    )
    judgement = _objective("throughput", bound, estimate, estimate.at_least(bound), lasted_s)
    busy = any(queue.waiting for queue in report.queues.values())
    if judgement.state is ObservedState.MISSED and not busy:
        why = "no request waits: it may be able to do more"
        return replace(judgement, state=ObservedState.UNSURE, why=why)
    return judgement


def _unsure(name: str, bound: float, why: str) -> JudgedObjective:
    return JudgedObjective(name=name, bound=bound, state=ObservedState.UNSURE, why=why)


def _objective(
    name: str, bound: float, estimate: Estimate, state: SloState, span_s: float | None
) -> JudgedObjective:
    sure = {SloState.MET: ObservedState.MET, SloState.VIOLATED: ObservedState.MISSED}
    judgement, why = sure.get(state, ObservedState.UNSURE), ""
    if judgement is ObservedState.UNSURE:
        near = estimate.confidence >= SURE and estimate.inputs >= LEAST
        why = "it is too near to the bound to say" if near else _few(estimate.inputs)
    return JudgedObjective(
        name=name, bound=bound, state=judgement, observed=estimate, span_s=span_s, why=why
    )


def _few(requests: int) -> str:
    return f"too few requests to say: {requests}"


def _mean(values: FloatArray) -> Estimate:
    """Return the mean of what is `>= 0`; none: 0, and nothing is known beside it."""
    if not len(values) or not values.any():
        return _exactly(0.0, len(values))
    return latency_estimate(values, statistic=LatencyStatistic.MEAN, population=MOST_EXAMPLES)


def _exactly(value: float, inputs: int) -> Estimate:
    return Estimate(value=value, low=value, high=value, confidence=SURE, inputs=inputs)


def _times(of: Estimate, factor: float, *, plus: float = 0.0) -> Estimate:
    low, value, high = (plus + factor * each for each in (of.low, of.value, of.high))
    return Estimate(value=value, low=low, high=high, confidence=of.confidence, inputs=of.inputs)


def _sum(first: Estimate, second: Estimate) -> Estimate:
    return Estimate(
        value=first.value + second.value,
        low=first.low + second.low,
        high=first.high + second.high,
        confidence=min(first.confidence, second.confidence),
        inputs=min(first.inputs, second.inputs),
    )


def _words(each: JudgedObjective) -> str:
    if each.observed is None:
        return f"{each.name} {each.state}: {each.why}"
    estimate = each.observed
    render = units.seconds if each.name == "latency" else "{:.4g}".format
    figures = f"{render(estimate.value)} ({render(estimate.low)} to {render(estimate.high)})"
    why = f": {each.why}" if each.why else ""
    return f"{each.name} {each.state}, {figures} of {render(each.bound)}{why}"


NO_SCORES: FloatArray = np.zeros(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverloadSettings:
    """What counts as overload, and how soon it is reported."""

    # times the rate that its instances are for, `>= 1`: what replicas follow, too
    beyond: float = 1.25
    lasts_s: float = 3.0  # `>= 0`; less is a burst
    calm_s: float = 10.0  # without it, `>= 0`. As long as rates are counted over

    def __post_init__(self) -> None:
        checks.require(self.beyond >= 1, "beyond", "must be >= 1", self.beyond)
        checks.non_negative("lasts_s", self.lasts_s)
        checks.non_negative("calm_s", self.calm_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedOverload:
    """The reported overload, and the next one to report."""

    reason: str = ""  # why, in words; empty: none is reported
    since: float | None = None  # since when an unreported overload lasts; None: there is none
    calm_since: float | None = None  # since when the reported one is over; None: it is not

    def after(self, why: str, now: float, settings: OverloadSettings) -> FollowedOverload:
        """Return it after a look at a moment, with its reason; empty: no overload."""
        if not why:
            calm = now if self.calm_since is None else self.calm_since
            if not self.reason or now - calm >= settings.calm_s:
                return FollowedOverload()
            return FollowedOverload(reason=self.reason, calm_since=calm)
        since = now if self.since is None else self.since
        if self.reason or now - since >= settings.lasts_s:
            return FollowedOverload(reason=why)
        return FollowedOverload(since=since)


_LEAST = 2
"""Answers: one alone has no spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseCheck:
    """An objective, what was promised of it, and what was observed."""

    bound: float | None  # None: any
    predicted: Estimate
    observed: Estimate | None  # None: nothing was
    state: SloState | None  # of the objective, by what was observed; None: not known


def accuracy_check(plan: Plan, slo: Slo, window: ObservedRequests | None) -> PromiseCheck:
    """Compare accuracy, by requests whose output is known."""
    mean = None if window is None or not len(window.scores) else accuracy_observed(window.scores)
    state = None if mean is None else mean.at_least(slo.accuracy)
    return PromiseCheck(bound=slo.accuracy, predicted=plan.accuracy, observed=mean, state=state)


def latency_check(plan: Plan, slo: Slo, window: ObservedRequests | None) -> PromiseCheck:
    """Compare the bounded statistic of the latency."""
    observed = None
    if window is not None and len(window.latency_s) >= _LEAST:
        observed = latency_estimate(
            window.latency_s, statistic=slo.latency_statistic, population=MOST_EXAMPLES
        )
    bounded = slo.latency_s < ANY_LATENCY_S
    return PromiseCheck(
        bound=slo.latency_s if bounded else None,
        predicted=plan.latency_s,
        observed=observed,
        state=observed.at_most(slo.latency_s) if observed is not None and bounded else None,
    )
