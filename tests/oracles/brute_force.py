"""Answers found by trying everything."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.plan import Deployment, cost_usd_per_hour
from circinus.pipelines.model.slo import LatencyStatistic


def deployments(graph: PipelineGraph, infrastructure: Infrastructure) -> Iterator[Deployment]:
    """Yield every placement with every share per tier that one machine can hold."""
    names = [operator.name for operator in graph.operators]
    usable = [tier.name for tier in infrastructure.tiers if tier.machines > 0]
    for tiers in itertools.product(usable, repeat=len(names)):
        used = sorted(set(tiers))
        for steps in itertools.product(range(1, 21), repeat=len(used)):
            share = {tier: round(k * 0.05, 9) for tier, k in zip(used, steps, strict=True)}
            deployment = Deployment(
                placement=dict(zip(names, tiers, strict=True)),
                allocation={n: share[t] for n, t in zip(names, tiers, strict=True)},
                replicas=dict.fromkeys(names, 1),
            )
            if all(item.share <= 1 for item in deployment.demand(graph)):
                yield deployment


def cheapest_cost(
    graph: PipelineGraph,
    infrastructure: Infrastructure,
    work: Work,
    *,
    latency_s: float,
    statistic: LatencyStatistic,
) -> float:
    """Return the least cost of any deployment within the latency; inf: there is none."""
    costs = [
        cost_usd_per_hour(deployment.demand(graph), infrastructure)
        for deployment in deployments(graph, infrastructure)
        if statistic.of(request_seconds(graph, infrastructure, work, deployment)) <= latency_s
    ]
    return min(costs, default=np.inf)
