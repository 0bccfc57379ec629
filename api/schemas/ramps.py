"""Breaking points as they are shown."""

from __future__ import annotations

from pydantic import Field

from circinus.api.schemas.base import Finite, View
from circinus.scheduler.routing.breaking_point import BreakingReason


class RampStepView(View):
    """Requests at one rate."""

    per_s: float = Field(description="That were sent, in the mean.")
    requests: int
    failed: int
    served_per_s: float
    mean_s: Finite
    p50_s: Finite = Field(description="None: half of them failed.")
    p95_s: Finite = Field(description="None: one in twenty failed.")
    busy: float | None = Field(description="Part of the time; none: not known.")
    broken_by: list[BreakingReason] = Field(description="What was too much; none: it held.")
    sure: bool = Field(description="Whether that is more than chance.")


class LateStepView(View):
    """A rate that was not counted, since requests were sent late."""

    per_s: float
    late_s: float = Field(description="After they were due, of 95 %.")


class PoolLatencyView(View):
    """A line of what `circinus pool choose --latency` reads."""

    model: str
    instance: str
    batch: int
    mean_ms: float
    std_ms: float


class BreakingPointView(View):
    """The highest rate that a unit holds, and all that was tried."""

    unit: str
    per_s: float = Field(description="0: none that was tried holds.")
    low_per_s: float = Field(description="Of its 95 % interval.")
    high_per_s: float | None = Field(description="None: no rate that was tried is surely more.")
    reasons: list[BreakingReason] = Field(description="Why no more is held.")
    at: RampStepView | None = Field(description="The highest rate tried that held.")
    usd_per_1000: float | None = Field(description="There; none: no price is known.")
    latency_s: float | None = Field(description="That 95 % were allowed; none: any.")
    steps: list[RampStepView] = Field(description="In the order of their rates.")
    late: list[LateStepView]
    failure: str = Field(description="Of the last request that failed; empty: none did.")
    pool: list[PoolLatencyView] = Field(description="Empty: not known how long it is busy.")
