"""The pod of a worker: the same program and options as a local one, locked down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from deploy.emulation import emulated_speed
from deploy.instances import InstanceSpec
from deploy.kubernetes.api import Object
from deploy.kubernetes.names import MACHINE, TIER, label_value
from deploy.kubernetes.resources import resources_of, threads_percent
from deploy.kubernetes.scheduled import RenderSettings
from deploy.kubernetes.worker_objects import (
    HEALTH_PORT,
    PORT,
    PORT_NAME,
    TLS_FOLDER,
)
from deploy.shares import Pace, enforcement_for
from deploy.tls import files_in
from deploy.workers.options import WorkerOptions

_USER = 10001
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
    return {
        "metadata": {"labels": dict(labels)},
        "spec": {
            "affinity": {"nodeAffinity": _on(spec.tier.name, machine)},
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": _HOSTNAME,
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": dict(spread)},
                }
            ],
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 15,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": _USER,
                "runAsGroup": _USER,
                "fsGroup": _USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [_container(spec, settings)],
            "volumes": _volumes(settings),
        },
    }


def _on(tier: str, machine: int | None) -> Object:
    wanted = {TIER: label_value(tier)}
    if machine is not None:
        wanted[MACHINE] = str(machine)
    terms = [{"key": k, "operator": "In", "values": [v]} for k, v in wanted.items()]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": chosen}


def _container(spec: InstanceSpec, settings: RenderSettings) -> Object:
    machine = settings.machine_of(spec.tier.name)
    probe = {"grpc": {"port": HEALTH_PORT}}
    mounts: list[Object] = [
        {"name": "tls", "mountPath": str(TLS_FOLDER), "readOnly": True},
        {"name": "scratch", "mountPath": "/tmp"},
    ]
    if settings.environment is not None:
        mounts.append({"name": "environment", "mountPath": "/opt/environment", "readOnly": True})
    container: Object = {
        "name": "worker",
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": _arguments(spec, settings),
        "ports": [
            {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"},
            {"name": "health", "containerPort": HEALTH_PORT, "protocol": "TCP"},
        ],
        "resources": resources_of(machine, spec.share, spec.tier.name),
        # Its share is its limit from the start: what takes 6 s alone takes 120 s on 0.05.
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": _START_S},
        "readinessProbe": {**probe, "periodSeconds": 2, "timeoutSeconds": 2},
        "livenessProbe": {**probe, "periodSeconds": 20, "timeoutSeconds": 5},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    percent = threads_percent(machine, spec.share)
    if percent is not None:
        container["env"] = [{"name": "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "value": str(percent)}]
    return container


def _volumes(settings: RenderSettings) -> list[Object]:
    volumes: list[Object] = [
        # Not root, so the group of the pod has to be able to read the key.
        {"name": "tls", "secret": {"secretName": settings.tls_secret, "defaultMode": 0o440}},
        {"name": "scratch", "emptyDir": {}},
    ]
    if settings.environment is not None:
        path = {"path": settings.environment, "type": "Directory"}
        volumes.append({"name": "environment", "hostPath": path})
    return volumes


def _arguments(spec: InstanceSpec, settings: RenderSettings) -> list[str]:
    enforcement = enforcement_for(spec.operators, spec.share, cgroups=True)
    options = WorkerOptions(
        pipeline=spec.pipeline_reference,
        allow_import=settings.allow_import,
        operators=tuple(operator.name for operator in spec.operators),
        configuration=spec.configuration.as_dict(),
        tier=spec.tier.name,
        pace=Pace(enforcement=enforcement, share=spec.share, speed=emulated_speed(spec.tier)),
        bind=f"0.0.0.0:{PORT}",
        health=f"0.0.0.0:{HEALTH_PORT}",
        tls=replace(files_in(TLS_FOLDER), server_name=None),
    )
    return options.arguments()
