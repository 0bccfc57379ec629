"""The schedule: as it is, as it would be, and as a problem for other solvers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Response

from api.routes.service import ScheduleOf, ServiceOf
from api.schedule_views import schedule_view
from api.schemas import ArrivalInput, PreviewBody, ScheduleView
from api.services.capacity import with_machines
from api.services.preview import WhatIf
from pipelines.plan import DemandItem
from scheduler.problem import Candidate, PlanOption
from scheduler.problem_form import problem_to_dict

router = APIRouter(prefix="/v1", tags=["schedule"])
_NOT_MODIFIED = 304


@router.get("/schedule", response_model=ScheduleView)
def schedule(
    shown: ScheduleOf, if_none_match: Annotated[str | None, Header(max_length=200)] = None
) -> Response:
    """Give who is admitted, with which plan, on which machines, and how good that is.

    Cheap to poll: it is worked out once for each schedule, and with the ETag of the last answer
    as If-None-Match the answer is an empty 304 until there is another schedule.
    """
    revision, text = shown.read()
    tags = {"ETag": f'"{revision}"'}
    if if_none_match == tags["ETag"]:
        return Response(status_code=_NOT_MODIFIED, headers=tags)
    return Response(text, media_type="application/json", headers=tags)


@router.post("/schedule:preview")
def preview(body: PreviewBody, service: ServiceOf) -> ScheduleView:
    """Give the schedule that a change would lead to; nothing is changed."""
    found, how_good = service.preview(_what_if(body))
    infrastructure = with_machines(service.capacity.now(), body.machines)
    return schedule_view(found, infrastructure, how_good)


@router.get("/schedule/problem")
def problem(service: ServiceOf) -> dict[str, object]:
    """Give the live queries with their plans, and the machines, for `circinus study ilp`."""
    return problem_to_dict(service.problem())


def _what_if(body: PreviewBody) -> WhatIf:
    return WhatIf(
        machines=body.machines,
        leaving=frozenset(body.leaving),
        arriving=tuple(_candidate(arrival) for arrival in body.arriving),
        quotas=body.quotas,
    )


def _candidate(arrival: ArrivalInput) -> Candidate:
    plans = tuple(
        PlanOption(
            plan_id=p.id,
            demand=tuple(DemandItem(item.tier, item.share) for item in p.demand),
            cost_usd_per_hour=p.cost_usd_per_hour,
        )
        for p in arrival.plans
    )
    return Candidate(
        query_id=arrival.id,
        plans=plans,
        weight=arrival.weight,
        priority=arrival.priority,
        tenant=arrival.tenant,
    )
