"""Where a route is in a cluster: whose Services share its requests, and what scales their pods.

The units are Deployments and Services of the user's own, with whatever model server. Nothing of
them is written but the number of their pods, by an autoscaler, where one is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from circinus.pipelines import checks
from circinus.scheduler.routing.controller import RequestSharing, RouteController
from circinus.scheduler.routing.regimes import RegimeSettings
from circinus.scheduler.routing.routers import RegimeRouter
from circinus.scheduler.routing.traffic import RouteMethod
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute

MOST_BACKENDS = 16
"""References to backends in a rule of an HTTPRoute."""
MOST_TARGET_GROUPS = 5
"""Target groups of a forward action of a load balancer: the paper's five units."""

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")
_NAME_RULE = "must be at most 32 of a-z, 0-9, '-', a letter first: objects are named by it"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayFront:
    """A gateway, to which an HTTPRoute belongs."""

    name: str
    namespace: str | None = None  # None: the route's
    most_units = MOST_BACKENDS


@dataclass(frozen=True, slots=True, kw_only=True)
class IngressFront:
    """An Ingress whose load balancer takes weights: the paper's set-up (5.4.1)."""

    class_name: str = "alb"
    most_units = MOST_TARGET_GROUPS


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSource:
    """Where an autoscaler reads the rate of requests."""

    address: str  # URL
    query: str  # gives requests per second; `$unit`, `$service`, `$deployment`, `$namespace`


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeClassReference:
    """How a provider makes nodes of a pool."""

    name: str
    group: str = "karpenter.k8s.aws"
    kind: str = "EC2NodeClass"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitNodePool:
    """The Karpenter NodePool on whose nodes a unit's pods run."""

    name: str
    node_class: NodeClassReference | None = None  # None: the pool is the user's, and only watched
    instance_types: tuple[str, ...] = ()
    requirements: tuple[Mapping[str, object], ...] = ()  # more of them, as a NodePool has them


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitTarget:
    """A deployment unit's objects."""

    service: str
    port: int
    deployment: str
    least: int = 1  # pods that always run, `>= 0`. 1: traffic can be moved to what runs only
    metric: str | None = None  # requests per second of a pod, of the custom metrics API
    node_pool: UnitNodePool | None = None  # None: not Karpenter's


def service_url(namespace: str, service: str, port: int, path: str) -> str:
    """Return where a Service answers a route's requests, for what is in the cluster."""
    return f"http://{service}.{namespace}:{port}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRoute:
    """A route and all that it is in a cluster."""

    route: EndpointRoute
    targets: Mapping[str, UnitTarget]  # of each unit
    front: GatewayFront | IngressFront
    namespace: str = "default"
    hostnames: tuple[str, ...] = ()  # empty: all
    path: str = "/"
    prometheus: PrometheusSource | None = None  # None: nothing is scaled by it
    launch_s: float = 3.0  # that a pod may wait until Karpenter begins with a node
    method: RouteMethod = RouteMethod.CARRIED
    regimes: RegimeSettings = field(default_factory=RegimeSettings)

    def __post_init__(self) -> None:
        names = [unit.name for unit in self.route.units]
        for what, name in [("name", self.route.name), *(("units.name", name) for name in names)]:
            checks.require(_NAME.fullmatch(name) is not None, what, _NAME_RULE, name)
        for name in names:
            rule = "must be given, as the route has kubernetes"
            checks.require(name in self.targets, f"unit {name}.kubernetes", rule, None)
        most = self.front.most_units
        checks.require(len(names) <= most, "units", f"must be at most {most} here", len(names))
        deployments = [target.deployment for target in self.targets.values()]
        checks.unique("kubernetes.deployment of a unit", deployments)
        services = [(target.service, target.port) for target in self.targets.values()]
        checks.unique("kubernetes.service of a unit", services)
        checks.non_negative("kubernetes.launch_s", self.launch_s)

    def controller(self, *, verifies: bool = False) -> RouteController:
        """Return what controls it, at the beginning; see `RouteController.verifies`."""
        router = RegimeRouter(route=self.route, method=self.method, settings=self.regimes)
        return RouteController(router=router, sharing=RequestSharing.BALANCER, verifies=verifies)

    def object_name(self, unit: DeploymentUnit) -> str:
        """Return the name of the objects of a unit."""
        return f"{self.route.name}-{unit.name}"

    @property
    def urls(self) -> dict[str, str]:
        """Return unit -> where its Service answers requests of the route, in the cluster."""
        where = {unit.name: self.targets[unit.name] for unit in self.route.units}
        return {
            name: service_url(self.namespace, at.service, at.port, self.path)
            for name, at in where.items()
        }
