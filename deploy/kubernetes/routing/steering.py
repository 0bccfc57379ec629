"""Traffic goes to units that answer: the weights of a regime, without units that do not yet. Pure.

As in `scheduler.routing.simulated`: each request goes to a kind of unit by its weight, among the
kinds that run; while none of those runs, by what the others can do.
"""

from __future__ import annotations

from collections.abc import Mapping

from circinus.scheduler.routing.traffic import RouteTraffic
from circinus.scheduler.routing.traffic_weights import carried_weights
from circinus.scheduler.routing.units import EndpointRoute


def steered(
    route: EndpointRoute, traffic: RouteTraffic, ready: Mapping[str, int]
) -> dict[str, float]:
    """Give traffic weights that sum to 1 and are above 0 for units with ready pods alone.

    Where no unit has any, those of the regime: whatever comes up first is to be found.
    Empty: there is no unit at all that could serve.
    """
    kept = {name: weight for name, weight in traffic.weights.items() if ready.get(name, 0) > 0}
    total = sum(kept.values())
    if total > 0:
        return {name: weight / total for name, weight in kept.items()}
    return carried_weights(route.quick, ready) or dict(traffic.weights)
