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

from deploy.instances import InstanceSpec
from deploy.kubernetes.api import FIELD_MANAGER, Object
from deploy.kubernetes.names import (
    COMPONENT,
    CONTENT,
    MANAGED_BY,
    PLAN,
    QUERY,
    ROLE,
    TIER,
    content_hash,
    label_value,
    object_name,
)
from deploy.kubernetes.scheduled import Pinning, RenderSettings, ScheduledPlan
from deploy.kubernetes.worker_objects import HEALTH_PORT, PORT, PORT_NAME
from deploy.kubernetes.workers_pod import pod_template

SERVING, STANDBY = "serving", "standby"


class _Group(NamedTuple):
    """Replicas that are alike."""

    spec: InstanceSpec
    machine: int | None
    replicas: int
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The objects of a plan.

    Attributes:
        query_id: Whose.
        plan_id: Of the plan.
        namespace: Of all objects.
        objects: In the order in which they are to be applied.
    """

    query_id: str
    plan_id: str
    namespace: str
    objects: tuple[Object, ...]

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
        document["metadata"]["annotations"][CONTENT] = content_hash(document)
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
        MANAGED_BY: FIELD_MANAGER,
        QUERY: label_value(scheduled.query_id),
        PLAN: label_value(scheduled.plan.id),
    }


def _of_tier(scheduled: ScheduledPlan, tier: str) -> dict[str, str]:
    return {**_own(scheduled), COMPONENT: "worker", TIER: label_value(tier)}


def _metadata(
    scheduled: ScheduledPlan, kind: str, labels: Mapping[str, str], *more: str
) -> Object:
    plan = scheduled.plan
    return {
        "name": object_name(plan.pipeline, scheduled.query_id, plan.id, kind, *more),
        "labels": dict(labels),
        "annotations": {
            "circinus.io/pipeline": plan.pipeline,
            "circinus.io/query-id": scheduled.query_id,
            "circinus.io/plan-id": plan.id,
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
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(scheduled, "plan", {**_own(scheduled), ROLE: "plan"}),
        "data": {"plan.json": json.dumps(told, indent=1)},
    }


def _service(scheduled: ScheduledPlan, tier: str) -> Object:
    labels = _of_tier(scheduled, tier)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(scheduled, "service", labels, tier),
        "spec": {
            "clusterIP": "None",  # the dispatcher chooses the pod, nobody in between
            "selector": labels,
            "ports": [{"name": PORT_NAME, "port": PORT, "targetPort": PORT, "protocol": "TCP"}],
        },
    }


def _disruption_budget(scheduled: ScheduledPlan, tier: str) -> Object:
    labels = _of_tier(scheduled, tier)
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(scheduled, "budget", labels, tier),
        # One at a time: a least number available would forbid draining the node of an only one.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels}},
    }


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
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _metadata(scheduled, "policy", labels, tier),
        "spec": {
            "podSelector": {"matchLabels": labels},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [*neighbours, dispatcher],
                    "ports": [
                        {"port": PORT, "protocol": "TCP"},
                        {"port": HEALTH_PORT, "protocol": "TCP"},
                    ],
                }
            ],
        },
    }


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
    name = _metadata(scheduled, "workers", spread, tier, where, group.role)
    selector = {**spread, ROLE: group.role, "circinus.io/group": name["name"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {**name, "labels": selector},
        "spec": {
            "replicas": group.replicas,
            "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": selector},
            "template": pod_template(
                group.spec, group.machine, settings, labels=selector, spread=spread
            ),
        },
    }
