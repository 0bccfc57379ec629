"""Questions about queries that measurements answer: why, what if, and what now."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.service import ServiceOf
from api.schemas import (
    ExplanationView,
    QueryView,
    ReplanBody,
    WhatIfBody,
    WhatIfView,
    plan_view,
    planning_view,
    shortfall_view,
    to_query,
)
from api.schemas.explanation import explanation_view
from api.services.catalogue import offered
from api.services.changes import Circumstances
from api.services.knowledge import WhatIf
from api.services.observing import KnownData
from api.views import query_view, request_of, stored_plan_view
from pipelines.infrastructure import Infrastructure
from pipelines.slo import Slo

router = APIRouter(prefix="/v1", tags=["questions"])


@router.get("/plans/{plan_id}/explanation")
def explanation(plan_id: str, service: ServiceOf) -> ExplanationView:
    """Give why a plan is what it is, as the newest query that found it sees it."""
    parts = service.parts
    stored = parts.store.plan(plan_id)
    record = parts.store.query(stored.query_id)
    query = to_query(request_of(record))
    pipeline = offered(parts.catalogue, query.pipeline)
    found = service.knowledge.explain(plan_id, record, query, pipeline)
    view = stored_plan_view(stored, record, parts.infrastructure)
    return explanation_view(found, view, planning_view(query.planning))


@router.post("/queries/{query_id}:whatif")
def what_if(query_id: str, body: WhatIfBody, service: ServiceOf) -> WhatIfView:
    """Give what other circumstances would do to a query; nothing is changed or measured."""
    parts = service.parts
    record = parts.store.query(query_id)
    query = to_query(request_of(record))
    pipeline = offered(parts.catalogue, query.pipeline)
    change = Circumstances(**body.model_dump())
    found = service.knowledge.what_if(record, query, pipeline, change)
    return _what_if_view(found, query.slo, parts.infrastructure)


@router.post("/queries/{query_id}:replan")
def replan(query_id: str, body: ReplanBody, service: ServiceOf) -> QueryView:
    """Give the query with other objectives or data, planned again with what is known."""
    parts = service.parts
    record = parts.store.query(query_id)
    query = to_query(request_of(record))
    change = Circumstances(accuracy=body.accuracy, latency=body.latency, cost=body.cost)
    data = None if body.data is None else KnownData(body.data.examples, body.data.seed)
    changed = service.replanner.for_change(record, query, change, data)
    return query_view(changed, parts.infrastructure, service.schedule())


def _what_if_view(found: WhatIf, slo: Slo, infrastructure: Infrastructure) -> WhatIfView:
    missed = found.after.shortfall
    other = found.query.slo
    return WhatIfView(
        words=found.words,
        before=[plan_view(plan, slo, infrastructure) for plan in found.before.plans],
        after=[plan_view(plan, other, found.infrastructure) for plan in found.after.plans],
        shortfall=None if missed is None else shortfall_view(missed, other, found.infrastructure),
    )
