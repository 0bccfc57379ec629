"""What has to change so that what should run runs. Pure: it decides, others act."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from deploy.instances import DesiredDeployment, InstanceKey, InstanceSpec
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Infrastructure


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What to do.

    Attributes:
        start: Instances that are missing.
        stop: Instances that nobody wants.
    """

    start: tuple[InstanceSpec, ...]
    stop: tuple[InstanceKey, ...]


def changes(
    desired: Mapping[InstanceKey, InstanceSpec], running: Collection[InstanceKey]
) -> Changes:
    """Give the changes from `running` to `desired`; none when they agree."""
    return Changes(
        start=tuple(spec for key, spec in desired.items() if key not in running),
        stop=tuple(key for key in running if key not in desired),
    )


def instances_of(
    query_id: str,
    desired: DesiredDeployment,
    graph: PipelineGraph,
    infrastructure: Infrastructure,
) -> dict[InstanceKey, InstanceSpec]:
    """Give the instances of a plan: one per item of its demand.

    An instance runs its operators one at a time on the item's whole share. That is never
    slower than running each on its part of it: w operators that could run at once share
    w times the share of one.

    Raises:
        InvalidInput: If the plan names an operator or tier that does not exist.
    """
    plan = desired.plan
    found = {}
    replicas = dict.fromkeys(plan.deployment.tiers, 0)
    for tier, share in plan.deployment.demand(graph):
        key = InstanceKey(query_id, plan.id, tier, replicas[tier])
        replicas[tier] += 1
        found[key] = InstanceSpec(
            key=key,
            pipeline_reference=desired.pipeline_reference,
            operators=tuple(graph.operator(o) for o in plan.deployment.operators_on(tier)),
            configuration=plan.configuration,
            tier=infrastructure.tier(tier),
            share=min(share, 1.0),
        )
    return found
