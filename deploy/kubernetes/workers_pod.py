"""The pod of a worker: the same program and options as a local one, locked down."""

from __future__ import annotations

from collections.abc import Mapping

from deploy.instances import InstanceSpec
from deploy.kubernetes.api import Object
from deploy.kubernetes.hardened import container_rights, pod_rights, storage
from deploy.kubernetes.names import MACHINE, TIER, label_value
from deploy.kubernetes.resources import resources_of, threads_percent
from deploy.kubernetes.scheduled import RenderSettings
from deploy.kubernetes.worker_objects import (
    GRACE_S,
    HEALTH_PORT,
    PORT,
    PORT_NAME,
    worker_arguments,
    worker_probes,
)

_START_S = 300
_HOSTNAME = "kubernetes.io/hostname"


def pod_template(
    spec: InstanceSpec,
    machine: int | None,
    settings: RenderSettings,
    *,
    labels: Mapping[str, str],
    spread: Mapping[str, str],
) -> Object:
    """Give the template of a worker's pods.

    Args:
        spec: What it serves.
        machine: That it is bound to; None: any of the tier.
        settings: What all workers have in common.
        labels: Of the pods.
        spread: Labels of those that should be on unlike nodes.
    """
    mounts, volumes = storage(settings.environment, settings.tls_secret)
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            **pod_rights(shares_files=True),
            "affinity": {"nodeAffinity": _on(spec.tier.name, machine)},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": _HOSTNAME,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": dict(spread)},
                }
            ],
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [_container(spec, settings, mounts)],
            "volumes": volumes,
        },
    }


def _on(tier: str, machine: int | None) -> Object:
    wanted = {TIER: label_value(tier)}
    if machine is not None:
        wanted[MACHINE] = str(machine)
    terms = [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": chosen}


def _container(spec: InstanceSpec, settings: RenderSettings, mounts: list[Object]) -> Object:
    machine = settings.machine_of(spec.tier.name)
    container: Object = {
        "name": "worker",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": worker_arguments(spec, allow_import=settings.allow_import, cgroups=True),
        "ports": [
            {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "resources": resources_of(machine, spec.share, spec.tier.name),
        # Its share is its limit from the start: what takes 6 s alone takes 120 s on 0.05.
        **worker_probes(start_s=_START_S),
        "securityContext": container_rights(),
        "volumeMounts": mounts,
    }
    percent = threads_percent(machine, spec.share)
    if percent is not None:
        container["env"] = [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": str(percent)}]
    return container
