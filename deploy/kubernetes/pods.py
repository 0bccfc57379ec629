"""Pods of workers: the same program and options as a local one, locked down.

Pure: equal specs and settings give equal documents. A scheduled plan has a template for each tier
and machine (`manifests`); the launcher has a Deployment of one pod, and a Service beside it, for
each instance. Each call gives new documents: what is shared would be an alias in YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b
from pathlib import Path

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import FIELD_MANAGER, VERSIONS, Object
from circinus.deploy.kubernetes.resources import MachineShape
from circinus.deploy.runtime.instances import InstanceKey, InstanceSpec
from circinus.deploy.workers.shares import enforcement_for
from circinus.deploy.workers.transport import LARGEST_MESSAGE, files_in
from circinus.pipelines import checks

WORKERS = {names.MANAGED_BY: FIELD_MANAGER, names.COMPONENT: "worker"}
"""Labels that all workers of ours have, and nothing else."""
PORT_NAME = "worker"
PORT, HEALTH_PORT = 50051, 50052

_TLS_FOLDER = Path("/etc/circinus-tls")
_USER = 10001
_GRACE_S = 15
# A pod on its limit from the start: what takes 6 s alone takes 120 s on a share of 0.05.
_START_S, _START_LIMITED_S = 180, 300


class Pinning(StrEnum):
    """How far a worker is bound to what the schedule says."""

    MACHINE = "machine"  # to the node labelled as the scheduled one; if dedicated, to the tier
    TIER = "tier"  # to any node of the tier


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderSettings:
    """What all workers of a cluster have in common."""

    namespace: str = "default"  # where they run
    image: str = "circinus/worker:latest"  # of their container
    pull_policy: str = "IfNotPresent"  # of the image
    pinning: Pinning = Pinning.MACHINE  # the launcher's are bound to tiers, whatever this says
    machine: MachineShape = field(default_factory=MachineShape)  # of every tier
    standby: int = 0  # warm replicas per tier, on any node, beyond what was scheduled, `>= 0`
    tls_secret: str = "circinus-workers-tls"  # with `tls.crt`, `tls.key`, `ca.crt` of workers
    environment: str | None = None  # folder of nodes with the packages; None: the image has them
    allow_import: bool = False  # whether workers may load `module:attribute`
    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer

    def __post_init__(self) -> None:
        checks.require(self.standby >= 0, "standby", "must be >= 0", self.standby)
        checks.require(bool(self.namespace), "namespace", "must not be empty", self.namespace)


def locked_down(
    container: Object,
    *,
    environment: str | None,
    tls_secret: str | None = None,
    more: Mapping[str, object],
) -> Object:
    """Give the pod of one container, which may do as little as runs, with `more` fields.

    Its own files are read-only. `environment` as in `RenderSettings`; without a `tls_secret` it
    has no certificates.
    """
    mounts: list[Object] = [{"name": "scratch", "mountPath": "/tmp"}]
    volumes: list[Object] = [{"name": "scratch", "emptyDir": {}}]
    if tls_secret is not None:
        mounts.insert(0, {"name": "tls", "mountPath": str(_TLS_FOLDER), "readOnly": True})
        # Not root, so the group of the pod has to be able to read the key.
        secret = {"secretName": tls_secret, "defaultMode": 0o440}
        volumes.insert(0, {"name": "tls", "secret": secret})
    if environment is not None:
        mounts.append({"name": "environment", "mountPath": "/opt/environment", "readOnly": True})
        path = {"path": environment, "type": "Directory"}
        volumes.append({"name": "environment", "hostPath": path})
    rights = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            **({} if tls_secret is None else {"fsGroup": _USER}),
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **more,
        "containers": [{**container, "securityContext": rights, "volumeMounts": mounts}],
        "volumes": volumes,
    }


def pod_template(
    spec: InstanceSpec,
    machine: int | None,
    settings: RenderSettings,
    *,
    labels: Mapping[str, str],
    spread: Mapping[str, str],
) -> Object:
    """Give the template of a scheduled plan's pods, bound to a machine; None: to the tier.

    Pods with the labels `spread` should be on unlike nodes.
    """
    tier, shape = spec.tier.name, settings.machine
    wanted = _nodes(spec, names.label_value(tier))
    if machine is not None:
        wanted[names.MACHINE] = str(machine)
    terms = [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(spread)},
    }
    placing = {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}},
        "topologySpreadConstraints": [constraint],
    }
    pod = _pod(spec, settings, placing, shape.resources(spec.share, tier), limited=True)
    percent = shape.threads_percent(spec.share)
    if percent is not None:
        limit = {"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": str(percent)}
        pod["containers"][0]["env"] = [limit]
    return {"metadata": {"labels": dict(labels)}, "spec": pod}


def name_of(key: InstanceKey) -> str:
    """Give the name of an instance's objects: a hash, valid and the same for equal keys."""
    return "cq-" + blake2b(str(key).encode(), digest_size=12).hexdigest()


def worker_objects(spec: InstanceSpec, settings: RenderSettings) -> tuple[Object, ...]:
    """Give the objects of an instance, in the order in which they are to be applied."""
    name = name_of(spec.key)
    labels = {
        **WORKERS,
        names.INSTANCE: name,
        names.QUERY: spec.key.query_id,
        names.PLAN: spec.key.plan_id,
        names.TIER: spec.tier.name,
    }
    metadata = {
        "name": name,
        "namespace": settings.namespace,
        "labels": labels,
        "annotations": {names.INSTANCE: str(spec.key)},
    }
    selector = {names.INSTANCE: name}
    shape = settings.machine
    # No CPU limit: a worker starts free of its share, and keeps to it by itself afterwards.
    resources = {
        "requests": {
            "cpu": f"{shape.milli_cpu(spec.share)}m",
            "memory": f"{shape.mebibytes(spec.share)}Mi",
        },
        "limits": {"memory": shape.memory},
    }
    placing = {"nodeSelector": _nodes(spec, spec.tier.name)}
    pod = _pod(spec, settings, placing, resources, limited=False)
    # One replica by default; how many is left to whoever scales it: applying again sets none back.
    deployment = {
        "selector": {"matchLabels": selector},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    content = {"Service": service_spec(selector), "Deployment": deployment}
    return tuple(
        {"apiVersion": VERSIONS[kind], "kind": kind, "metadata": metadata, "spec": content[kind]}
        for kind in content
    )


def service_spec(selector: Mapping[str, str]) -> Object:
    """Give what a Service of workers is; the dispatcher chooses the pod, nobody in between."""
    ports = [{"name": PORT_NAME, "port": PORT, "targetPort": PORT, "protocol": "TCP"}]
    return {"clusterIP": "None", "selector": dict(selector), "ports": ports}


def _nodes(spec: InstanceSpec, tier: str) -> dict[str, str]:
    """Give the labels of the nodes that it may run on: those of its tier, and of its type."""
    if spec.machine_type is None:
        return {names.TIER: tier}
    return {names.TIER: tier, names.MACHINE_TYPE: names.label_value(spec.machine_type)}


def _pod(
    spec: InstanceSpec,
    settings: RenderSettings,
    placing: Mapping[str, object],
    resources: Object,
    *,
    limited: bool,
) -> Object:
    """Give a worker's pod; with `limited` its limit keeps it to its share, else it does itself."""
    enforcement = enforcement_for(spec.operators, spec.share, cgroups=limited)
    tls = replace(files_in(_TLS_FOLDER), server_name=None)
    options = replace(
        spec.options(enforcement, f"0.0.0.0:{PORT}", tls),
        allow_import=settings.allow_import,
        health=f"0.0.0.0:{HEALTH_PORT}",
        message_bytes=settings.message_bytes,
    )
    ports = {PORT_NAME: PORT, "health": HEALTH_PORT} if limited else {PORT_NAME: PORT}
    start_s = _START_LIMITED_S if limited else _START_S
    probe = {"grpc": {"port": HEALTH_PORT}}
    container = {
        "name": "worker",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": options.arguments(),
        "ports": [{"name": n, "containerPort": p, "protocol": "TCP"} for n, p in ports.items()],
        "resources": resources,
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": start_s},
        "readinessProbe": {**probe, "periodSeconds": 2, "timeoutSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 5},
    }
    return locked_down(
        container,
        environment=settings.environment,
        tls_secret=settings.tls_secret,
        more={**placing, "terminationGracePeriodSeconds": _GRACE_S},
    )
