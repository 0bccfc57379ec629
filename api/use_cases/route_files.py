"""Results of ramps, as views and as parts of a route file."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import yaml

from circinus.api.schemas.routes import (
    BreakingPointView,
    DeploymentUnitInput,
    PoolLatencyView,
    RampStepView,
    RouteInput,
    RouteKubernetesInput,
    VerifiedUnitView,
)
from circinus.api.schemas.violations import value_of
from circinus.deploy.kubernetes.routing.targets import (
    ClusterRoute,
    GatewayFront,
    IngressFront,
    UnitTarget,
    service_url,
)
from circinus.deploy.routes.endpoints import check_url
from circinus.deploy.routes.probing import EndpointProbes, UnitProof, endpoint_proofs
from circinus.deploy.routes.ramping import Ramped
from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.scheduler.routing.breaking_point import RampStep
from circinus.scheduler.routing.units import DeploymentUnit, usd_per_1000


class SendsTooLate(CircinusError):
    """This machine cannot send requests when they are due."""


def breaking_view(
    name: str, ramped: Ramped, *, unit: DeploymentUnit | None, latency_s: float | None
) -> BreakingPointView:
    """Return the view of a ramp; `unit` is its unit, None: no unit of a route.

    Raises SendsTooLate if no step was counted.
    """
    point, steps = ramped.point, sorted(ramped.steps, key=lambda step: step.per_s)
    if point is None:
        late_s = max(each.late_s for each in ramped.late)
        raise SendsTooLate(f"{name}: requests were sent {late_s * 1e3:.0f} ms late: none counts")
    usd = None
    if unit is not None and point.per_s > 0:
        usd = usd_per_1000(unit.price_usd_per_hour, point.per_s)
    return BreakingPointView.of(
        point,
        unit=name,
        at=None if point.there is None else _step(point.there),
        usd_per_1000=usd,
        latency_s=latency_s,
        steps=[_step(step) for step in steps],
        late=ramped.late,
        failure=ramped.failure,
        pool=_pool_latencies(unit, point.there),
    )


def with_breaking_points(text: str, figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the text of a route file with other figures: unit -> field -> value.

    All else stays as it is, comments too. The file is one of a route, and the fields are there.
    """
    route = _fields(yaml.compose(text, yaml.SafeLoader))
    spots: list[tuple[int, int, str]] = []
    for node in route["units"].value:
        unit = _fields(node)
        for field, value in figures.get(str(unit["name"].value), {}).items():
            start, end = unit[field].start_mark.index, unit[field].end_mark.index
            spots.append((start, end, f"{value:.4g}"))
    for start, end, figure in sorted(spots, reverse=True):
        text = text[:start] + figure + text[end:]
    return text


def _fields(node: yaml.Node | None) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {str(key.value): value for key, value in pairs}


def _step(step: RampStep) -> RampStepView:
    return RampStepView.of(step, sure=step.surely_held if step.held else step.surely_broken)


def _pool_latencies(unit: DeploymentUnit | None, there: RampStep | None) -> list[PoolLatencyView]:
    """Return what pools are chosen by: seconds of service, without those that a request waits."""
    if unit is None or there is None or there.service_s is None or there.service_std_s is None:
        return []
    return [
        PoolLatencyView(
            model=unit.model,
            instance=unit.hardware,
            batch=1,
            mean_ms=there.service_s * 1e3,
            std_ms=there.service_std_s * 1e3,
        )
    ]


def unit_urls(route_file: RouteInput, named: Mapping[str, str]) -> dict[str, str]:
    """Return unit -> where it answers, in the route's order: as `named`, else its Service.

    InvalidInput if a unit is nowhere, `named` has one that there is none of, or a URL is none.
    """
    units = [unit.name for unit in route_file.route.units]  # no two of a name
    for name, url in named.items():
        checks.among("--url", name, units)
        check_url(f"--url {name}", url)
    urls = _services(route_file) | dict(named)
    for name in units:
        rule = f"must be given, or --url {name}=URL"
        checks.require(name in urls, f"unit {name}.kubernetes", rule, None)
    return {name: urls[name] for name in units}


def verified(urls: Mapping[str, str], probes: EndpointProbes) -> list[VerifiedUnitView]:
    """Return the results of probes of units by URL, all probed at the same time."""
    proofs = asyncio.run(endpoint_proofs(urls, probes))
    return [_view(name, urls[name], proof) for name, proof in proofs.items()]


def _services(route_file: RouteInput) -> dict[str, str]:
    place = route_file.kubernetes
    if place is None:
        return {}
    places = {unit.name: unit.kubernetes for unit in route_file.units}
    return {
        name: service_url(place.namespace, at.service, at.port, place.path)
        for name, at in places.items()
        if at is not None
    }


def _view(name: str, url: str, proof: UnitProof) -> VerifiedUnitView:
    return VerifiedUnitView.of(
        proof,
        name=name,
        url=url,
        difference=None if proof.score is None else proof.score - proof.reference_score,
    )


def cluster_route(route_file: RouteInput) -> ClusterRoute:
    """Return a route with all that it is in a cluster; InvalidInput if it is nowhere."""
    place = route_file.kubernetes
    if place is None:
        raise InvalidInput.of("kubernetes", "must be given, to be in a cluster", None)
    fields = place.model_dump(exclude={"gateway", "ingress"})
    targets = {unit.name: _target(route_file.name, unit) for unit in route_file.units}
    return value_of(
        ClusterRoute,
        fields
        | {
            "route": route_file.route,
            "targets": {name: target for name, target in targets.items() if target},
            "front": _front(place),
            "method": route_file.method,
            "regimes": route_file.regimes.settings,
        },
    )


def _front(place: RouteKubernetesInput) -> GatewayFront | IngressFront:
    if place.gateway is not None:
        return GatewayFront(**place.gateway.model_dump())
    return IngressFront() if place.ingress is None else IngressFront(**place.ingress.model_dump())


def _target(route: str, unit: DeploymentUnitInput) -> UnitTarget | None:
    if unit.kubernetes is None:
        return None
    fields = unit.kubernetes.model_dump()
    if (pool := fields["node_pool"]) is not None:
        pool["name"] = pool["name"] or f"{route}-{unit.name}"
    return value_of(UnitTarget, fields)
