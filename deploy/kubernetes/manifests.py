"""The objects of a scheduled plan, for `circinus render`; `pods` has those that a service starts.

Pure: equal plans and settings give equal documents.

The operators of a plan on one tier sit in one slice of a machine (ADR 0004), so there is a
Deployment for each tier and machine, its pods serving all operators of the tier; and one Service,
disruption budget and network policy for each tier.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

import yaml

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import VERSIONS, Object
from circinus.deploy.kubernetes.names import version_of
from circinus.deploy.kubernetes.pods import (
    HEALTH_PORT,
    PORT,
    Pinning,
    RenderSettings,
    WorkerGroup,
    budget_spec,
    deployment_spec,
    service_spec,
    tier_selector,
)
from circinus.deploy.runtime.instances import (
    DesiredDeployment,
    InstanceSpec,
    instances_of,
    refuse_callers,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.scheduler.problem import Slice, parts_of

QUERY_ID, PLAN_ID = "circinus.io/query-id", "circinus.io/plan-id"
"""Annotations: what the labels stand for."""
SERVING, STANDBY = "serving", "standby"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScheduledPlan(DesiredDeployment):
    """A query's plan on its machines."""

    query_id: str
    graph: PipelineGraph
    infrastructure: Infrastructure
    slices: tuple[Slice, ...] = ()  # of the items of its demand; none: workers go by tiers alone

    def __post_init__(self) -> None:
        if not self.slices:
            return
        granted = [(s.tier, parts_of(s.share)) for s in self.slices]
        demand = [(tier, parts_of(share)) for tier, share in self.plan.demand]
        if granted != demand:
            rule = f"must be those of plan {self.plan.id}, {demand}"
            raise InvalidInput.of("slices", rule, granted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """The objects of a plan."""

    query_id: str
    plan_id: str
    namespace: str  # of all objects
    objects: tuple[Object, ...]  # in the order in which they are to be applied

    def as_yaml(self) -> str:
        """Return the objects as one YAML stream."""
        return yaml.dump_all(self.objects, Dumper=WithoutAliases, sort_keys=False)


class WithoutAliases(yaml.SafeDumper):
    """Writes everything out: people read and edit what is printed."""

    def ignore_aliases(self, data: object) -> bool:
        """Return True."""
        return True


def render(scheduled: ScheduledPlan, settings: RenderSettings) -> Rendered:
    """Return a plan's objects.

    InvalidInput if it does not fit pipeline, tiers or their GPUs, or calls endpoints.
    """
    groups = _groups(scheduled, settings)
    tiers = scheduled.plan.deployment.tiers
    documents = [
        _plan_document(scheduled),
        *chain(*zip(*(_around(scheduled, tier) for tier in tiers), strict=True)),  # by kind
        *(_deployment(scheduled, group, settings) for group in groups),
    ]
    recommended = names.recommended(scheduled.query_id, version_of(settings.image))
    for document in documents:
        document["metadata"]["labels"] = {**recommended, **document["metadata"]["labels"]}
        document["metadata"]["namespace"] = settings.namespace
        document["metadata"]["annotations"][names.CONTENT] = names.content_hash(document)
    return Rendered(
        query_id=scheduled.query_id,
        plan_id=scheduled.plan.id,
        namespace=settings.namespace,
        objects=tuple(documents),
    )


def helm_values(rendered: Iterable[Rendered]) -> str:
    """Return the objects of plans as a values file, for a chart that writes out `manifests`."""
    values = {"manifests": [document for each in rendered for document in each.objects]}
    text: str = yaml.dump(values, Dumper=WithoutAliases, sort_keys=False)
    return text


def _groups(scheduled: ScheduledPlan, settings: RenderSettings) -> list[WorkerGroup]:
    graph, infrastructure = scheduled.graph, scheduled.infrastructure
    specs = instances_of(scheduled.query_id, scheduled, graph, infrastructure)
    refuse_callers(specs.values(), "a pod")
    alike: dict[tuple[str, str | None, int | None], list[InstanceSpec]] = defaultdict(list)
    for spec, each in zip_longest(specs.values(), scheduled.slices):
        # Numbers of machines of types change as others come and go: the type is all that binds.
        numbered = not spec.tier.dedicated and spec.machine_type is None
        pinned = settings.pinning is Pinning.MACHINE and numbered
        machine = each.machine if each and pinned else None
        alike[spec.key.queue, spec.machine_type, machine].append(spec)
    groups = [
        WorkerGroup(spec=same[0], own={names.ROLE: SERVING}, machine=at[-1], replicas=len(same))
        for at, same in alike.items()
    ]
    if settings.standby:
        first_of = {(g.spec.key.queue, g.spec.machine_type): g.spec for g in reversed(groups)}
        warm, standby = {names.ROLE: STANDBY}, settings.standby
        groups += [WorkerGroup(spec=s, own=warm, replicas=standby) for s in first_of.values()]
    return groups


def _of_tier(scheduled: ScheduledPlan, tier: str) -> dict[str, str]:
    return tier_selector(scheduled.query_id, scheduled.plan.id, tier)


def _object(
    scheduled: ScheduledPlan, kind: str, labels: Mapping[str, str], *parts: str, **content: object
) -> Object:
    """Return an object with its content; the parts of its name are its tier or use first."""
    plan = scheduled.plan
    use, *others = parts
    metadata = {
        "name": names.object_name(scheduled.query_id, use, plan.pipeline, plan.id, *others),
        "labels": dict(labels),
        "annotations": {
            "circinus.io/pipeline": plan.pipeline,
            QUERY_ID: scheduled.query_id,
            PLAN_ID: plan.id,
        },
    }
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, **content}


def _plan_document(scheduled: ScheduledPlan) -> Object:
    plan = scheduled.plan
    document = {
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
    labels = {**names.labels_of(scheduled.query_id, plan.id), names.ROLE: "plan"}
    data = {"plan.json": json.dumps(document, indent=1)}
    return _object(scheduled, "ConfigMap", labels, "plan", data=data)


def _around(scheduled: ScheduledPlan, tier: str) -> tuple[Object, Object, Object]:
    """Return the objects that a tier's workers share: for access, discovery and draining."""
    labels = _of_tier(scheduled, tier)
    return (
        _object(scheduled, "NetworkPolicy", labels, tier, spec=_ingress(scheduled, tier)),
        _object(scheduled, "Service", labels, tier, spec=service_spec(labels)),
        _object(scheduled, "PodDisruptionBudget", labels, tier, spec=budget_spec(labels)),
    )


def _ingress(scheduled: ScheduledPlan, tier: str) -> Object:
    placement, operators = scheduled.plan.deployment.placement, scheduled.graph.operators
    # The tiers that data comes from or goes to.
    pairs = [(placement[parent], placement[op.name]) for op in operators for parent in op.after]
    near = sorted({end for pair in pairs if tier in pair for end in pair} - {tier})
    callers: list[Object] = [
        {"podSelector": {"matchLabels": _of_tier(scheduled, other)}} for other in near
    ]
    # Who sends requests may be in any namespace.
    dispatcher = {"matchLabels": {"app.kubernetes.io/name": "circinus"}}
    callers.append({"podSelector": dispatcher, "namespaceSelector": {}})
    ports = [{"port": port, "protocol": "TCP"} for port in (PORT, HEALTH_PORT)]
    return {
        "podSelector": {"matchLabels": _of_tier(scheduled, tier)},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": callers, "ports": ports}],
    }


def _deployment(scheduled: ScheduledPlan, group: WorkerGroup, settings: RenderSettings) -> Object:
    tier = group.spec.tier.name
    where = ["any" if group.machine is None else str(group.machine)]
    if group.spec.machine_type is not None:
        where.append(f"type {group.spec.machine_type}")
    if group.spec.key.slice is not None:
        where.append(f"slice {group.spec.key.slice}")
    labels = _of_tier(scheduled, tier)
    document = _object(scheduled, "Deployment", labels, tier, *where, group.own[names.ROLE])
    own = {**group.own, names.GROUP: document["metadata"]["name"]}
    document["metadata"]["labels"] |= own
    return {**document, "spec": deployment_spec(replace(group, own=own), settings)}
