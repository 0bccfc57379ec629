"""Nodes that exist for the API server only: kwok says that they and their pods are ready."""

from __future__ import annotations

from typing import Any

from tests.cluster.api import Api
from tests.cluster.control_plane import SIMULATED

TIER = "circinus.io/tier"
MACHINE, MACHINE_TYPE = "circinus.io/machine", "circinus.io/machine-type"
TAINT = {"key": SIMULATED, "value": "fake", "effect": "NoSchedule"}
"""Of simulated nodes beside real ones: a pod that is to serve must not land there."""


def add_node(
    api: Api,
    tier: str,
    machine: int,
    *,
    name: str | None = None,
    cpu: str = "4",
    memory: str = "16Gi",
    gpus: int = 0,
    tainted: bool = False,
) -> str:
    """Add a simulated machine of a tier; give the name of its node."""
    name = name or f"{tier}-{machine}"
    there: dict[str, str] = {"cpu": cpu, "memory": memory, "pods": "250"}
    if gpus:
        there["nvidia.com/gpu"] = str(gpus)
    node: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {SIMULATED: "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "type": "kwok",
                TIER: tier,
                MACHINE: str(machine),
            },
        },
        "spec": {"taints": [TAINT] if tainted else []},
        "status": {"allocatable": there, "capacity": there},
    }
    api.create("/api/v1/nodes", node)
    return name


def is_ready(api: Api, name: str) -> bool:
    """Whether a node says so."""
    node = api.get(f"/api/v1/nodes/{name}") or {}
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
