"""The objects of a scheduled plan. Pure: equal plans and settings give equal documents.

The operators of a plan on one tier sit in one slice of a machine (ADR 0004), so there is a
Deployment for each tier and machine, its pods serving all operators of the tier; and one Service,
disruption budget and network policy for each tier.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import yaml

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import FIELD_MANAGER, Object
from circinus.deploy.kubernetes.pods import (
    HEALTH_PORT,
    PORT,
    PORT_NAME,
    Pinning,
    RenderSettings,
    pod_template,
)
from circinus.deploy.runtime.instances import DesiredDeployment, InstanceSpec, instances_of
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.graph import PipelineGraph
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.plan import Plan
from circinus.scheduler.problem import Slice, parts_of

QUERY_ID, PLAN_ID = "circinus.io/query-id", "circinus.io/plan-id"
"""Annotations: what the labels stand for."""
SERVING, STANDBY = "serving", "standby"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduledPlan:
    """A query's plan on its machines."""

    query_id: str  # whose
    pipeline_reference: str  # see `pipelines.registry`
    plan: Plan  # what runs
    graph: PipelineGraph  # of its pipeline
    infrastructure: Infrastructure  # that it was planned for
    # A slice for every item of the plan's demand, in its order; none: the schedule is not known,
    # workers are bound to tiers
    slices: tuple[Slice, ...] = ()

    def __post_init__(self) -> None:
        if not self.slices:
            return
        granted = [(s.tier, parts_of(s.share)) for s in self.slices]
        asked = [(tier, parts_of(share)) for tier, share in self.plan.demand]
        if granted != asked:
            rule = f"must be those of plan {self.plan.id}, {asked}"
            raise InvalidInput.of("slices", rule, granted)

    def placed(self) -> list[tuple[InstanceSpec, int | None]]:
        """Give the instances, each with its machine; None: any of the tier.

        Raises:
            InvalidInput: If the plan names an operator or tier that does not exist.
        """
        desired = DesiredDeployment(pipeline_reference=self.pipeline_reference, plan=self.plan)
        found = instances_of(self.query_id, desired, self.graph, self.infrastructure)
        specs = list(found.values())
        if not self.slices:
            return [(spec, None) for spec in specs]
        return [
            (spec, None if spec.tier.dedicated else each.machine)
            for spec, each in zip(specs, self.slices, strict=True)
        ]


class _Group(NamedTuple):
    """Replicas that are alike."""

    spec: InstanceSpec
    machine: int | None
    replicas: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The objects of a plan."""

    query_id: str  # whose
    plan_id: str  # of the plan
    namespace: str  # of all objects
    objects: tuple[Object, ...]  # in the order in which they are to be applied

    def as_yaml(self) -> str:
        """Give the objects as one YAML stream."""
        return yaml.safe_dump_all(self.objects, sort_keys=False)


def render(scheduled: ScheduledPlan, settings: RenderSettings) -> Rendered:
    """Give the objects of a scheduled plan.

    Raises:
        InvalidInput: If the plan does not fit its pipeline, the infrastructure or a device policy.
    """
    groups = _groups(scheduled, settings)
    tiers = scheduled.plan.deployment.tiers
    documents = [
        _plan_document(scheduled),
        *(_network_policy(scheduled, tier, settings) for tier in tiers),
        *(_service(scheduled, tier) for tier in tiers),
        *(_disruption_budget(scheduled, tier) for tier in tiers),
        *(_deployment(scheduled, group, settings) for group in groups),
    ]
    for document in documents:
        document["metadata"]["namespace"] = settings.namespace
        document["metadata"]["annotations"][names.CONTENT] = names.content_hash(document)
    return Rendered(
        query_id=scheduled.query_id,
        plan_id=scheduled.plan.id,
        namespace=settings.namespace,
        objects=tuple(documents),
    )


def helm_values(rendered: Iterable[Rendered]) -> str:
    """Give the objects of plans as a values file, for a chart that writes out `manifests`."""
    found = {"manifests": [document for each in rendered for document in each.objects]}
    text: str = yaml.safe_dump(found, sort_keys=False)
    return text


def _groups(scheduled: ScheduledPlan, settings: RenderSettings) -> list[_Group]:
    pinned = settings.pinning is Pinning.MACHINE
    placed = [(spec, machine if pinned else None) for spec, machine in scheduled.placed()]
    counts = Counter((spec.tier.name, machine) for spec, machine in placed)
    firsts = {(spec.tier.name, machine): spec for spec, machine in reversed(placed)}
    groups = [
        _Group(firsts[tier, machine], machine, count, SERVING)
        for (tier, machine), count in counts.items()
    ]
    if settings.standby:
        first_of = {spec.tier.name: spec for spec, _ in reversed(placed)}
        groups += [_Group(s, None, settings.standby, STANDBY) for s in first_of.values()]
    return groups


def _own(scheduled: ScheduledPlan) -> dict[str, str]:
    return {
        names.MANAGED_BY: FIELD_MANAGER,
        names.QUERY: names.label_value(scheduled.query_id),
        names.PLAN: names.label_value(scheduled.plan.id),
    }


def _of_tier(scheduled: ScheduledPlan, tier: str) -> dict[str, str]:
    return {**_own(scheduled), names.COMPONENT: "worker", names.TIER: names.label_value(tier)}


def _object(
    scheduled: ScheduledPlan,
    api_version: str,
    kind: str,
    labels: Mapping[str, str],
    *parts: str,
) -> Object:
    """Give an object without its content; the parts of its name are its use first."""
    plan = scheduled.plan
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": names.object_name(plan.pipeline, scheduled.query_id, plan.id, *parts),
            "labels": dict(labels),
            "annotations": {
                "circinus.io/pipeline": plan.pipeline,
                QUERY_ID: scheduled.query_id,
                PLAN_ID: plan.id,
            },
        },
    }


def _plan_document(scheduled: ScheduledPlan) -> Object:
    plan = scheduled.plan
    told = {
        "query": scheduled.query_id,
        "pipeline": plan.pipeline,
        "plan": plan.id,
        "configuration": plan.configuration.as_dict(),
        "placement": dict(plan.deployment.placement),
        "allocation": dict(plan.deployment.allocation),
        "replicas": dict(plan.deployment.replicas),
        "slices": [list(each) for each in scheduled.slices],
        "accuracy": plan.accuracy.value,
        "latency_s": plan.latency_s.value,
        "cost_usd_per_hour": plan.cost_usd_per_hour,
    }
    found = _object(scheduled, "v1", "ConfigMap", {**_own(scheduled), names.ROLE: "plan"}, "plan")
    return {**found, "data": {"plan.json": json.dumps(told, indent=1)}}


def _service(scheduled: ScheduledPlan, tier: str) -> Object:
    labels = _of_tier(scheduled, tier)
    spec = {
        "clusterIP": "None",  # the dispatcher chooses the pod, nobody in between
        "selector": labels,
        "ports": [{"name": PORT_NAME, "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
    }
    return {**_object(scheduled, "v1", "Service", labels, "service", tier), "spec": spec}


def _disruption_budget(scheduled: ScheduledPlan, tier: str) -> Object:
    labels = _of_tier(scheduled, tier)
    found = _object(scheduled, "policy/v1", "PodDisruptionBudget", labels, "budget", tier)
    # One at a time: a least number available would forbid draining the node of an only one.
    return {**found, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}}}


def _network_policy(scheduled: ScheduledPlan, tier: str, settings: RenderSettings) -> Object:
    labels = _of_tier(scheduled, tier)
    neighbours: list[Object] = [
        {"podSelector": {"matchLabels": _of_tier(scheduled, other)}}
        for other in _neighbours(scheduled, tier)
    ]
    dispatcher = {
        "podSelector": {"matchLabels": dict(settings.dispatcher)},
        "namespaceSelector": {},
    }
    ports = [{"port": port, "protocol": "TCP"} for port in (PORT, HEALTH_PORT)]
    spec = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [*neighbours, dispatcher], "ports": ports}],
    }
    version = "networking.k8s.io/v1"
    return {**_object(scheduled, version, "NetworkPolicy", labels, "policy", tier), "spec": spec}


def _neighbours(scheduled: ScheduledPlan, tier: str) -> list[str]:
    """Give the other tiers that data comes from or goes to."""
    placement = scheduled.plan.deployment.placement
    pairs = {
        (placement[parent], placement[operator.name])
        for operator in scheduled.graph.operators
        for parent in operator.after
    }
    near = {a for a, b in pairs if b == tier} | {b for a, b in pairs if a == tier}
    return sorted(near - {tier})


def _deployment(scheduled: ScheduledPlan, group: _Group, settings: RenderSettings) -> Object:
    tier = group.spec.tier.name
    spread = _of_tier(scheduled, tier)
    where = "any" if group.machine is None else str(group.machine)
    found = _object(scheduled, "apps/v1", "Deployment", spread, "workers", tier, where, group.role)
    labels = {**spread, names.ROLE: group.role, names.GROUP: found["metadata"]["name"]}
    found["metadata"]["labels"] = labels
    template = pod_template(group.spec, group.machine, settings, labels=labels, spread=spread)
    spec = {
        "replicas": group.replicas,
        "progressDeadlineSeconds": 600,
        "selector": {"matchLabels": labels},
        "template": template,
    }
    return {**found, "spec": spec}
