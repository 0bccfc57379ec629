"""Routes in a cluster for tests, and the objects that a cluster would have of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.routing.targets import (
    ClusterRoute,
    GatewayFront,
    NodeClassReference,
    PrometheusSource,
    UnitNodePool,
    UnitTarget,
)
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute

MADE = "2026-01-01T00:00:00Z"


def unit(name: str, price: float = 1.0, per_s: float = 100.0, **more: Any) -> DeploymentUnit:  # noqa: ANN401
    return DeploymentUnit(
        name=name,
        model="m",
        hardware=f"{name}.xlarge",
        framework="f",
        price_usd_per_hour=price,
        most_per_s=per_s,
        latency_s=more.pop("latency_s", 0.5),
        **more,
    )


def target(name: str, **more: Any) -> UnitTarget:  # noqa: ANN401
    return UnitTarget(service=f"m-{name}", port=8000, deployment=f"m-{name}", **more)


def pool(name: str, **more: Any) -> UnitNodePool:  # noqa: ANN401
    return UnitNodePool(name=name, node_class=NodeClassReference(name="default"), **more)


def cluster_route(
    *units: DeploymentUnit,
    targets: Mapping[str, UnitTarget] | None = None,
    **more: Any,  # noqa: ANN401
) -> ClusterRoute:
    """Two units, `cheap` at half the price of `dear`, a demand that takes two of either."""
    found = units or (unit("cheap", 0.5), unit("dear", 1.0))
    return ClusterRoute(
        route=EndpointRoute(
            name="r", demand_per_s=more.pop("demand_per_s", 150.0), latency_s=0.9, units=found
        ),
        targets={u.name: target(u.name) for u in found} | dict(targets or {}),
        front=more.pop("front", GatewayFront(name="gateway")),
        **more,
    )


PROMETHEUS = PrometheusSource(
    address="http://prometheus:9090",
    query='sum(rate(requests_total{service="$service",namespace="$namespace"}[1m]))',
)


def deployment(name: str, replicas: int = 2, *conditions: Object) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {"replicas": replicas},
        "status": {"conditions": [*conditions]},
    }


def pod(of: str, number: int = 0, *, placed: bool = True, ready: bool | None = None) -> Object:
    """A pod of a Deployment; unless it is placed, the scheduler found no node for it."""
    scheduled = {"type": "PodScheduled", "status": "True"}
    if not placed:
        message = "0/3 nodes are available: 3 Insufficient cpu."
        scheduled |= {"status": "False", "reason": "Unschedulable", "message": message}
    answers = placed if ready is None else ready
    return {
        "metadata": {
            "name": f"{of}-5d5-{number}",
            "uid": f"{of}-{number}",
            "creationTimestamp": MADE,
            "labels": {"pod-template-hash": "5d5"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{of}-5d5"}],
        },
        "spec": {"nodeName": "n"} if placed else {},
        "status": {
            "phase": "Running" if placed else "Pending",
            "conditions": [scheduled, {"type": "Ready", "status": str(answers)}],
        },
    }


def claim(of: str, *conditions: Object, at: str = MADE, name: str = "abcde") -> Object:
    return {
        "metadata": {
            "name": f"{of}-{name}",
            "labels": {"karpenter.sh/nodepool": of},
            "creationTimestamp": at,
        },
        "status": {"conditions": [*conditions]},
    }


def refusal(of: str, at: str = "2026-01-01T00:00:05Z") -> Object:
    return {
        "metadata": {"name": "e"},
        "reason": "InsufficientCapacityError",
        "message": "NodeClaim r event: all requested instance types were unavailable",
        "involvedObject": {"kind": "NodeClaim", "name": f"{of}-abcde"},
        "lastTimestamp": at,
    }
