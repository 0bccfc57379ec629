"""What scales a route's units: an autoscaler of each unit's pods, a pool of its nodes. Pure.

The paper scales each unit by its requests against its breaking point under load (5.3), with KEDA,
and Karpenter makes the nodes (4.6.1). Aimed at is 80 % of the breaking point, its other threshold.

The fewest pods are what the regime wants, in capacity mode also what cost mode would: pods of a
unit that is lost stay wanted and pending, so that their nodes are made as soon as they can be.

While Prometheus does not answer, or has no such series, nothing is scaled down: an empty answer is
an error, and after three of them KEDA starts the most pods, as it cannot tell what the load is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from string import Template

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.routing.rendered import labels_of_route
from circinus.deploy.kubernetes.routing.targets import ClusterRoute, PrometheusSource, UnitTarget
from circinus.scheduler.routing.routers import HEADROOM
from circinus.scheduler.routing.units import DeploymentUnit

BUSY = 1 / HEADROOM
"""Part of what a unit takes at its breaking point that autoscaling aims at (5.3)."""

AUTOSCALING_API, KEDA_API, KARPENTER_API = "autoscaling/v2", "keda.sh/v1alpha1", "karpenter.sh/v1"
_FAILED_POLLS = 3  # of Prometheus, KEDA's 30 s apart: a restart of it changes nothing
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def floors_of(route: ClusterRoute, *wanted: Mapping[str, int]) -> dict[str, int]:
    """Return unit -> the fewest pods: the most of what regimes want, within what can be had.

    Of a unit that is too slow for the route there are none, and nothing scales it.
    """
    found = {}
    for unit in route.route.quick:
        asked = max(route.targets[unit.name].least, *(each.get(unit.name, 0) for each in wanted))
        found[unit.name] = asked if unit.available is None else min(asked, unit.available)
    return found


def scalers_of(route: ClusterRoute, floors: Mapping[str, int]) -> list[Object]:
    """Return the autoscalers, if Prometheus or a metric is named: KEDA's or Kubernetes' own."""
    units = [unit for unit in route.route.quick if unit.available != 0]
    found = (_scaler(route, unit, floors.get(unit.name, 0)) for unit in units)
    return [each for each in found if each is not None]


def node_pools_of(route: ClusterRoute) -> list[Object]:
    """Return the pools of nodes that have a node class; those without one are the user's."""
    return [found for unit in route.route.units if (found := _node_pool(route, unit)) is not None]


def most_pods(route: ClusterRoute, unit: DeploymentUnit, least: int) -> int:
    """Return the most pods: what can be had, or would serve the demand alone, at least one."""
    alone = ceil(route.route.demand_per_s / (BUSY * unit.most_per_s))
    return max(alone if unit.available is None else unit.available, least, 1)


def _scaler(route: ClusterRoute, unit: DeploymentUnit, least: int) -> Object | None:
    target, most = route.targets[unit.name], most_pods(route, unit, least)
    if target.metric is not None:
        return _autoscaler(route, unit, target.metric, max(least, 1), most)
    if route.prometheus is not None:
        return _scaled_object(route, unit, route.prometheus, least, most)
    return None


def _metadata(route: ClusterRoute, unit: DeploymentUnit) -> Object:
    return {
        "name": route.object_name(unit),
        "namespace": route.namespace,
        "labels": labels_of_route(route, unit.name),
    }


def _scaled(target: UnitTarget) -> Object:
    return {"apiVersion": "apps/v1", "kind": "Deployment", "name": target.deployment}


def _autoscaler(
    route: ClusterRoute, unit: DeploymentUnit, metric: str, least: int, most: int
) -> Object:
    aim = {"type": "AverageValue", "averageValue": f"{round(BUSY * unit.most_per_s * 1000)}m"}
    return {
        "apiVersion": AUTOSCALING_API,
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(route, unit),
        "spec": {
            "scaleTargetRef": _scaled(route.targets[unit.name]),
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": metric}, "target": aim}},
            ],
        },
    }


def _scaled_object(
    route: ClusterRoute, unit: DeploymentUnit, source: PrometheusSource, least: int, most: int
) -> Object:
    target = route.targets[unit.name]
    query = Template(source.query).safe_substitute(
        unit=unit.name,
        service=target.service,
        deployment=target.deployment,
        namespace=route.namespace,
    )
    told = {
        "serverAddress": source.address,
        "query": query,
        "threshold": f"{BUSY * unit.most_per_s:.6g}",
        "ignoreNullValues": "false",
    }
    return {
        "apiVersion": KEDA_API,
        "kind": "ScaledObject",
        "metadata": _metadata(route, unit),
        "spec": {
            "scaleTargetRef": _scaled(target),
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "fallback": {"failureThreshold": _FAILED_POLLS, "replicas": most},
            "triggers": [{"type": "prometheus", "metadata": told}],
        },
    }


def _node_pool(route: ClusterRoute, unit: DeploymentUnit) -> Object | None:
    pool = route.targets[unit.name].node_pool
    if pool is None or pool.node_class is None:
        return None
    types = [*(pool.instance_types or (unit.hardware,))]
    reference = pool.node_class
    labels = labels_of_route(route, unit.name)
    return {
        "apiVersion": KARPENTER_API,
        "kind": "NodePool",
        "metadata": {"name": pool.name, "labels": labels},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {
                        "group": reference.group,
                        "kind": reference.kind,
                        "name": reference.name,
                    },
                    "requirements": [
                        {"key": _INSTANCE_TYPE, "operator": "In", "values": types},
                        *pool.requirements,
                    ],
                },
            },
        },
    }
