"""How well the figures of a plan are known, on the examples and ahead, and margins from that.

Figures are means over the inputs measured: which inputs these are is chance. Plans are tightened
as far as the interval of their latency allows: tightened to the estimate every other plan would be
late. Intervals of accuracy are the strategy's (`planner.models.accuracy.Accuracies.estimate`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from math import exp, hypot, log

import numpy as np
from scipy.special import ndtri

from circinus.pipelines.model.draws import means_of_inputs
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.latency import compose, request_seconds
from circinus.pipelines.model.plan import Outlook, Plan, PlanCalls
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.slo import SURE, Estimate, HoldsFor, LatencyStatistic, Slo
from circinus.planner.deployment.callers import Called, tightest
from circinus.planner.deployment.costs import usd_of_inputs
from circinus.planner.deployment.prediction import (
    fastest,
    shares_of,
)
from circinus.planner.models.ahead import (
    MOST_EXAMPLES,
    accuracy_ahead,
    latency_served,
    latency_sureness,
)
from circinus.planner.models.estimates import CONFIDENCE, latency_estimate
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.search.failing import standing, standing_on
from circinus.planner.strategy.protocol import Measured, SearchSetting

_SECONDS_PER_HOUR, _THOUSAND = 3600.0, 1000.0
MARGIN_CONFIDENCE = 0.99
"""Of the interval by default: of plans tightened to its upper end one in two hundred is late.
They stand at the bound then, so this decides whether the SLO counts as met."""
_LEAST_DOUBT = 0.5
"""Where slow runs are as likely as this the figure shows nothing: it rests on half a slow run."""


# deviates: intervals-shown
def estimated(
    setting: SearchSetting,
    plan: Plan,
    measured: Measured,
    tail: LatencyTail,
    accuracy: Estimate | None = None,  # None: by its own scores
) -> Plan:
    """Return a plan with its figures by all measurements, on the examples and ahead."""
    known = accuracy or measured.accuracy
    known = standing_on(known, measured.profile)
    return replace(
        plan,
        accuracy=known,
        latency_s=_latency_interval(setting, plan, measured, tail, inputs=setting.runs),
        future=_outlook(setting, plan, measured, tail, known),
    )


def _outlook(
    setting: SearchSetting, plan: Plan, measured: Measured, tail: LatencyTail, accuracy: Estimate
) -> Outlook:
    """Return the expectation on future inputs, of which the examples are a sample."""
    wait_s = plan.latency_s.value - _seconds(setting, plan, measured, setting.runs).value
    drawn = _seconds(setting, plan, measured, MOST_EXAMPLES)
    latency = replace(
        drawn, value=drawn.value + wait_s, low=drawn.low + wait_s, high=drawn.high + wait_s
    )
    stands = standing(measured.profile)
    examples = setting.population - len(np.unique(measured.profile.inputs[~stands]))
    scores = means_of_inputs(measured.profile.inputs[stands], measured.scores[stands])
    known = _latency_interval(
        setting, replace(plan, latency_s=latency), measured, tail, inputs=MOST_EXAMPLES
    )
    known = latency_served(known, _off_by(setting.context, plan.deployment.tiers))
    calls = setting.called(measured.configuration)
    sure = min(known.confidence, latency_sureness(setting.context.statistic, known.inputs))
    return Outlook(
        accuracy=accuracy_ahead(scores, accuracy, examples=examples),
        latency_s=replace(known, confidence=sure),
        usd_per_request=usd_per_request(measured, MOST_EXAMPLES) if calls else None,
    )


def _seconds(setting: SearchSetting, plan: Plan, measured: Measured, population: int) -> Estimate:
    """Return the latency of a plan on its inputs, as those of so many."""
    context = setting.context
    seconds = request_seconds(
        context.graph, context.infrastructure, measured.work, plan.deployment
    )
    return latency_estimate(seconds, statistic=context.statistic, population=population)


def _latency_interval(
    setting: SearchSetting, plan: Plan, measured: Measured, tail: LatencyTail, *, inputs: int
) -> Estimate:
    """Return the latency over so many inputs, by its own runs and those of all others.

    The own spread of few inputs shows little, and the luckiest of many configurations is
    announced. Where unobserved runs may be slow, the interval is one of less confidence.
    Percentiles keep their order statistics.
    """
    own, context = plan.latency_s, setting.context
    if context.statistic.quantile is not None:
        return own
    placement = plan.deployment.placement
    on = [context.infrastructure.position(placement[o.name]) for o in context.graph.operators]
    low, high = tail.interval(context, np.array(on), measured.work, inputs, CONFIDENCE)
    slow = tail.slow_chance(measured.work, setting.runs)
    sure = slow <= (1 - CONFIDENCE) / 2
    return replace(
        own,
        low=min(own.low, own.value * low),
        high=max(own.high, own.value * high),
        confidence=CONFIDENCE if sure else CONFIDENCE * (1 - min(slow, _LEAST_DOUBT)),
    )


def upper_ratio(
    setting: SearchSetting, measured: Measured, tail: LatencyTail, confidence: float | None
) -> float:
    """Return the upper end of the least latency's interval over the latency, `>= 1`.

    The interval has that confidence, in (0, 1); None: the latency itself counts, so it is 1. It is
    over the inputs that the objectives must hold for.
    """
    if confidence is None:
        return 1.0
    context = setting.context
    best = fastest(context, setting.placements_of(measured.configuration), measured.work)
    shares = shares_of(best, best.full_steps)
    seconds = compose(context.graph, context.infrastructure, measured.work, best.tiers, shares)[0]
    inputs = MOST_EXAMPLES if setting.is_ahead else setting.runs
    estimate = latency_estimate(
        seconds, statistic=context.statistic, population=inputs, confidence=confidence
    )
    if estimate.value <= 0:
        return 1.0
    z = float(ndtri((1 + confidence) / 2))
    pooled = tail.upper_ratio(context, best.tiers[0], measured.work, inputs, z)
    ratio = max(estimate.high / estimate.value, pooled, 1.0)
    if not setting.is_ahead:
        return ratio
    on = {context.infrastructure.tiers[tier].name for tier in best.tiers[0]}
    off = log(_off_by(context, on)) * z / float(ndtri((1 + SURE) / 2))
    return exp(hypot(log(ratio), off)) if off else ratio


def _off_by(context: PlanningContext, tiers: Iterable[str]) -> float:
    """Return by what factor requests that use these tiers may be off, see `Tier.off_by`."""
    return max(context.infrastructure.tier(name).off_by for name in tiers)


def stricter(slo: Slo, ratio: float) -> Slo:
    """Return the objectives that seconds `ratio` times as long would still meet."""
    throughput = slo.throughput_per_s
    return replace(
        slo,
        latency_s=slo.latency_s / ratio,
        throughput_per_s=None if throughput is None else throughput * ratio,
    )


def cheaper(
    setting: SearchSetting,
    slo: Slo,
    measured: Measured,
    ratio: float,  # how many times as long requests may take, see `upper_ratio`
    confidence: float | None,  # of the interval of what calls cost; None: its mean counts
) -> Slo | None:
    """Return the objectives that calls as dear as they may be would still meet; None: none would.

    What a bound leaves for machines beside calls at the upper end of their interval is what plans
    may spend on machines. Machines that requests use one after the other cost as much more as
    these take longer.
    """
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    if confidence is None or bounds == (None, None):
        return slo
    ahead = slo.holds_for is HoldsFor.FUTURE
    population = MOST_EXAMPLES if ahead else setting.population
    usd = usd_per_request(measured, population, confidence)
    rate = setting.context.requests_per_s
    hour, thousand = bounds
    if thousand is not None:
        slower = ratio if rate is None else 1.0
        left = (thousand - _THOUSAND * usd.high) / slower
        thousand = None if left < 0 else left + _THOUSAND * usd.value
    if hour is not None and usd.high > 0:
        if rate is None:
            hour *= usd.value / usd.high
        else:
            left = hour - _SECONDS_PER_HOUR * rate * usd.high
            hour = None if left < 0 else left + _SECONDS_PER_HOUR * rate * usd.value
    if (hour is None, thousand is None) != tuple(bound is None for bound in bounds):
        return None
    return replace(slo, cost_usd_per_hour=hour, cost_usd_per_1000_requests=thousand)


def plan_calls(setting: SearchSetting, measured: Measured) -> PlanCalls | None:
    """Return what a measured configuration calls; None: nothing."""
    if (called := setting.called(measured.configuration)) is None:
        return None
    use = tightest(setting.context, called, measured.work)
    return PlanCalls(
        usd_per_request=usd_per_request(measured, setting.population),
        per_request=_per_request(setting, measured, called),
        **({} if use is None else {"most_per_s": use.most_per_s}),
    )


def usd_per_request(
    measured: Measured, population: int, confidence: float = CONFIDENCE
) -> Estimate:
    """Return the mean US dollars of one request's calls over a population, with its t-interval."""
    return latency_estimate(  # the mean of figures that are not negative, as seconds are
        usd_of_inputs(measured.work),
        statistic=LatencyStatistic.MEAN,
        population=population,
        confidence=confidence,
    )


def _per_request(setting: SearchSetting, measured: Measured, called: Called) -> dict[str, Usage]:
    """Return the mean usage of each endpoint.

    Of an operator that may call several it is known what it used of all: it is shared out by how
    often it may call each.
    """
    used: dict[str, Usage] = {}
    work = measured.work
    if work.used is None:
        return {name: NOTHING_USED for names in called for name in sorted(names)}
    means = work.used.mean(axis=2).tolist()
    for operator, mean in zip(setting.context.graph.operators, means, strict=True):
        calls = operator.called(measured.configuration.of(operator.name))
        most = sum(call.most for call in calls)
        for call in calls:
            part = Usage(*(figure * call.most / most for figure in mean))
            used[call.endpoint] = used.get(call.endpoint, NOTHING_USED).plus(part)
    return used
