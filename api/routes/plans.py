"""Plans of queries."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.service import ServiceOf
from api.schemas import PlanList, PlanView
from api.views import stored_plan_view

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
