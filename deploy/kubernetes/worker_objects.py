"""What an instance of a plan is in a cluster: a Deployment of one pod, and a Service beside it.

Pure: a spec in, documents out; equal specs give equal documents. Names are hashes, so that any
query, plan and tier gives a valid and unique one; labels and annotations say what they stand for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b

from deploy.emulation import emulated_speed
from deploy.instances import InstanceKey, InstanceSpec
from deploy.kubernetes.api import FIELD_MANAGER, Object
from deploy.kubernetes.hardened import TLS_FOLDER, container_rights, pod_rights, storage
from deploy.kubernetes.nodes import TIER_LABEL
from deploy.kubernetes.quantities import quantity
from deploy.shares import Pace, enforcement_for
from deploy.tls import files_in
from deploy.workers.options import WorkerOptions

MANAGED_BY = {"app.kubernetes.io/managed-by": FIELD_MANAGER}
COMPONENT = {"app.kubernetes.io/component": "worker"}
SELECTOR = ",".join(f"{name}={value}" for name, value in (MANAGED_BY | COMPONENT).items())
"""What all workers of ours have, and nothing else."""
QUERY_LABEL, PLAN_LABEL = "circinus.io/query", "circinus.io/plan"
INSTANCE_ANNOTATION = "circinus.io/instance"
PORT_NAME = "worker"
PORT, HEALTH_PORT = 50051, 50052
GRACE_S = 15
_START_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerShape:
    """What all workers of a cluster have in common.

    Attributes:
        namespace: Where they run.
        image: Of the container.
        pull_policy: Of the image.
        environment: Folder of every node with the Python packages; None: the image has them.
        tls_secret: Secret with `tls.crt`, `tls.key` and `ca.crt`, for workers and callers.
        machine_cpu: CPU that stands for one machine; a share of it is requested.
        machine_memory: Likewise.
        allow_import: Whether workers may load `module:attribute`.
    """

    namespace: str
    image: str
    pull_policy: str = "IfNotPresent"
    environment: str | None = None
    tls_secret: str
    machine_cpu: str = "1"
    machine_memory: str = "2Gi"
    allow_import: bool = False


def name_of(key: InstanceKey) -> str:
    """Give the name of an instance's objects: equal keys have equal names."""
    return "cq-" + blake2b(str(key).encode(), digest_size=12).hexdigest()


def worker_objects(spec: InstanceSpec, shape: WorkerShape) -> tuple[Object, ...]:
    """Give the objects of an instance, in the order in which they are to be applied."""
    metadata = {
        "name": name_of(spec.key),
        "namespace": shape.namespace,
        "labels": _labels(spec),
        "annotations": {INSTANCE_ANNOTATION: str(spec.key)},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",  # the dispatcher chooses the pod, nobody in between
            "selector": _selector(spec),
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP"}],
        },
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _selector(spec)},
            "template": {
                "metadata": {"labels": _labels(spec)},
                "spec": _pod(spec, shape),
            },
        },
    }
    return service, deployment


def _selector(spec: InstanceSpec) -> dict[str, str]:
    return {"circinus.io/instance": name_of(spec.key)}


def _labels(spec: InstanceSpec) -> dict[str, str]:
    own = {
        QUERY_LABEL: spec.key.query_id,
        PLAN_LABEL: spec.key.plan_id,
        TIER_LABEL: spec.tier.name,
    }
    return {**MANAGED_BY, **COMPONENT, **_selector(spec), **own}


def _pod(spec: InstanceSpec, shape: WorkerShape) -> Object:
    mounts, volumes = storage(shape.environment, shape.tls_secret)
    return {
        **pod_rights(shares_files=True),
        "nodeSelector": {TIER_LABEL: spec.tier.name},
        "terminationGracePeriodSeconds": GRACE_S,
        "containers": [_container(spec, shape, mounts)],
        "volumes": volumes,
    }


def _container(spec: InstanceSpec, shape: WorkerShape, mounts: list[Object]) -> Object:
    return {
        "name": "worker",
        "image": shape.image,
        "imagePullPolicy": shape.pull_policy,
        "args": worker_arguments(spec, allow_import=shape.allow_import, cgroups=False),
        "ports": [{"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}],
        # No CPU limit: a worker starts free of its share, and keeps to it by itself afterwards.
        "resources": {
            "requests": {
                "cpu": _milli(quantity(shape.machine_cpu), spec.share),
                "memory": _mebi(quantity(shape.machine_memory), spec.share),
            },
            "limits": {"memory": shape.machine_memory},
        },
        **worker_probes(start_s=_START_S),
        "securityContext": container_rights(),
        "volumeMounts": mounts,
    }


def worker_probes(start_s: int) -> Object:
    """Give the probes of a worker, which has so many seconds to start."""
    probe = {"grpc": {"port": HEALTH_PORT}}
    return {
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": start_s},
        "readinessProbe": {**probe, "periodSeconds": 2, "timeoutSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 5},
    }


def worker_arguments(spec: InstanceSpec, *, allow_import: bool, cgroups: bool) -> list[str]:
    """Give the command line of a worker in a pod.

    Args:
        spec: What it serves.
        allow_import: Whether it may load `module:attribute`.
        cgroups: Whether the pod's limit keeps it to its share; else it does so by itself.
    """
    enforcement = enforcement_for(spec.operators, spec.share, cgroups=cgroups)
    options = WorkerOptions(
        pipeline=spec.pipeline_reference,
        allow_import=allow_import,
        operators=tuple(operator.name for operator in spec.operators),
        configuration=spec.configuration.as_dict(),
        tier=spec.tier.name,
        pace=Pace(enforcement=enforcement, share=spec.share, speed=emulated_speed(spec.tier)),
        bind=f"0.0.0.0:{PORT}",
        health=f"0.0.0.0:{HEALTH_PORT}",
        tls=replace(files_in(TLS_FOLDER), server_name=None),
    )
    return options.arguments()


def _milli(machine: Decimal, share: float) -> str:
    """Give a share of a machine's CPU, rounded down: together they must fit on it."""
    return f"{int(machine * 1000 * Decimal(str(share)))}m"


def _mebi(machine: Decimal, share: float) -> str:
    return f"{int(machine / 2**20 * Decimal(str(share)))}Mi"
