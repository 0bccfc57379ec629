"""Writes what a route is: by server-side apply, as a field manager of its own.

Nothing of another's is overwritten: a field that another manager has taken over is a Clash,
unless it is to be taken back.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from circinus.deploy.kubernetes.access import Permission
from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.diagnosis import EventReporter
from circinus.deploy.kubernetes.routing.objects import (
    AUTOSCALING_API,
    GATEWAY_API,
    INGRESS_API,
    KARPENTER_API,
    KEDA_API,
    MANAGER,
    REGIME,
)
from circinus.deploy.kubernetes.routing.targets import ClusterRoute
from circinus.pipelines.clock import Clock

REGIME_CHANGED = "RegimeChanged"
"""Reason of the event that reports another regime."""
OF_NO_NAMESPACE = "default"
"""Namespace of the events of objects that have none, such as NodeClaims."""

SEEING_NODES = Permission(
    "", "nodes", ("list", "watch"), "to see at once that a pod's node is gone", of_cluster=True
)
"""Of a follower, which goes on without it."""

_PLURALS = {
    "HTTPRoute": (GATEWAY_API, "httproutes"),
    "Ingress": (INGRESS_API, "ingresses"),
    "HorizontalPodAutoscaler": (AUTOSCALING_API, "horizontalpodautoscalers"),
    "ScaledObject": (KEDA_API, "scaledobjects"),
    "NodePool": (KARPENTER_API, "nodepools"),
}
_WATCH, _WRITE = ("list", "watch"), ("get", "create", "patch")


def path_of_routed(document: Object) -> str:
    """Return the path of an object of a route."""
    version, plural = _PLURALS[document["kind"]]
    namespace = document["metadata"].get("namespace")
    where = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{version}{where}/{plural}/{document['metadata']['name']}"


def route_permissions(
    route: ClusterRoute, kinds: Iterable[str]
) -> dict[str, tuple[Permission, ...]]:
    """Return namespace -> what an account needs there to write objects of kinds, and to follow."""
    needed = [
        Permission(
            _PLURALS[kind][0].partition("/")[0],
            _PLURALS[kind][1],
            _WRITE,
            "to send a route's requests, and to scale what serves them",
            of_cluster=kind == "NodePool",
        )
        for kind in sorted(set(kinds))
    ]
    needed += [
        Permission("apps", "deployments", _WATCH, "to see the units"),
        Permission("", "pods", _WATCH, "to see which pods find no node"),
        Permission("", "events", ("create",), "to tell of another regime"),
    ]
    if all(target.node_pool is None for target in route.targets.values()):
        return {route.namespace: tuple(needed)}
    why = "to see for what no machine is had"
    claims = Permission("karpenter.sh", "nodeclaims", _WATCH, why, of_cluster=True)
    refusals = Permission("", "events", _WATCH, why)
    permissions = {route.namespace: (*needed, claims)}
    return permissions | {OF_NO_NAMESPACE: (*permissions.get(OF_NO_NAMESPACE, ()), refusals)}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteWriter:
    """Writes objects and events of a route. Calls block, and raise as `Cluster` does."""

    cluster: Cluster
    clock: Clock
    force: bool = False  # take fields back that others have taken over
    reporter: EventReporter = field(
        default_factory=lambda: EventReporter(
            component=MANAGER, instance=f"{socket.gethostname()}-{os.getpid()}"
        )
    )

    def apply(self, document: Object) -> Object:
        """Apply an object; return it as it was stored. Clash if another manager owns a field."""
        path = path_of_routed(document)
        return self.cluster.apply(path, document, force=self.force, manager=MANAGER)

    def regime_of(self, document: Object) -> str | None:
        """Return the regime annotated on an object in the cluster; None: there is none."""
        live = self.cluster.get(path_of_routed(document))
        return None if live is None else (live["metadata"].get("annotations") or {}).get(REGIME)

    def tell(self, stored: Object, message: str, *, warning: bool) -> None:
        """Publish an event: the regime of a stored object is another."""
        at_s = self.clock.timestamp()
        event = self.reporter.event(stored, REGIME_CHANGED, message, warning=warning, at_s=at_s)
        self.cluster.create(f"/api/v1/namespaces/{event['metadata']['namespace']}/events", event)


def listed_by_name(cluster: Cluster, path: str, **query: str) -> dict[str, Object]:
    """Return a collection by name, once."""
    items = cluster.listed_whole(path, **query)["items"]
    return {item["metadata"]["name"]: item for item in items}
