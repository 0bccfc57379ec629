"""The objects of a route: what sends its requests by weight, and what scales its units. Pure.

Each is a whole object of ours, applied by a field manager of its own: what others write beside our
fields stays. A unit without traffic stays in the list with weight 0, so what changes is numbers
alone. Ingresses are weighted as in the paper (5.4.1), by an action in an annotation of an AWS load
balancer; units are scaled as there, with KEDA (5.3) and Karpenter (4.6.1), to 80 % of the breaking
point.

The fewest pods are what the regime wants, in capacity mode also what cost mode would: pods of a
unit that is lost stay pending, so that their nodes are made as soon as they can be. While
Prometheus does not answer, nothing is scaled down; after three times KEDA starts the most pods.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor
from string import Template

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.diagnosis import iso_time
from circinus.deploy.kubernetes.names import FIELD_MANAGER
from circinus.deploy.kubernetes.routing.targets import (
    ClusterRoute,
    GatewayFront,
    IngressFront,
    PrometheusSource,
    UnitTarget,
)
from circinus.scheduler.routing.controller import RouteObservation, UnitObservation
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.routers import HEADROOM
from circinus.scheduler.routing.units import DeploymentUnit

MANAGER = "circinus-route"
"""Field manager of all that is written for routes."""
ROUTE, UNIT = "circinus.io/route", "circinus.io/unit"
"""Labels: of which route, and of which unit, an object is."""
REGIME, WHY = "circinus.io/regime", "circinus.io/regime-why"
SINCE, WEIGHTS = "circinus.io/regime-since", "circinus.io/traffic-weights"
"""Annotations of the object that sends requests, for people."""

GATEWAY_API, INGRESS_API = "gateway.networking.k8s.io/v1", "networking.k8s.io/v1"
_OF_GATEWAY, _OF_BALANCER = 1000, 999  # what weights sum to; a balancer takes no 1000
_ACTION = "weighted-units"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDirection:
    """Where requests are to go, and why."""

    regime: Regime
    why: str
    since: str  # ISO 8601, UTC
    weights: Mapping[str, float]  # unit -> its part of the requests; others none


def whole_weights(weights: Mapping[str, float], total: int) -> dict[str, int]:
    """Return whole numbers in the proportion of traffic weights, by largest remainder.

    They sum to `total`, each within one of its part; all are 0 if no weight is above 0.
    """
    weight_sum = sum(weights.values())
    if not weight_sum > 0:
        return dict.fromkeys(weights, 0)
    exact = {name: weight / weight_sum * total for name, weight in weights.items()}
    rounded = {name: floor(part) for name, part in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (rounded[name] - exact[name], name))
    for name in by_remainder[: total - sum(rounded.values())]:
        rounded[name] += 1
    return rounded


def labels_of_route(route: ClusterRoute, unit: str | None = None) -> dict[str, str]:
    """Return the labels of an object of a route, or of a unit of it."""
    return {
        names.NAME: MANAGER,
        names.OF_QUERY: route.route.name,
        names.PART_OF: FIELD_MANAGER,
        names.MANAGED_BY: FIELD_MANAGER,
        names.COMPONENT: "route",
        ROUTE: route.route.name,
        **({} if unit is None else {UNIT: unit}),
    }


def front_of(route: ClusterRoute, direction: RouteDirection) -> Object:
    """Return the object that sends a route's requests to its units."""
    weights = {u.name: direction.weights.get(u.name, 0.0) for u in route.route.units}
    if isinstance(route.front, GatewayFront):
        return _http_route(route, route.front, direction, whole_weights(weights, _OF_GATEWAY))
    return _ingress(route, route.front, direction, whole_weights(weights, _OF_BALANCER))


def _metadata(
    route: ClusterRoute, direction: RouteDirection, weights: Mapping[str, int], **more: str
) -> Object:
    summary = " ".join(f"{name}={weight}" for name, weight in weights.items())
    return {
        "name": route.route.name,
        "namespace": route.namespace,
        "labels": labels_of_route(route),
        "annotations": {
            REGIME: direction.regime.value,
            WHY: direction.why,
            SINCE: direction.since,
            WEIGHTS: summary,
            **more,
        },
    }


def _http_route(
    route: ClusterRoute, gateway: GatewayFront, direction: RouteDirection, weights: dict[str, int]
) -> Object:
    parent = {"name": gateway.name}
    if gateway.namespace is not None:
        parent["namespace"] = gateway.namespace
    backends = [
        {
            "name": route.targets[name].service,
            "port": route.targets[name].port,
            "weight": weight,
        }
        for name, weight in weights.items()
    ]
    match = {"path": {"type": "PathPrefix", "value": route.path}}
    return {
        "apiVersion": GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": _metadata(route, direction, weights),
        "spec": {
            "parentRefs": [parent],
            **({"hostnames": [*route.hostnames]} if route.hostnames else {}),
            "rules": [{"matches": [match], "backendRefs": backends}],
        },
    }


def _ingress(
    route: ClusterRoute, ingress: IngressFront, direction: RouteDirection, weights: dict[str, int]
) -> Object:
    groups = [
        {
            "serviceName": route.targets[name].service,
            "servicePort": route.targets[name].port,
            "weight": weight,
        }
        for name, weight in weights.items()
    ]
    action = json.dumps({"type": "forward", "forwardConfig": {"targetGroups": groups}})
    backend = {"service": {"name": _ACTION, "port": {"name": "use-annotation"}}}
    paths = {"paths": [{"path": route.path, "pathType": "Prefix", "backend": backend}]}
    hosts = [{"host": host} for host in route.hostnames] or [{}]
    annotated = {f"alb.ingress.kubernetes.io/actions.{_ACTION}": action}
    return {
        "apiVersion": INGRESS_API,
        "kind": "Ingress",
        "metadata": _metadata(route, direction, weights, **annotated),
        "spec": {
            "ingressClassName": ingress.class_name,
            "rules": [{**host, "http": paths} for host in hosts],
        },
    }


BUSY = 1 / HEADROOM
"""Part of what a unit takes at its breaking point that autoscaling aims at (5.3)."""

AUTOSCALING_API, KEDA_API, KARPENTER_API = "autoscaling/v2", "keda.sh/v1alpha1", "karpenter.sh/v1"
_FAILED_POLLS = 3  # of Prometheus, KEDA's 30 s apart: a restart of it changes nothing
_INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def floors_of(route: ClusterRoute, *wanted: Mapping[str, int]) -> dict[str, int]:
    """Return unit -> the fewest pods: the most of what is wanted, within what can be had.

    Of a unit that is too slow for the route there are none, and nothing scales it.
    """
    floors = {}
    for unit in route.route.quick:
        pods = max(route.targets[unit.name].least, *(each.get(unit.name, 0) for each in wanted))
        floors[unit.name] = pods if unit.available is None else min(pods, unit.available)
    return floors


def scalers_of(route: ClusterRoute, floors: Mapping[str, int]) -> list[Object]:
    """Return the autoscalers, if Prometheus or a metric is named: KEDA's or Kubernetes' own."""
    units = [unit for unit in route.route.quick if unit.available != 0]
    scalers = (_scaler(route, unit, floors.get(unit.name, 0)) for unit in units)
    return [each for each in scalers if each is not None]


def node_pools_of(route: ClusterRoute) -> list[Object]:
    """Return the pools of nodes that have a node class; those without one are the user's."""
    return [pool for unit in route.route.units if (pool := _node_pool(route, unit)) is not None]


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


def _unit_metadata(route: ClusterRoute, unit: DeploymentUnit) -> Object:
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
        "metadata": _unit_metadata(route, unit),
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
    trigger = {
        "serverAddress": source.address,
        "query": query,
        "threshold": f"{BUSY * unit.most_per_s:.6g}",
        "ignoreNullValues": "false",
    }
    return {
        "apiVersion": KEDA_API,
        "kind": "ScaledObject",
        "metadata": _unit_metadata(route, unit),
        "spec": {
            "scaleTargetRef": _scaled(target),
            "minReplicaCount": least,
            "maxReplicaCount": most,
            "fallback": {"failureThreshold": _FAILED_POLLS, "replicas": most},
            "triggers": [{"type": "prometheus", "metadata": trigger}],
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


def objects_of(
    route: ClusterRoute, direction: RouteDirection, counts: Mapping[str, int]
) -> list[Object]:
    """Return all objects of a route, that which sends requests first, for so many pods."""
    scalers = scalers_of(route, floors_of(route, counts))
    return [front_of(route, direction), *node_pools_of(route), *scalers]


def planned(route: ClusterRoute, at_s: float) -> list[Object]:
    """Return the objects of a route while all its capacity is available; calls no cluster.

    `at_s` is in seconds since the epoch.
    """
    units = {
        unit.name: UnitObservation(ready=0, available=unit.available, is_retried=True)
        for unit in route.route.units
    }
    actions = route.controller().step(
        RouteObservation(at_s=at_s, demand_per_s=route.route.demand_per_s, units=units)
    )
    direction = RouteDirection(
        regime=actions.traffic.regime,
        why=actions.traffic.why,
        since=iso_time(at_s),
        weights=actions.weights,
    )
    return objects_of(route, direction, actions.counts)
