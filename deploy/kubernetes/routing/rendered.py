"""What sends a route's requests to its units, by weight: an HTTPRoute, or an Ingress. Pure.

Each is a whole object of ours, named as the route and applied by a field manager of its own: what
others write beside our fields stays. Rules of an HTTPRoute are one field (a list is owned whole),
so other rules for the same host stand in an HTTPRoute of the user's, which a gateway merges.

A unit without traffic stays in the list with weight 0: the object tells of all units, a gateway
keeps their endpoints, and what changes is numbers alone.

The paper weighs target groups of an AWS load balancer by an action in an annotation of an Ingress
(5.4.1). So does the Ingress here: nginx's canaries split between two backends, not five.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import floor

from circinus.deploy.kubernetes import names
from circinus.deploy.kubernetes.api import FIELD_MANAGER, Object
from circinus.deploy.kubernetes.routing.targets import ClusterRoute, GatewayFront, IngressFront
from circinus.scheduler.routing.regimes import Regime

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
    given = sum(weights.values())
    if not given > 0:
        return dict.fromkeys(weights, 0)
    exact = {name: weight / given * total for name, weight in weights.items()}
    found = {name: floor(part) for name, part in exact.items()}
    by_remainder = sorted(exact, key=lambda name: (found[name] - exact[name], name))
    for name in by_remainder[: total - sum(found.values())]:
        found[name] += 1
    return found


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
    told = " ".join(f"{name}={weight}" for name, weight in weights.items())
    return {
        "name": route.route.name,
        "namespace": route.namespace,
        "labels": labels_of_route(route),
        "annotations": {
            REGIME: direction.regime.value,
            WHY: direction.why,
            SINCE: direction.since,
            WEIGHTS: told,
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
