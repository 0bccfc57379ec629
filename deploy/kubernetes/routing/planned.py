"""All objects of a route together: what sends its requests, what scales its units. Pure."""

from __future__ import annotations

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.events import iso_time
from circinus.deploy.kubernetes.routing.rendered import RouteDirection, front_of
from circinus.deploy.kubernetes.routing.scaling import (
    floors_of,
    node_pools_of,
    scalers_of,
)
from circinus.deploy.kubernetes.routing.targets import ClusterRoute
from circinus.scheduler.routing.routers import with_room
from circinus.scheduler.routing.traffic import RouteTraffic, cheapest_traffic


def objects_of(
    route: ClusterRoute, direction: RouteDirection, *traffics: RouteTraffic
) -> list[Object]:
    """Return all objects of a route, that which sends requests first; pods for all `traffics`."""
    floors = floors_of(route, *(traffic.numbers for traffic in traffics))
    return [front_of(route, direction), *node_pools_of(route), *scalers_of(route, floors)]


def planned(route: ClusterRoute, at_s: float) -> list[Object]:
    """Return the objects of a route whose units all run as far as the route says; asks no cluster.

    `at_s` is in seconds since the epoch.
    """
    available = {unit.name: unit.available for unit in route.route.units}
    wanted, router = with_room(route.route), route.router
    traffic, _ = router.decided(at_s, wanted.demand_per_s, available)
    direction = RouteDirection(
        regime=traffic.regime,
        why=router.state.why,
        since=iso_time(at_s),
        weights=traffic.weights,
    )
    return objects_of(route, direction, traffic, cheapest_traffic(wanted, route.method))
