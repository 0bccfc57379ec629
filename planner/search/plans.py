"""Turns allocations into plans: the Pareto set of one configuration, and of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from circinus.pipelines.model.latency import TierArray, Work, compose
from circinus.pipelines.model.plan import Deployment, Plan, cost_usd_per_hour
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, Slo, SloState
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
from circinus.planner.deployment.slices import own_shares, tier_of
from circinus.planner.models.estimates import latency_estimate
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.search.intervals import cheaper, estimated, plan_calls, stricter, upper_ratio
from circinus.planner.strategy.protocol import Measured, SearchSetting

_SECONDS_PER_HOUR, _THOUSAND = 3600.0, 1000.0

_ROUNDING = 1e-9
"""Relative slack of searches on condensed work, whose sums round otherwise; plans are checked
against the SLO without it."""


def announced(
    setting: SearchSetting,
    measured: Measured,  # the configuration, accurate enough
    tail: LatencyTail,  # of operators' seconds, over all configurations
    accuracy: Estimate | None,  # its accuracy; None: by its own scores
    most: int,  # plans
    confidence: float | None,  # see `upper_ratio`
) -> tuple[Plan, ...]:
    """Return the Pareto set of a configuration's plans, tightened as far as its interval allows.

    Where objectives hold for future inputs, only those that provably meet them.
    """
    ratio, slo = upper_ratio(setting, measured, tail, confidence), setting.context.slo
    within = cheaper(setting, stricter(setting.slo, ratio), measured, ratio, confidence)
    if within is None:
        return ()
    plans = tuple(
        estimated(setting, plan, measured, tail, accuracy)
        for plan in feasible_plans(setting.with_slo(within), measured, most)
    )
    if not setting.is_ahead:
        return plans
    return tuple(plan for plan in plans if set(plan.states(slo).values()) == {SloState.MET})


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
    where costs by the hour and by the request order plans differently, both count.
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
    # deviates: front-objectives
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
    return tuple(ordered[i] for i in _selected(context, np.array(objectives), most))


def plan_of(
    setting: SearchSetting, placement: Placements, steps: TierArray, measured: Measured
) -> Plan:
    """Return the plan of one deployment (the first row of each) with its estimates."""
    context, work = setting.context, measured.work
    graph, infrastructure = context.graph, context.infrastructure
    shares = shares_of(placement, steps)
    prediction = predict(context, placement, work, steps)
    names, tiers = [operator.name for operator in graph.operators], placement.tiers[0]
    on = [infrastructure.tiers[tier].name for tier in tier_of(context)[tiers]]
    slices = [infrastructure.tiers[slice_].name for slice_ in tiers]
    of_slices = allocation_of(placement, steps)[0].tolist()
    deployment = Deployment(
        placement=dict(zip(names, on, strict=True)),
        allocation=dict(zip(names, own_shares(context, slices, of_slices), strict=True)),
        # A tier without machines has no copies: what is there stands for itself.
        replicas=dict(
            zip(names, np.maximum(prediction.replicas[0, tiers], 1).tolist(), strict=True)
        ),
        remote=frozenset(name for name in on if infrastructure.tier(name).remote),
        slices={
            name: slice_
            for name, slice_, tier in zip(names, slices, on, strict=True)
            if slice_ != tier
        },
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
            name: float(prediction.service_s[0, infrastructure.position(name)])
            for name in deployment.groups
            if name not in deployment.remote
        },
        calls=calls,
        calls_usd_per_hour=calls_usd_per_hour,
        cost_usd_per_1000_requests=_THOUSAND * (machines / (_SECONDS_PER_HOUR * rate) + usd),
        requests_per_s=context.requests_per_s,
        p99_over_mean=max(slowest_s / mean_s, 1.0) if mean_s > 0 else 1.0,
    )


def fastest_plan(setting: SearchSetting, measured: Measured) -> Plan:
    """Return the deployment of a configuration that is fastest, at full shares."""
    spots = setting.placements_of(measured.configuration)
    best = fastest(setting.context, spots, measured.work)
    return plan_of(setting, best, best.full_steps, measured)


def _plans(
    setting: SearchSetting, measured: Measured, work: Work, most: int
) -> tuple[tuple[Plan, ...], bool]:
    """Return plans found on `work`, and whether one of them misses the latency SLO exactly."""
    context, slo = setting.context, setting.slo
    loosened = setting.with_slo(replace(slo, latency_s=slo.latency_s * (1 + _ROUNDING))).context
    spots = setting.placements_of(measured.configuration)
    allocated = tightened(context if work is measured.work else loosened, spots, work)
    hour, thousand = _bounds(slo)
    good = allocated.cost_usd_per_hour <= hour * (1 + _ROUNDING)
    ranked, others = allocated.cost_usd_per_hour, list[FloatArray]()
    if (per_1000 := allocated.cost_usd_per_1000_requests) is not None:
        good &= per_1000 <= thousand * (1 + _ROUNDING)
        both = (per_1000, ranked) if context.by_request else (ranked, per_1000)
        ranked, others = both[0], [both[1]] if _is_unlike(context) else []
    demand = allocated.demand[:, _shared(context)].T
    objectives = np.stack([ranked, *demand, allocated.latency_s, *others], axis=1)
    within = np.flatnonzero(good)
    selected = within[_selected(context, objectives[within], most)]
    rows = [selected[i : i + 1] for i in range(len(selected))]
    plans = [
        plan_of(setting, allocated.placements.take(r), allocated.steps[r], measured) for r in rows
    ]
    in_time = [plan for plan in plans if plan.latency_s.value <= slo.latency_s]
    affordable = [plan for plan in in_time if is_affordable(slo, plan)]
    return merged(context, affordable, most), len(in_time) < len(plans)


def is_affordable(slo: Slo, plan: Plan) -> bool:
    """Return whether a plan costs no more than it may, by its estimates."""
    hour, thousand = _bounds(slo)
    return plan.cost_usd_per_hour <= hour and plan.cost_usd_per_1000_requests <= thousand


def _bounds(slo: Slo) -> tuple[float, float]:
    """Return the most that an hour and that 1,000 requests may cost; inf: any."""
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    hour, thousand = (inf if bound is None else bound for bound in bounds)
    return hour, thousand


def _is_unlike(context: PlanningContext) -> bool:
    """Return whether costs by the hour and by the request rank plans otherwise, and both count."""
    matters = context.slo.cost_usd_per_1000_requests is not None or context.by_request
    return context.requests_per_s is None and matters


def _other_cost(context: PlanningContext, plan: Plan) -> float:
    """Return the cost that plans are not `ranked_by`."""
    return plan.cost_usd_per_hour if context.by_request else plan.cost_usd_per_1000_requests


def _selected(context: PlanningContext, objectives: FloatArray, most: int) -> TierArray:
    """Return the rows worth keeping of (m, k) objectives: cost first, then demands."""
    front = undominated(objectives)
    return front[diverse(objectives[front], most, extremes=1 + len(_shared(context)))]


def _shared(context: PlanningContext) -> list[int]:
    """Return the tiers whose machines a query competes for."""
    tiers, own = context.infrastructure.tiers, set(tier_of(context).tolist())
    return [i for i in sorted(own) if not tiers[i].dedicated and not tiers[i].remote]
