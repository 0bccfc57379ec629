"""Turns what allocation found into plans: the Pareto set of one configuration, and of all.

Plans are tightened as far as the interval of their latency allows: tightened to the estimate
itself every other plan would be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import exp, hypot, inf, log

import numpy as np
from scipy.special import ndtri

from circinus.pipelines.model.draws import means_of_inputs
from circinus.pipelines.model.latency import TierArray, Work, compose
from circinus.pipelines.model.plan import Deployment, Outlook, Plan, cost_usd_per_hour
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.slo import SURE, Estimate, HoldsFor, LatencyStatistic, Slo, SloState
from circinus.planner.deployment.costs import one_by_one, ranked_by
from circinus.planner.deployment.pareto import diverse, undominated
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.prediction import (
    allocation_of,
    condensed,
    fastest,
    predict,
    shares_of,
)
from circinus.planner.deployment.shares import tightened
from circinus.planner.models.ahead import (
    MOST_EXAMPLES,
    accuracy_ahead,
    latency_served,
    latency_sureness,
)
from circinus.planner.models.estimates import CONFIDENCE, latency_estimate
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.plans.calls import plan_calls, usd_ahead, usd_per_request
from circinus.planner.plans.failing import standing, standing_on
from circinus.planner.strategy.protocol import Measured, SearchSetting

_SECONDS_PER_HOUR, _THOUSAND = 3600.0, 1000.0

MARGIN_CONFIDENCE = 0.99
"""Of the interval by default: of plans tightened to its upper end one in two hundred is late.
They stand at the bound then, so whether the SLO is shown as met is decided here."""

_LEAST_DOUBT = 0.5
"""Where slow runs are as likely as this the figure says no more: it rests on half a slow run."""

_ROUNDING = 1e-9
"""Relative slack of searches on condensed work, whose sums round otherwise; plans are checked
against the SLO without it."""


def announced(
    setting: SearchSetting,
    measured: Measured,  # the configuration, accurate enough
    tail: LatencyTail,  # of operators' seconds, over all configurations
    accuracy: Estimate | None,  # what is known of its accuracy; None: what its own scores say
    most: int,  # plans
    confidence: float | None,  # see `upper_ratio`
) -> tuple[Plan, ...]:
    """Return the Pareto set of a configuration's plans, tightened as far as its interval allows.

    Where objectives hold for future inputs, only those that are shown to meet them.
    """
    ratio, asked = upper_ratio(setting, measured, tail, confidence), setting.asked
    within = cheaper(setting, stricter(setting.slo, ratio), measured, ratio, confidence)
    if within is None:
        return ()
    plans = tuple(
        estimated(setting, plan, measured, tail, accuracy)
        for plan in feasible_plans(setting.with_slo(within), measured, most)
    )
    if asked.holds_for is HoldsFor.EXAMPLES:
        return plans
    return tuple(plan for plan in plans if set(plan.states(asked).values()) == {SloState.MET})


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


def estimated(
    setting: SearchSetting,
    plan: Plan,
    measured: Measured,
    tail: LatencyTail,
    accuracy: Estimate | None = None,  # None: what its own scores say
) -> Plan:
    """Return a plan with what all that was measured says of it, on the examples and ahead."""
    known = accuracy or measured.accuracy
    known = standing_on(known, measured.profile)
    return replace(
        plan,
        accuracy=known,
        latency_s=_interval(setting, plan, measured, tail, inputs=setting.runs),
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
    kept = standing(measured.profile)
    examples = setting.population - len(np.unique(measured.profile.inputs[~kept]))
    scores = means_of_inputs(measured.profile.inputs[kept], measured.scores[kept])
    known = _interval(
        setting, replace(plan, latency_s=latency), measured, tail, inputs=MOST_EXAMPLES
    )
    known = latency_served(known, _off_by(setting.context, plan.deployment.tiers))
    sure = min(known.confidence, latency_sureness(setting.context.statistic, known.inputs))
    return Outlook(
        accuracy=accuracy_ahead(scores, accuracy, examples=examples),
        latency_s=replace(known, confidence=sure),
        usd_per_request=usd_ahead(setting, measured),
    )


def _seconds(setting: SearchSetting, plan: Plan, measured: Measured, population: int) -> Estimate:
    """Return the latency of a plan on its inputs, as those of so many."""
    context, where = setting.context, plan.deployment
    names = [operator.name for operator in context.graph.operators]
    on = [[context.infrastructure.position(where.placement[name]) for name in names]]
    shares = [[where.allocation[name] for name in names]]
    seconds = compose(
        context.graph, context.infrastructure, measured.work, np.array(on), np.array(shares)
    )[0]
    return latency_estimate(seconds, statistic=context.statistic, population=population)


def _interval(
    setting: SearchSetting, plan: Plan, measured: Measured, tail: LatencyTail, *, inputs: int
) -> Estimate:
    """Return the latency over so many inputs, as its own ones and those of all others tell it.

    Of few inputs the own spread says little, and the luckiest of many configurations is
    announced. Where runs that were not seen may be slow, the interval is one of less confidence.
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
    ahead = setting.slo.holds_for is HoldsFor.FUTURE
    inputs = MOST_EXAMPLES if ahead else setting.runs
    estimate = latency_estimate(
        seconds, statistic=context.statistic, population=inputs, confidence=confidence
    )
    if estimate.value <= 0:
        return 1.0
    z = float(ndtri((1 + confidence) / 2))
    pooled = tail.upper_ratio(context, best.tiers[0], measured.work, inputs, z)
    ratio = max(estimate.high / estimate.value, pooled, 1.0)
    if not ahead:
        return ratio
    on = {context.infrastructure.tiers[tier].name for tier in best.tiers[0]}
    off = log(_off_by(context, on)) * z / float(ndtri((1 + SURE) / 2))
    return exp(hypot(log(ratio), off)) if off else ratio


def _off_by(context: PlanningContext, tiers: Iterable[str]) -> float:
    """Return by what factor requests that use these tiers may be off, see `Tier.off_by`."""
    return max(context.infrastructure.tier(name).off_by for name in tiers)


def feasible_plans(setting: SearchSetting, measured: Measured, most: int) -> tuple[Plan, ...]:
    """Return at most `most` plans of one configuration that meet latency and cost SLOs.

    None dominates another in (cost, latency, demand per shared tier). Whether the configuration
    is accurate enough is the caller's to know.
    """
    quick = condensed(setting.context, measured.work)
    plans, rejected = _plans(setting, measured, quick, most)
    if rejected and quick is not measured.work:  # at the bound: look at every input after all
        plans, _ = _plans(setting, measured, measured.work, most)
    return plans


def merged(context: PlanningContext, plans: Sequence[Plan], most: int) -> tuple[Plan, ...]:
    """Return the Pareto set of plans in (cost, latency, accuracy, demand per shared tier).

    At most `most`: the cheapest, the least demanding per tier, and then what is unlike them.
    Cheapest first, see `PlanningContext.by_request`, of those the most accurate, then the fastest;
    where costs by the hour and by the request say unlike things, both count.
    """
    if not plans:
        return ()
    ordered = sorted(
        plans,  # of equal plans the one with the fewest items counts
        key=lambda p: (
            round(ranked_by(context, p), 9),  # sums of shares are rounded
            -p.accuracy.value,
            p.latency_s.value,
            len(p.demand),
            p.id,
        ),
    )
    names = [context.infrastructure.tiers[i].name for i in _shared(context)]
    objectives = [
        (
            ranked_by(context, plan),
            *(sum(share for tier, share in plan.demand if tier == name) for name in names),
            plan.latency_s.value,
            -plan.accuracy.value,
            *([_other_cost(context, plan)] if _is_unlike(context) else []),
        )
        for plan in ordered
    ]
    return tuple(ordered[i] for i in _kept(context, np.array(objectives), most))


def plan_of(
    setting: SearchSetting, placement: Placements, steps: TierArray, measured: Measured
) -> Plan:
    """Return the plan of one deployment (the first row of each) with its estimates."""
    context, work = setting.context, measured.work
    graph, infrastructure = context.graph, context.infrastructure
    shares = shares_of(placement, steps)
    prediction = predict(context, placement, work, steps)
    names, tiers = [operator.name for operator in graph.operators], placement.tiers[0]
    on = [infrastructure.tiers[tier].name for tier in tiers]
    deployment = Deployment(
        placement=dict(zip(names, on, strict=True)),
        allocation=dict(zip(names, allocation_of(placement, steps)[0].tolist(), strict=True)),
        # A tier without machines has no copies: what is there stands for itself.
        replicas=dict(
            zip(names, np.maximum(prediction.replicas[0, tiers], 1).tolist(), strict=True)
        ),
        remote=frozenset(name for name in on if infrastructure.tier(name).remote),
    )
    demand = deployment.demand(graph)
    seconds = compose(graph, infrastructure, work, placement.tiers, shares)[0]
    latency = latency_estimate(seconds, statistic=context.statistic, population=setting.runs)
    mean_s = float(seconds.mean())
    slowest_s = float(LatencyStatistic.P99.of(seconds))
    wait_s = float(prediction.tier_wait_s[0].sum())
    value, low, high = (s + wait_s for s in (latency.value, latency.low, latency.high))
    calls, machines = plan_calls(setting, measured), cost_usd_per_hour(demand, infrastructure)
    usd = 0.0 if calls is None else calls.usd_per_request.value
    rate = context.requests_per_s or float(one_by_one(np.array(mean_s)))
    calls_usd_per_hour = _SECONDS_PER_HOUR * rate * usd
    return Plan(
        pipeline=graph.name,
        configuration=measured.configuration,
        deployment=deployment,
        demand=demand,
        accuracy=measured.accuracy,
        latency_s=replace(latency, value=value, low=low, high=high),
        cost_usd_per_hour=machines + calls_usd_per_hour,
        tier_service_s={
            tier: float(prediction.service_s[0, infrastructure.position(tier)])
            for tier in deployment.tiers
            if tier not in deployment.remote
        },
        calls=calls,
        calls_usd_per_hour=calls_usd_per_hour,
        cost_usd_per_1000_requests=_THOUSAND * (machines / (_SECONDS_PER_HOUR * rate) + usd),
        requests_per_s=context.requests_per_s,
        p99_over_mean=max(slowest_s / mean_s, 1.0) if mean_s > 0 else 1.0,
    )


def _plans(
    setting: SearchSetting, measured: Measured, work: Work, most: int
) -> tuple[tuple[Plan, ...], bool]:
    """Return plans found on `work`, and whether one of them misses the latency SLO exactly."""
    context, slo = setting.context, setting.slo
    loosened = setting.with_slo(replace(slo, latency_s=slo.latency_s * (1 + _ROUNDING))).context
    spots = setting.placements_of(measured.configuration)
    found = tightened(context if work is measured.work else loosened, spots, work)
    hour, thousand = _bounds(slo)
    good = found.cost_usd_per_hour <= hour * (1 + _ROUNDING)
    ranked, others = found.cost_usd_per_hour, list[FloatArray]()
    if (per_1000 := found.cost_usd_per_1000_requests) is not None:
        good &= per_1000 <= thousand * (1 + _ROUNDING)
        both = (per_1000, ranked) if context.by_request else (ranked, per_1000)
        ranked, others = both[0], [both[1]] if _is_unlike(context) else []
    demand = found.demand[:, _shared(context)].T
    objectives = np.stack([ranked, *demand, found.latency_s, *others], axis=1)
    within = np.flatnonzero(good)
    kept = within[_kept(context, objectives[within], most)]
    rows = [kept[i : i + 1] for i in range(len(kept))]
    plans = [plan_of(setting, found.placements.take(r), found.steps[r], measured) for r in rows]
    in_time = [plan for plan in plans if plan.latency_s.value <= slo.latency_s]
    affordable = [plan for plan in in_time if is_affordable(slo, plan)]
    return merged(context, affordable, most), len(in_time) < len(plans)


def is_affordable(slo: Slo, plan: Plan) -> bool:
    """Say whether a plan costs no more than it may, by its estimates."""
    hour, thousand = _bounds(slo)
    return plan.cost_usd_per_hour <= hour and plan.cost_usd_per_1000_requests <= thousand


def _bounds(slo: Slo) -> tuple[float, float]:
    """Return the most that an hour and that 1,000 requests may cost; inf: any."""
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    hour, thousand = (inf if bound is None else bound for bound in bounds)
    return hour, thousand


def _is_unlike(context: PlanningContext) -> bool:
    """Say whether costs by the hour and by the request say unlike things that somebody asked."""
    asked = context.slo.cost_usd_per_1000_requests is not None or context.by_request
    return context.requests_per_s is None and asked


def _other_cost(context: PlanningContext, plan: Plan) -> float:
    """Return the cost that plans are not `ranked_by`."""
    return plan.cost_usd_per_hour if context.by_request else plan.cost_usd_per_1000_requests


def _kept(context: PlanningContext, objectives: FloatArray, most: int) -> TierArray:
    """Return the rows worth keeping of (m, k) objectives: cost first, then demands."""
    front = undominated(objectives)
    return front[diverse(objectives[front], most, extremes=1 + len(_shared(context)))]


def _shared(context: PlanningContext) -> list[int]:
    """Return the tiers whose machines a query competes for."""
    tiers = enumerate(context.infrastructure.tiers)
    return [i for i, tier in tiers if not tier.dedicated and not tier.remote]
