"""What ramps found, as it is shown and as a route file takes it in."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from circinus.api.schemas.ramps import (
    BreakingPointView,
    LateStepView,
    PoolLatencyView,
    RampStepView,
)
from circinus.deploy.runtime.ramping import Ramped
from circinus.pipelines.errors import CircinusError
from circinus.scheduler.routing.breaking_point import RampStep
from circinus.scheduler.routing.units import DeploymentUnit

_HOUR_S, _THOUSAND = 3600.0, 1000.0


class SendsTooLate(CircinusError):
    """This machine cannot send requests when they are due."""


def breaking_view(
    name: str, ramped: Ramped, *, unit: DeploymentUnit | None, latency_s: float | None
) -> BreakingPointView:
    """Return what a ramp found; `unit` is what it is of, None: no unit of a route.

    Raises SendsTooLate if no step was counted.
    """
    point, steps = ramped.point, sorted(ramped.steps, key=lambda step: step.per_s)
    if point is None:
        late_s = max(each.late_s for each in ramped.late)
        raise SendsTooLate(f"{name}: requests were sent {late_s * 1e3:.0f} ms late: none counts")
    usd_per_1000 = None
    if unit is not None and point.per_s > 0:
        usd_per_1000 = unit.price_usd_per_hour / point.per_s / _HOUR_S * _THOUSAND
    return BreakingPointView(
        unit=name,
        per_s=point.per_s,
        low_per_s=point.low_per_s,
        high_per_s=point.high_per_s,
        reasons=list(point.reasons),
        at=None if point.there is None else _step(point.there),
        usd_per_1000=usd_per_1000,
        latency_s=latency_s,
        steps=[_step(step) for step in steps],
        late=[LateStepView.of(each) for each in ramped.late],
        failure=ramped.failure,
        pool=_pool(unit, point.there),
    )


def with_breaking_points(text: str, found: Mapping[str, Mapping[str, float]]) -> str:
    """Return the text of a route file with other figures: unit -> field -> value.

    All else stays as it is, comments too. The file is one of a route, and the fields are there.
    """
    route = _fields(yaml.compose(text, yaml.SafeLoader))
    spots: list[tuple[int, int, str]] = []
    for node in route["units"].value:
        unit = _fields(node)
        for field, value in found.get(str(unit["name"].value), {}).items():
            start, end = unit[field].start_mark.index, unit[field].end_mark.index
            spots.append((start, end, f"{value:.4g}"))
    for start, end, figure in sorted(spots, reverse=True):
        text = text[:start] + figure + text[end:]
    return text


def _fields(node: yaml.Node | None) -> dict[str, yaml.Node]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return {str(key.value): value for key, value in pairs}


def _step(step: RampStep) -> RampStepView:
    sure = step.surely_held if step.held else step.surely_broken
    return RampStepView.of(step, broken_by=list(step.broken_by), sure=sure)


def _pool(unit: DeploymentUnit | None, there: RampStep | None) -> list[PoolLatencyView]:
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
