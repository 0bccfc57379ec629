"""What rendered workers would run: read off their command lines, as they read them themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from circinus.deploy.workers.options import parse
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.plan import Plan


@dataclass(frozen=True)
class ReadBack:
    placement: dict[str, str]  # operator -> tier, in topological order
    shares: dict[str, float]  # tier -> of each of its workers
    replicas: dict[str, int]  # tier -> its workers
    configuration: dict[str, Any]


def read_back(graph: PipelineGraph, workers: Iterable[tuple[Sequence[str], int]]) -> ReadBack:
    """Read arguments of workers, each with how many have them; what they disagree on fails."""
    placed: dict[str, str] = {}
    shares: dict[str, float] = {}
    replicas = Counter[str]()
    configurations: list[Any] = []
    for arguments, count in workers:
        options = parse(arguments)
        for operator in options.operators:
            assert placed.setdefault(operator, options.tier) == options.tier
        assert shares.setdefault(options.tier, options.pace.share) == options.pace.share
        replicas[options.tier] += count
        configurations.append(options.configuration)
    assert all(each == configurations[0] for each in configurations)
    order = {op.name: placed[op.name] for op in graph.operators}
    return ReadBack(order, shares, dict(replicas), configurations[0])


def as_planned(plan: Plan, graph: PipelineGraph) -> ReadBack:
    """What a plan says."""
    demand = plan.deployment.demand(graph)
    return ReadBack(
        dict(plan.deployment.placement),
        {tier: min(share, 1.0) for tier, share in demand},
        dict(Counter(tier for tier, _ in demand)),
        plan.configuration.as_dict(),
    )
