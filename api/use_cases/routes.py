"""Traffic weights of a route over deployment units, in both regimes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from math import ceil

from circinus.api.event_log import event
from circinus.api.schemas.base import STORED
from circinus.api.schemas.routes import (
    RegimeTrafficView,
    RouteInput,
    RouteList,
    RouteStatusView,
    RouteView,
    RouteWeightsView,
    UnitTrafficView,
)
from circinus.api.use_cases.deployer import Deployer, DesiredRoute
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.routes.probing import Prober, ProbeSettings
from circinus.deploy.routes.routed import RouteStatus
from circinus.deploy.routes.workloads import UnitWorkload
from circinus.deploy.runtime.instances import instances_of
from circinus.pipelines import checks
from circinus.pipelines import units as words
from circinus.scheduler.routing.regimes import (
    CapacityObservation,
    Regime,
    RegimeSettings,
    RegimeState,
    stepped,
)
from circinus.scheduler.routing.routers import with_room
from circinus.scheduler.routing.traffic import (
    RouteMethod,
    RouteTraffic,
    all_counts,
    cheapest_traffic,
    least_usd_per_hour,
    mean_latency_s,
    spread_traffic,
    supply_per_s,
)
from circinus.scheduler.routing.units import EndpointRoute, usd_per_1000


def weighed(route: EndpointRoute, method: RouteMethod = RouteMethod.CARRIED) -> RouteWeightsView:
    """Return numbers and weights in both regimes, and which of them the route is in."""
    there = all_counts(route)
    cheapest, spread = cheapest_traffic(route, method), spread_traffic(route, method, there)
    observation = CapacityObservation(at_s=0.0, wanted=cheapest.numbers, available=there)
    state = stepped(RegimeState(), observation, RegimeSettings())
    why = state.why if state.regime is Regime.CAPACITY else "all that is wanted can be had"
    least = least_usd_per_hour(route)
    return RouteWeightsView.of(
        route,
        regime=state.regime,
        why=why if route.quick else "no unit is within the latency",
        feasible=least is not None,
        least_usd_per_hour=least,
        method=method,
        regimes=[_regime_traffic(route, cheapest), _regime_traffic(route, spread)],
        left_out=[
            f"{unit.name} takes {words.seconds(unit.latency_s)}, "
            f"allowed are {words.seconds(route.latency_s)}"
            for unit in route.units
            if unit not in route.quick
        ],
    )


def _regime_traffic(route: EndpointRoute, traffic: RouteTraffic) -> RegimeTrafficView:
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
        usd_per_1000=usd_per_1000(usd_per_hour, served) if served else None,
        latency_s=mean_latency_s(route.units, weights) if weights else None,
    )


_MOST_ROUTES, _MOST_WORKERS = 20, 64
_LOG = logging.getLogger(__name__)


def workloads_of(body: RouteInput, reference: str) -> tuple[UnitWorkload, ...]:
    """Return what each unit of a route runs, where the pipeline has that reference."""
    return tuple(
        UnitWorkload(
            unit=each.unit,
            pipeline_reference=reference,
            knobs={
                operator: {**body.knobs.get(operator, {}), **each.knobs.get(operator, {})}
                for operator in {**body.knobs, **each.knobs}
            },
            share=each.share,
            speed=each.speed,
        )
        for each in body.units
    )


def put_route(parts: ServiceParts, name: str, body: RouteInput) -> None:
    """Store a route to be served, in place of the one of its name.

    Its workers follow within a moment. InvalidInput if it cannot be served here.
    """
    checks.require(body.name == name, "name", f"must be {name}, as in the path", body.name)
    _require_servable(parts, body)
    new = parts.store.routes.put(name, body.model_dump(mode="json"), most=_MOST_ROUTES)
    event(_LOG, "route.put", route=name, new=new)


def remove_route(parts: ServiceParts, name: str) -> None:
    """Remove a route; NotFound if there is none of that name."""
    parts.store.routes.remove(name)
    event(_LOG, "route.removed", route=name)


def desired_routes(parts: ServiceParts) -> dict[str, DesiredRoute]:
    """Return all routes that should be served; of a pipeline that is gone there are none."""
    routes = {}
    for name, document in parts.store.routes.all().items():
        terms = RouteInput.model_validate(document, context=STORED)
        if terms.pipeline in parts.catalogue.names:
            reference = parts.catalogue.reference(terms.pipeline)
            routes[name] = DesiredRoute(pipeline_reference=reference, terms=terms)
    return routes


async def route_view(parts: ServiceParts, deployer: Deployer, name: str) -> RouteView:
    """Return a route and how it fares; NotFound if there is none of that name."""
    document = await asyncio.to_thread(parts.store.routes.get, name)
    return _route_view(parts, name, document, (await deployer.routes()).get(name))


async def every_route(parts: ServiceParts, deployer: Deployer) -> RouteList:
    """Return all routes and how they fare."""
    routes = await asyncio.to_thread(parts.store.routes.all)
    reported = await deployer.routes()
    return RouteList(
        items=[_route_view(parts, name, each, reported.get(name)) for name, each in routes.items()]
    )


def _route_view(
    parts: ServiceParts,
    name: str,
    document: Mapping[str, object],
    reported: RouteStatus | str | None,
) -> RouteView:
    terms = RouteInput.model_validate(document, context=STORED)
    status = reported if isinstance(reported, RouteStatus) else None
    problem = reported if isinstance(reported, str) else None
    if terms.pipeline not in parts.catalogue.names:
        problem = f"pipeline {terms.pipeline} is no longer registered"
    view = None if status is None else _status_view(status)
    return RouteView(name=name, route=terms, status=view, problem=problem)


def _require_servable(parts: ServiceParts, terms: RouteInput) -> None:
    rule = "must be given: the service runs what units serve"
    checks.require(terms.pipeline is not None, "pipeline", rule, terms.pipeline)
    rule = "must be served by a service whose workers are processes of its computer"
    target = parts.settings.target
    checks.require(target != "kubernetes", "route", rule, f"one that runs {target} pods")
    route, _ = terms.route, terms.regimes.settings
    rule = "must be at least that of one unit"
    checks.require(bool(route.quick), "latency_s", rule, terms.latency_s)
    pipeline = parts.catalogue.pipeline(terms.pipeline or "")
    pipeline.require_available()
    Prober(pipeline, ProbeSettings(**terms.verify.model_dump()))
    for each in workloads_of(terms, parts.catalogue.reference(terms.pipeline or "")):
        desired = each.desired(pipeline.graph, 1)
        instances_of(route.name, desired, pipeline.graph, each.infrastructure)
    wanted = with_room(route)
    # of any unit alone; before a program is made of it
    fewest = min(ceil(wanted.demand_per_s / unit.most_per_s) for unit in wanted.quick)
    rule = f"must be served by at most {_MOST_WORKERS} workers"
    checks.require(fewest <= _MOST_WORKERS, "demand_per_s", rule, terms.demand_per_s)
    workers = sum(cheapest_traffic(wanted, terms.method).numbers.values())
    checks.require(workers <= _MOST_WORKERS, "demand_per_s", rule, terms.demand_per_s)


def _status_view(status: RouteStatus) -> RouteStatusView:
    state = status.state
    return RouteStatusView.of(
        status,
        regime=state.regime,
        why=state.why,
        failovers=state.failovers,
        lately=status.spans,
    )
