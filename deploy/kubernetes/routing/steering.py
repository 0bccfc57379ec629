"""Traffic goes to pods that answer: the weights of a regime, by what is ready of each unit. Pure.

A unit gets its part of the demand as far as its ready pods can take it; the rest goes to whatever
else is ready, by what that has left. So nothing is sent to models that load, and the first pod
that is back does not get what three are to take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from circinus.scheduler.routing.traffic import RouteTraffic, carried_weights
from circinus.scheduler.routing.units import EndpointRoute

_ROUNDING = 1e-9  # of the demand


def steered(
    route: EndpointRoute, traffic: RouteTraffic, ready: Mapping[str, int]
) -> dict[str, float]:
    """Return traffic weights that sum to 1, those of the regime where all that it wants is ready.

    Where all that is ready is too little, they are by what it can take; where nothing is, those
    of the regime: whatever comes up first is to be found. Empty: no unit at all could serve.
    """
    by_ready = carried_weights(route.quick, ready)
    if not by_ready:
        return dict(traffic.weights)
    demand = route.demand_per_s
    most = {unit.name: ready.get(unit.name, 0) * unit.most_per_s for unit in route.quick}
    taken = {name: min(traffic.weights.get(name, 0.0) * demand, can) for name, can in most.items()}
    left, spare = demand - sum(taken.values()), sum(most.values()) - sum(taken.values())
    if left > _ROUNDING * demand:
        part = min(left / spare, 1.0) if spare > 0 else 0.0
        taken = {name: taken[name] + part * (can - taken[name]) for name, can in most.items()}
    total = sum(taken.values())
    if total == 0:
        return by_ready
    return {name: rate / total for name, rate in taken.items() if rate > 0}


def verified_weights(
    route: EndpointRoute,
    traffic: RouteTraffic,
    ready: Mapping[str, int],
    agree: Collection[str],
    before: Mapping[str, float],
) -> dict[str, float]:
    """Return traffic weights where only units whose outputs agree may take any; they sum to 1.

    Where none of these is ready, they are as before, but of units that the route leaves out: what
    is back is not kept from answering by probes, if nobody else can. Empty: no unit may take any.
    """
    may = {unit.name: ready.get(unit.name, 0) for unit in route.quick if unit.name in agree}
    if any(may.values()):
        return steered(route, traffic, may)
    kept = {name: weight for name, weight in before.items() if name not in route.left_out}
    total = sum(kept.values())
    return {name: weight / total for name, weight in kept.items()} if total > 0 else {}
