"""The queries of the demo and what must become of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from api.phases import Phase
from api.schemas import DataSource, LimitsRequest, QueryRequest, SloRequest
from pipelines.infrastructure import Infrastructure
from pipelines.presets import PRESETS

PIPELINE = "digits"
PLANNING_SEED = 11
"""Of the inputs that are planned on."""
HELD_OUT_SEED = 12
"""Of the inputs that requests are made of: none of them was planned on."""
INPUTS = 48
_PROFILING_S = 15.0
"""Never reached on an idle computer; a busy one may take this long."""
_CONFIGURATIONS = 48
"""Enough for a feasible plan, few enough for a demo."""
_DEVICE_SPEED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One query of the demo.

    Attributes:
        name: For people.
        request: What is submitted.
        ends: The phase that it must reach.
    """

    name: str
    request: QueryRequest
    ends: Phase


def cases() -> tuple[Case, ...]:
    """Give the queries: three with unlike objectives, and one that nothing can meet."""
    return (
        Case(
            name="frugal",
            request=_request(SloRequest(accuracy=0.7, latency_s=0.2)),
            ends=Phase.SERVING,
        ),
        Case(
            name="quick",
            request=_request(SloRequest(accuracy=0.75, latency_s=0.04)),
            ends=Phase.SERVING,
        ),
        Case(
            name="careful",
            request=_request(SloRequest(accuracy=0.82, latency_s=0.07, cost_usd_per_hour=0.5)),
            ends=Phase.SERVING,
        ),
        Case(
            name="impossible",
            request=_request(SloRequest(accuracy=0.7, latency_s=0.0001), configurations=None),
            ends=Phase.INFEASIBLE,
        ),
    )


def demo_infrastructure() -> Infrastructure:
    """Give the preset `local` with a device so slow that other tiers are worth their price."""
    local = PRESETS["local"]
    device = local.tiers[0]
    # Waiting slows operators down, not the calls of an instance: those take as long as before.
    slower = _DEVICE_SPEED / device.speed_factor
    device = replace(
        device,
        speed_factor=_DEVICE_SPEED,
        call_s=device.call_s * slower,
        call_s_per_byte=device.call_s_per_byte * slower,
    )
    return replace(local, name="demo", tiers=(device, *local.tiers[1:]))


def _request(slo: SloRequest, *, configurations: int | None = _CONFIGURATIONS) -> QueryRequest:
    return QueryRequest(
        pipeline=PIPELINE,
        data=DataSource(examples=INPUTS, seed=PLANNING_SEED),
        slo=slo,
        limits=LimitsRequest(profiling_s=_PROFILING_S, configurations=configurations),
    )
