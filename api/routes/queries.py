"""Submitting, following and cancelling queries."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from api.phases import Phase
from api.routes.service import ServiceOf
from api.schemas import QueryPage, QueryRequest, QueryView, to_query
from api.service import Service
from api.services.listing import LARGEST_PAGE, page_of
from api.services.submission import Submission
from api.shown_schedule import LATEST
from api.views import query_view

router = APIRouter(prefix="/v1/queries", tags=["queries"])


@router.post("", status_code=202)
def submit(
    request: QueryRequest,
    service: ServiceOf,
    response: Response,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> QueryView:
    """Queue a query. The same Idempotency-Key gives the same query again."""
    record, _ = service.intake.submit(_submission(request, service, idempotency_key))
    response.headers["Location"] = f"/v1/queries/{record.id}"
    return query_view(record, service.parts.infrastructure, service.schedule())


@router.get("")
def page(
    service: ServiceOf,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = 50,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
    phase: Phase | None = None,
    tenant: Annotated[str | None, Query(max_length=63)] = None,
    key_prefix: Annotated[str | None, Query(min_length=1, max_length=200)] = None,
) -> QueryPage:
    """List queries, newest first, a page at a time; `key_prefix` is of the idempotency key."""
    found = page_of(
        service.parts.store,
        limit=limit,
        cursor=cursor,
        phase=phase,
        tenant=tenant,
        key_prefix=key_prefix,
    )
    infrastructure, schedule = service.parts.infrastructure, service.schedule()
    items = [query_view(record, infrastructure, schedule) for record in found.records]
    return QueryPage(items=items, next_cursor=found.next_cursor)


@router.get("/{query_id}")
def query(query_id: str, service: ServiceOf) -> QueryView:
    """Give a query: its phase, best plan so far, spend; who made way for whom."""
    parts = service.parts
    record = parts.store.query(query_id)
    displaced = parts.schedules.displaced(limit=LATEST, query_id=query_id)
    return query_view(record, parts.infrastructure, service.schedule(), displaced)


@router.post("/{query_id}:cancel")
def cancel(query_id: str, service: ServiceOf) -> QueryView:
    """Stop planning a query, or searching on while it serves; again changes nothing."""
    parts = service.parts
    record = parts.store.request_cancel(query_id, at=parts.clock.timestamp())
    return query_view(record, parts.infrastructure, service.schedule())


def _submission(
    request: QueryRequest, service: Service, idempotency_key: str | None
) -> Submission:
    paths = {"data.folder": request.data.folder, "data.jsonl": request.data.jsonl}
    return Submission(
        query=to_query(request, method=service.method),
        examples=request.data.examples,
        spec=request.model_dump(mode="json", exclude_none=True),
        local_paths={field: path for field, path in paths.items() if path is not None},
        idempotency_key=idempotency_key,
        tenant=request.tenant,
    )
