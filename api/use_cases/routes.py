"""Traffic weights of a route over deployment units, in both regimes."""

from __future__ import annotations

from circinus.api.schemas.routes import RegimeTrafficView, RouteWeightsView, UnitTrafficView
from circinus.pipelines import units as words
from circinus.scheduler.routing.regimes import (
    CapacitySeen,
    Regime,
    RegimeSettings,
    RegimeState,
    stepped,
)
from circinus.scheduler.routing.traffic import (
    RouteTraffic,
    cheapest_traffic,
    spread_traffic,
)
from circinus.scheduler.routing.traffic_weights import RouteMethod, mean_latency_s, supply_per_s
from circinus.scheduler.routing.unit_counts import all_counts, least_usd_per_hour
from circinus.scheduler.routing.units import EndpointRoute

_HOUR_S, _THOUSAND = 3600.0, 1000.0


def weighed(route: EndpointRoute, method: RouteMethod = RouteMethod.CARRIED) -> RouteWeightsView:
    """Return numbers and weights in both regimes, and which of them the route is in."""
    there = all_counts(route)
    cheapest, spread = cheapest_traffic(route, method), spread_traffic(route, method, there)
    seen = CapacitySeen(at_s=0.0, wanted=cheapest.numbers, available=there)
    state = stepped(RegimeState(), seen, RegimeSettings())
    why = state.why if state.regime is Regime.CAPACITY else "all that is wanted can be had"
    least = least_usd_per_hour(route)
    return RouteWeightsView(
        name=route.name,
        demand_per_s=route.demand_per_s,
        regime=state.regime,
        why=why if route.quick else "no unit is within the latency",
        feasible=least is not None,
        least_usd_per_hour=least,
        method=method,
        regimes=[_told(route, cheapest), _told(route, spread)],
        left_out=[
            f"{unit.name} takes {words.seconds(unit.latency_s)}, "
            f"allowed are {words.seconds(route.latency_s)}"
            for unit in route.units
            if unit not in route.quick
        ],
    )


def _told(route: EndpointRoute, traffic: RouteTraffic) -> RegimeTrafficView:
    numbers, weights, units = traffic.numbers, traffic.weights, []
    for unit in route.units:
        count, weight = numbers.get(unit.name, 0), weights.get(unit.name, 0.0)
        per_s, can = weight * route.demand_per_s, count * unit.most_per_s
        busy = per_s / can if can else None
        units.append(
            UnitTrafficView(name=unit.name, units=count, weight=weight, per_s=per_s, busy=busy)
        )
    usd_per_hour = sum(numbers.get(u.name, 0) * u.price_usd_per_hour for u in route.units)
    served = sum(min(u.per_s, u.per_s / u.busy) for u in units if u.busy)
    return RegimeTrafficView(
        regime=traffic.regime,
        units=units,
        supply_per_s=supply_per_s(route.units, numbers),
        served_per_s=served,
        usd_per_hour=usd_per_hour,
        usd_per_1000=usd_per_hour / served / _HOUR_S * _THOUSAND if served else None,
        latency_s=mean_latency_s(route.units, weights) if weights else None,
    )
