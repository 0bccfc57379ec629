"""How the requests of a moment are shared among the units that answer.

Traffic weights are what a regime wants; what answers by now may be less. A caller that sends each
request itself shares them by `parts_now` and sends by `UnitTurns`. One that sets a load balancer
shares them by `steered`, which leaves no unit with more than it can take.

Turns are a smooth weighted round robin, as nginx has it: after any number of requests n, unit i
with part w_i of them had n w_i, give or take less than the number of units. Drawing by weight
would be off by the root of n, and what comes twice in a row to a unit waits there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from circinus.scheduler.routing.traffic import RouteTraffic, carried_weights
from circinus.scheduler.routing.units import EndpointRoute

_ROUNDING = 1e-9  # of the demand


def parts_now(
    weights: Mapping[str, float], can: Mapping[str, float], *, changing: bool
) -> dict[str, float]:
    """Return each unit's part of the requests at this moment; they sum to 1. Empty: none runs.

    `can` is what those that run can do, in requests per second, 0: none of it runs. While units
    start that weights count on (`changing`), and where all weight is on what does not run, parts
    are by what those that run can do. Else they are the weights of what runs, normalised (3.3),
    as a load balancer shares requests among healthy targets; published ones always.
    """
    there = {name: per_s for name, per_s in can.items() if per_s > 0}
    parts = {name: weights[name] for name in there if weights.get(name, 0.0) > 0}
    if changing or not parts:
        parts = there
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def steered(
    route: EndpointRoute, traffic: RouteTraffic, ready: Mapping[str, int]
) -> dict[str, float]:
    """Return traffic weights that sum to 1, those of the regime where all that it wants is ready.

    Where all that is ready is too little, they are by what it can take; where nothing is, those
    of the regime: so the first to start gets traffic. Empty: no unit at all could serve.
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

    Where none of these is ready, they are as before, but of units that the route leaves out. So
    probes do not stop a unit that is back, if no other can answer. Empty: no unit may take any.
    """
    may = {unit.name: ready.get(unit.name, 0) for unit in route.quick if unit.name in agree}
    if any(may.values()):
        return steered(route, traffic, may)
    remaining = {name: part for name, part in before.items() if name not in route.left_out}
    total = sum(remaining.values())
    return {name: part / total for name, part in remaining.items()} if total > 0 else {}


# deviates: turns-not-draws
@dataclass(slots=True)
class UnitTurns:
    """Whose turn it is."""

    _owed: dict[str, float] = field(default_factory=dict)

    def next(self, parts: Mapping[str, float]) -> str:
        """Return the unit that the next request goes to, where parts, not empty, sum to 1."""
        # who is gone, or new, starts even: owing it what it missed would flood it
        self._owed = {name: self._owed.get(name, 0.0) + part for name, part in parts.items()}
        name = max(self._owed, key=lambda each: self._owed[each])
        self._owed[name] -= 1.0
        return name
