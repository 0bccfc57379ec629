"""How many of each unit a regime wants, and their traffic weights: published and ours by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.traffic_weights import (
    RouteMethod,
    adjusted_per_s,
    capacity_weights,
    carried_weights,
    cost_weights,
    counts_for,
)
from circinus.scheduler.routing.unit_counts import cheapest_counts
from circinus.scheduler.routing.units import EndpointRoute


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTraffic:
    """What a regime makes of a route."""

    regime: Regime
    numbers: Mapping[str, int]  # unit -> how many are wanted; others none
    weights: Mapping[
        str, float
    ]  # unit -> its part of the requests; others none. Empty: no traffic
    why: str = ""  # the regime is this one; empty: it never changes


def cheapest_traffic(route: EndpointRoute, method: RouteMethod) -> RouteTraffic:
    """Return cost mode: what it would be were there units without end."""
    endless = replace(route, units=tuple(replace(u, available=None) for u in route.units))
    if method is RouteMethod.PUBLISHED:
        weights = cost_weights(endless.quick)
        numbers = counts_for(endless, weights, {u.name: u.most_per_s for u in endless.units})
    else:
        numbers = cheapest_counts(endless) or {}  # none: no unit is quick enough
        weights = carried_weights(endless.quick, numbers)
    return RouteTraffic(regime=Regime.COST, numbers=numbers, weights=weights)


def spread_traffic(
    route: EndpointRoute, method: RouteMethod, there: Mapping[str, int]
) -> RouteTraffic:
    """Return capacity mode with so many of each unit (`unit_counts.all_counts`)."""
    per_s = {unit.name: unit.most_per_s for unit in route.units}
    if method is RouteMethod.PUBLISHED:
        weights, per_s = capacity_weights(route.quick, there), adjusted_per_s(route.units)
    else:
        weights = carried_weights(route.quick, there)
    wanted = counts_for(route, weights, per_s)
    numbers = {name: min(count, there.get(name, 0)) for name, count in wanted.items()}
    if method is RouteMethod.CARRIED:
        weights = carried_weights(route.quick, numbers)
    return RouteTraffic(regime=Regime.CAPACITY, numbers=numbers, weights=weights)
