"""The events of a service, one for each occurrence, in order."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue

from circinus.api.schemas.base import Finite, Time, View
from circinus.pipelines.model.plan import Plan
from circinus.planner.search.result import PlanningProgress

LARGEST_ID = 2**63 - 1


class EventKind(StrEnum):
    """The subject of an event."""

    PHASE = "query.phase"
    PROGRESS = "query.progress"
    MEASURED = "query.measured"
    REPLANNED = "query.replanned"
    DRIFTED = "query.drifted"
    SCHEDULE = "schedule.changed"
    POOL = "query.pool"
    TRAFFIC = "query.traffic"
    OBJECTIVES = "query.objectives"
    OVERLOAD = "query.overload"
    DEPLOYMENT = "deployment.changed"
    MACHINES = "machines.changed"
    EMULATION = "emulation.changed"


class EventView(View):
    """Something that happened."""

    id: int
    """Grows with every event: after an event no later one has a smaller id."""
    at: Time = Field(description="When, UTC.")
    kind: str
    """`query.phase`, `.progress`, `.measured`, `.replanned`, `.drifted`, `.traffic`, `.pool`,
    `.objectives` or `.overload`, `schedule.changed`, `deployment.changed`, `machines.changed` or
    `emulation.changed`."""
    query_id: str | None = Field(default=None, description="Of which query; none: of the service.")
    words: str = Field(description="The same in a sentence.")
    data: dict[str, JsonValue] = Field(description="Its figures and names, by kind.")


class EventsRequest(BaseModel):
    """Which events to return."""

    after: Annotated[int | None, Field(ge=0, le=LARGEST_ID)] = None
    limit: Annotated[int, Field(ge=1, le=1000)] = 100


class EventPage(View):
    """Some events, the oldest first."""

    items: list[EventView] = Field(description="At most `limit` of them.")
    latest: int
    """Id of the newest event of the service; with fewer than `limit` items, these are all the
    selected events up to it."""


class ProgressData(View):
    """Data of a `query.progress`; see the `progress` of a query."""

    phase: str
    measured: int
    inputs: int
    spent_s: float
    profiling_left_s: Finite
    elapsed_s: float
    time_left_s: Finite
    plans: int
    best_plan_id: str | None = None
    best_cost_usd_per_hour: float | None = None


def progress_data(progress: PlanningProgress) -> dict[str, JsonValue]:
    """Return the data of a `query.progress`."""
    best: Plan | None = progress.best
    figures = {} if best is None else {
        "best_plan_id": best.id, "best_cost_usd_per_hour": best.cost_usd_per_hour
    }  # fmt: skip
    return ProgressData.of(progress, **figures).model_dump(mode="json")
