"""A route file as it is in a cluster."""

from __future__ import annotations

from circinus.api.schemas.route_cluster import NodePoolInput, RouteKubernetesInput
from circinus.api.schemas.routes import DeploymentUnitInput, RouteInput
from circinus.deploy.kubernetes.routing.targets import (
    ClusterRoute,
    GatewayFront,
    IngressFront,
    NodeClassReference,
    PrometheusSource,
    UnitNodePool,
    UnitTarget,
)
from circinus.pipelines.errors import InvalidInput


def cluster_route(given: RouteInput) -> ClusterRoute:
    """Return a route with all that it is in a cluster; InvalidInput if it is nowhere."""
    place = given.kubernetes
    if place is None:
        raise InvalidInput.of("kubernetes", "must be given, to be in a cluster", None)
    told = place.prometheus
    return ClusterRoute(
        route=given.route,
        targets={unit.name: target for unit in given.units if (target := _target(given, unit))},
        front=_front(place),
        namespace=place.namespace,
        hostnames=tuple(place.hostnames),
        path=place.path,
        prometheus=None if told is None else PrometheusSource(**told.model_dump()),
        launch_s=place.launch_s,
        method=given.method,
        regimes=given.regimes.settings,
    )


def _front(place: RouteKubernetesInput) -> GatewayFront | IngressFront:
    if place.gateway is not None:
        return GatewayFront(**place.gateway.model_dump())
    return IngressFront() if place.ingress is None else IngressFront(**place.ingress.model_dump())


def _target(given: RouteInput, unit: DeploymentUnitInput) -> UnitTarget | None:
    at = unit.kubernetes
    if at is None:
        return None
    pool = at.node_pool
    return UnitTarget(
        service=at.service,
        port=at.port,
        deployment=at.deployment,
        least=at.least,
        metric=at.metric,
        node_pool=None if pool is None else _pool(f"{given.name}-{unit.name}", pool),
    )


def _pool(name: str, pool: NodePoolInput) -> UnitNodePool:
    by = pool.node_class
    return UnitNodePool(
        name=pool.name or name,
        node_class=None if by is None else NodeClassReference(**by.model_dump()),
        instance_types=tuple(pool.instance_types),
        requirements=tuple(each.model_dump() for each in pool.requirements),
    )
