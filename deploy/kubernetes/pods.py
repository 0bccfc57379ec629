"""Workers as objects: the same program and options as a local one, locked down.

Pure: equal specs and settings give equal documents. This is the one renderer: a scheduled plan
(`manifests`) has a Deployment for each tier and machine, the launcher one of a single pod for each
instance, and what stands around the pods is the same in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import VERSIONS, Object
from circinus.deploy.kubernetes.names import FIELD_MANAGER, WORKER_IMAGE, version_of
from circinus.deploy.kubernetes.pod_template import TLS_FOLDER, PodTemplate, locked_down
from circinus.deploy.kubernetes.resources import MachineShape, device_resources, enforcement_of
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.deploy.workers.transport import LARGEST_MESSAGE, files_in
from circinus.pipelines import checks

WORKERS = {names.MANAGED_BY: FIELD_MANAGER, names.COMPONENT: "worker"}
"""Labels that all workers of ours have, and nothing else."""
PORT_NAME = "worker"
PORT, HEALTH_PORT = 50051, 50052

# Takes no more requests for 3 s before it must end, as callers learn of that a moment later;
# then the calls in hand may finish, which takes 10 s at most.
_LEAVE_S, _GRACE_S = 3, 15
# A pod on its limit from the start: what takes 6 s alone takes 120 s on a share of 0.05.
_START_S, _START_LIMITED_S = 180, 300
_PROGRESS_S = 600
# Of what was measured while profiling, for inputs that are larger; and what serving takes beside
# the operators: the server's libraries, and messages.
_HEADROOM, _SERVING_MIB = 1.25, 64


class Pinning(StrEnum):
    """How far a worker is bound to the schedule."""

    MACHINE = "machine"  # to the node labelled as the scheduled one; if dedicated, to the tier
    TIER = "tier"  # to any node of the tier


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """What all workers of a cluster have in common."""

    namespace: str = "default"  # where they run
    image: str = WORKER_IMAGE  # of their container, with a tag or digest
    pull_policy: str = "IfNotPresent"  # of the image
    pinning: Pinning = Pinning.MACHINE  # the launcher's are bound to tiers, whatever this is
    machine: MachineShape = field(default_factory=MachineShape)  # of tiers that state none
    standby: int = 0  # warm replicas per tier, on any node, beyond what was scheduled, `>= 0`
    tls_secret: str = "circinus-workers-tls"  # with `tls.crt`, `tls.key`, `ca.crt` of workers
    environment: str | None = None  # folder of nodes with the packages; None: the image has them
    allow_import: bool = False  # whether workers may load `module:attribute`
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer
    template: PodTemplate = field(default_factory=PodTemplate)  # the user's, of every pod

    def __post_init__(self) -> None:
        checks.require(self.standby >= 0, "standby", "must be >= 0", self.standby)
        checks.require(bool(self.namespace), "namespace", "must not be empty", self.namespace)
        version_of(self.image)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup:
    """Workers that are alike: the pods of a Deployment."""

    spec: InstanceSpec  # of each of them
    own: Mapping[str, str]  # labels of these pods alone
    machine: int | None = None  # that they are bound to; None: to the tier
    # None: left to what scales it, so that applying again sets nothing back; one to begin with
    replicas: int | None = 1
    # Whether a CPU limit keeps each to its share; else it does so itself, and starts free of it
    limited: bool = True


def tier_selector(query_id: str, plan_id: str, tier: str) -> dict[str, str]:
    """Return the labels of all workers of a plan on a tier, and of nothing else."""
    own = names.labels_of(query_id, plan_id)
    return {**own, **WORKERS, names.TIER: names.label_value(tier)}


def labels_of_workers(spec: InstanceSpec, settings: RenderSettings) -> dict[str, str]:
    """Return the labels of what stands for workers like this one on its tier."""
    key = spec.key
    recommended = names.recommended(key.query_id, version_of(settings.image))
    return {**recommended, **tier_selector(key.query_id, key.plan_id, spec.tier.name)}


def deployment_spec(group: WorkerGroup, settings: RenderSettings) -> Object:
    """Return what a Deployment of workers is, with what the user's template adds to its pods."""
    labels = {**labels_of_workers(group.spec, settings), **group.own}
    template = {"metadata": {"labels": labels}, "spec": _pod(group, settings)}
    return {
        **({} if group.replicas is None else {"replicas": group.replicas}),
        "progressDeadlineSeconds": _PROGRESS_S,
        "selector": {"matchLabels": dict(group.own)},
        "template": settings.template.merged_into(template),
    }


def service_spec(selector: Mapping[str, str]) -> Object:
    """Return the spec of a Service of workers; the dispatcher alone chooses the pod."""
    ports = [{"name": PORT_NAME, "port": PORT, "targetPort": PORT, "protocol": "TCP"}]
    return {"clusterIP": "None", "selector": dict(selector), "ports": ports}


def budget_spec(selector: Mapping[str, str]) -> Object:
    """Return what a disruption budget is: of the workers of a tier one goes at a time.

    A least number available would forbid draining the node of an only one.
    """
    return {"maxUnavailable": 1, "selector": {"matchLabels": dict(selector)}}


def name_of(key: InstanceKey) -> str:
    """Return the name of an instance's objects: valid, and the same for equal keys alone."""
    others = (key.plan_id, str(key.replica), key.machine_type or "")
    further = () if key.slice is None else (key.slice,)
    return names.object_name(key.query_id, key.tier, *others, *further)


def worker_objects(spec: InstanceSpec, settings: RenderSettings) -> tuple[Object, ...]:
    """Return the objects of an instance, in the order in which they are to be applied."""
    name = name_of(spec.key)
    own = {names.INSTANCE: name}
    metadata = {
        "name": name,
        "namespace": settings.namespace,
        "labels": {**labels_of_workers(spec, settings), **own},
        "annotations": {names.INSTANCE: str(spec.key)},
    }
    group = WorkerGroup(spec=spec, own=own, replicas=None, limited=False)
    content = {"Service": service_spec(own), "Deployment": deployment_spec(group, settings)}
    return tuple(
        {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": content[kind]}
        for kind in content
    )


def tier_budget(spec: InstanceSpec, settings: RenderSettings) -> Object:
    """Return the disruption budget of the instances of its plan and tier."""
    key = spec.key
    metadata = {
        "name": names.object_name(key.query_id, key.tier, key.plan_id, "budget"),
        "namespace": settings.namespace,
        "labels": labels_of_workers(spec, settings),
    }
    chosen = budget_spec(tier_selector(key.query_id, key.plan_id, spec.tier.name))
    kind = "PodDisruptionBudget"
    return {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": chosen}


def _nodes(group: WorkerGroup) -> dict[str, str]:
    """Return the labels of the nodes that they may run on: of tier, type and machine."""
    spec = group.spec
    kind, machine = spec.machine_type, group.machine
    return {
        names.TIER: names.label_value(spec.tier.name),
        **({} if kind is None else {names.MACHINE_TYPE: names.label_value(kind)}),
        **({} if machine is None else {names.MACHINE: str(machine)}),
    }


def _pod(group: WorkerGroup, settings: RenderSettings) -> Object:
    key = group.spec.key
    together = tier_selector(key.query_id, key.plan_id, group.spec.tier.name)
    spread = {  # workers of a tier are on unlike nodes where they can be
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": together},
    }
    placing = {
        "nodeSelector": _nodes(group),
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": _GRACE_S,
    }
    return locked_down(
        _container(group, settings),
        environment=settings.environment,
        tls_secret=settings.tls_secret,
        more=placing,
    )


def _container(group: WorkerGroup, settings: RenderSettings) -> Object:
    spec = group.spec
    enforcement = enforcement_of(spec, cgroups=group.limited)
    tls = replace(files_in(TLS_FOLDER), server_name=None)
    options = replace(
        spec.options(enforcement, f"0.0.0.0:{PORT}", tls),
        allow_import=settings.allow_import,
        health=f"0.0.0.0:{HEALTH_PORT}",
        message_bytes=settings.message_bytes,
    )
    ports = {PORT_NAME: PORT, "health": HEALTH_PORT}
    start_s = _START_LIMITED_S if group.limited else _START_S
    probe = {"grpc": {"port": HEALTH_PORT}}
    return {
        "name": "worker",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": options.arguments(),
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in ports.items()],
        **_granted(group, settings),
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": start_s},
        "readinessProbe": {**probe, "periodSeconds": 2, "timeoutSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 5},
        "lifecycle": {"preStop": {"sleep": {"seconds": _LEAVE_S}}},
    }


def _granted(group: WorkerGroup, settings: RenderSettings) -> Object:
    """Return the fields of a container for what it may use; errors as `device_resources`."""
    spec = group.spec
    shape = settings.machine.of(spec.tier)
    resources = shape.resources(spec.share)
    if not group.limited:
        del resources["limits"]["cpu"]
    if spec.memory_bytes is not None:
        requested = ceil(spec.memory_bytes * _HEADROOM / 2**20) + _SERVING_MIB
        most = max(requested, min(2 * requested, shape.mebibytes(1.0)))
        resources["requests"]["memory"] = f"{requested}Mi"
        resources["limits"]["memory"] = f"{most}Mi"
    devices = device_resources(spec.tier, spec.share)
    both = {of: {**amounts, **devices.requests} for of, amounts in resources.items()}
    env = [{"name": name, "value": value} for name, value in devices.env.items()]
    return {"resources": both, **({"env": env} if env else {})}
