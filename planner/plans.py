"""Turns what allocation found into plans: the Pareto set of one configuration, and of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pipelines.latency import TierArray, Work, compose
from pipelines.plan import Deployment, Plan, cost_usd_per_hour
from pipelines.profile import FloatArray
from pipelines.slo import Estimate
from planner.allocation import Allocations, tightened
from planner.estimates import latency_estimate
from planner.measuring import Measured
from planner.pareto import diverse, undominated
from planner.placement import Placements
from planner.prediction import Prediction, Scene, condensed, predict, shares_of

_ROUNDING = 1e-9
"""Relative slack of searches on condensed work, whose sums round otherwise; plans are checked
against the SLO without it."""


def feasible_plans(
    scene: Scene, placements: Placements, measured: Measured, population: int, most: int
) -> tuple[Plan, ...]:
    """Give at most `most` plans of one configuration that meet latency and cost SLO.

    None dominates another in (cost, latency, demand per shared tier). Whether the configuration
    is accurate enough is the caller's to know.
    """
    quick = condensed(scene, measured.work)
    plans, rejected = _plans(scene, placements, measured, population, quick, most)
    if rejected and quick is not measured.work:  # at the bound: look at every input after all
        plans, _ = _plans(scene, placements, measured, population, measured.work, most)
    return plans


def merged(scene: Scene, plans: Sequence[Plan], most: int) -> tuple[Plan, ...]:
    """Give the Pareto set of plans in (cost, latency, accuracy, demand per shared tier).

    At most `most`: the cheapest, the least demanding per tier, and then what is unlike them.
    Cheapest first.
    """
    if not plans:
        return ()
    ordered = sorted(
        plans,  # of equal plans the one with the fewest items counts
        key=lambda plan: (plan.cost_usd_per_hour, plan.latency_s.value, len(plan.demand), plan.id),
    )
    objectives = np.array([_objectives(scene, plan) for plan in ordered])
    front = undominated(objectives)
    kept = front[diverse(objectives[front], most, extremes=1 + len(_shared(scene)))]
    return tuple(ordered[i] for i in kept)


def plan_of(
    scene: Scene, placement: Placements, steps: TierArray, measured: Measured, population: int
) -> Plan:
    """Give the plan of one deployment (the first row of each) with its estimates."""
    graph, infrastructure = scene.graph, scene.infrastructure
    work = measured.work
    shares = shares_of(placement, steps)
    prediction = predict(scene, placement, work, steps)
    deployment = _deployment(scene, placement, shares, prediction)
    demand = deployment.demand(graph)
    latencies = compose(graph, infrastructure, work, placement.tiers, shares)[0]
    return Plan(
        pipeline=graph.name,
        configuration=measured.configuration,
        deployment=deployment,
        demand=demand,
        accuracy=measured.accuracy,
        latency_s=_later(
            latency_estimate(latencies, statistic=scene.statistic, population=population),
            float(prediction.wait_s[0]),
        ),
        cost_usd_per_hour=cost_usd_per_hour(demand, infrastructure),
        tier_service_s={
            tier: float(prediction.service_s[0, infrastructure.position(tier)])
            for tier in deployment.tiers
        },
    )


def _plans(
    scene: Scene,
    placements: Placements,
    measured: Measured,
    population: int,
    work: Work,
    most: int,
) -> tuple[tuple[Plan, ...], bool]:
    """Give plans found on `work`, and whether one of them misses the latency SLO exactly."""
    searched = scene if work is measured.work else _loosened(scene)
    found = tightened(searched, placements, work)
    cost = scene.slo.cost_usd_per_hour
    if cost is not None:
        within = found.cost_usd_per_hour <= cost * (1 + _ROUNDING)
        found = found.take(np.flatnonzero(within))
    columns = [found.cost_usd_per_hour, *found.demand[:, _shared(scene)].T, found.latency_s]
    objectives = np.stack(columns, axis=1)
    front = undominated(objectives)
    kept = front[diverse(objectives[front], most, extremes=1 + len(_shared(scene)))]
    plans = _built(scene, found.take(kept), measured, population)
    in_time = [plan for plan in plans if plan.latency_s.value <= scene.slo.latency_s]
    rejected = len(in_time) < len(plans)
    good = [plan for plan in in_time if cost is None or plan.cost_usd_per_hour <= cost]
    return merged(scene, good, most), rejected


def _loosened(scene: Scene) -> Scene:
    slo = replace(scene.slo, latency_s=scene.slo.latency_s * (1 + _ROUNDING))
    return replace(scene, query=replace(scene.query, slo=slo))


def _built(
    scene: Scene, found: Allocations, measured: Measured, population: int
) -> tuple[Plan, ...]:
    rows = [np.array([row]) for row in range(len(found))]
    return tuple(
        plan_of(scene, found.placements.take(row), found.steps[row], measured, population)
        for row in rows
    )


def _shared(scene: Scene) -> list[int]:
    """Give the tiers whose machines a query competes for."""
    return [i for i, tier in enumerate(scene.infrastructure.tiers) if not tier.dedicated]


def _objectives(scene: Scene, plan: Plan) -> FloatArray:  # (k,)
    tiers = scene.infrastructure.tiers
    demand = [
        sum(share for tier, share in plan.demand if tier == tiers[i].name) for i in _shared(scene)
    ]
    return np.array([plan.cost_usd_per_hour, *demand, plan.latency_s.value, -plan.accuracy.value])


def _deployment(
    scene: Scene, placement: Placements, shares: FloatArray, prediction: Prediction
) -> Deployment:
    names = [operator.name for operator in scene.graph.operators]
    tiers = placement.tiers[0]
    on = [scene.infrastructure.tiers[tier].name for tier in tiers]
    return Deployment(
        placement=dict(zip(names, on, strict=True)),
        allocation=dict(zip(names, shares[0].tolist(), strict=True)),
        replicas=dict(zip(names, prediction.replicas[0, tiers].tolist(), strict=True)),
    )


def _later(estimate: Estimate, wait_s: float) -> Estimate:
    return replace(
        estimate,
        value=estimate.value + wait_s,
        low=estimate.low + wait_s,
        high=estimate.high + wait_s,
    )
