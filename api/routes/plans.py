"""Plans and the schedule."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter

from api.routes.service import ServiceOf
from api.schemas import ArrivalInput, PlanList, PlanView, PreviewBody, ScheduleView
from api.services.preview import Assessment, WhatIf, assess, live_problem, preview
from api.views import schedule_view, stored_plan_view
from pipelines.plan import DemandItem
from scheduler.problem import Candidate, PlanOption

router = APIRouter(prefix="/v1", tags=["plans"])


@router.get("/queries/{query_id}/plans")
def plans(query_id: str, service: ServiceOf) -> PlanList:
    """Give the Pareto set of a query, cheapest first; empty until planning ended."""
    parts = service.parts
    owner = parts.store.query(query_id)
    stored = parts.store.plans(query_id)
    return PlanList(items=[stored_plan_view(s, owner, parts.infrastructure) for s in stored])


@router.get("/plans/{plan_id}")
def plan(plan_id: str, service: ServiceOf) -> PlanView:
    """Give a plan; where several queries found the same one, as the newest of them sees it."""
    parts = service.parts
    stored = parts.store.plan(plan_id)
    return stored_plan_view(stored, parts.store.query(stored.query_id), parts.infrastructure)


@router.get("/schedule")
def schedule(service: ServiceOf) -> ScheduleView:
    """Give who is admitted, with which plan, on which machines, and how good that is."""
    parts = service.parts
    now = service.schedule()
    view = schedule_view(now, parts.infrastructure)
    if now is None:
        return view
    return _judged(view, assess(live_problem(parts.store, parts.infrastructure), now))


@router.post("/schedule:preview")
def preview_schedule(body: PreviewBody, service: ServiceOf) -> ScheduleView:
    """Give the schedule that a change would lead to; nothing is changed."""
    parts = service.parts
    problem = live_problem(parts.store, parts.infrastructure)
    change = _what_if(body)
    found, how_good = preview(problem, parts.policy, change)
    tiers = tuple(
        replace(t, machines=change.machines.get(t.name, t.machines))
        for t in parts.infrastructure.tiers
    )
    view = schedule_view(found, replace(parts.infrastructure, tiers=tiers))
    return _judged(view, how_good)


def _judged(view: ScheduleView, found: Assessment) -> ScheduleView:
    judged = {
        "goodput": found.goodput,
        "bound": found.bound,
        "gap": found.gap,
        "displaced": list(found.displaced),
    }
    return view.model_copy(update=judged)


def _what_if(body: PreviewBody) -> WhatIf:
    return WhatIf(
        machines=body.machines,
        leaving=frozenset(body.leaving),
        arriving=tuple(_candidate(arrival) for arrival in body.arriving),
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
    return Candidate(query_id=arrival.id, plans=plans, weight=arrival.weight)
