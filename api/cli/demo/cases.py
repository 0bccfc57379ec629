"""The queries of the demo, what must become of them, and where they run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from circinus.api.phases import QueryPhase
from circinus.api.schemas.query import DataSource, LimitsRequest, QueryRequest, SloRequest
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.presets import PRESETS

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


@dataclass(frozen=True, slots=True)
class DemoCase:
    """One query of the demo.

    Attributes:
        name: For people.
        slo: Its objectives.
        ends: The phase that it must reach.
        configurations: Most that are measured; None: any number.
    """

    name: str
    slo: SloRequest
    ends: QueryPhase = QueryPhase.SERVING
    configurations: int | None = _CONFIGURATIONS

    @property
    def request(self) -> QueryRequest:
        """What is submitted."""
        return QueryRequest(
            pipeline=PIPELINE,
            data=DataSource(examples=INPUTS, seed=PLANNING_SEED),
            slo=self.slo,
            limits=LimitsRequest(profiling_s=_PROFILING_S, configurations=self.configurations),
        )


CASES = (
    DemoCase("frugal", SloRequest(accuracy=0.7, latency_s=0.2)),
    DemoCase("quick", SloRequest(accuracy=0.75, latency_s=0.04)),
    DemoCase("careful", SloRequest(accuracy=0.82, latency_s=0.07, cost_usd_per_hour=0.5)),
    DemoCase(
        "impossible", SloRequest(accuracy=0.7, latency_s=0.0001), QueryPhase.INFEASIBLE, None
    ),
)
"""Three with unlike objectives, and one that nothing can meet."""


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
