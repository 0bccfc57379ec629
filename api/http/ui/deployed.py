"""How the deployment of a query meets its plan's predictions, and when it did not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from circinus.api.control.service import Service
from circinus.api.http.pages import page
from circinus.api.http.rendered import RenderedQueries, RenderedQuery
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import QueriesOf, ServiceOf
from circinus.api.phases import LIVE
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.pools import PoolView
from circinus.api.schemas.progress import QueryView
from circinus.api.store.records import StoredPlan
from circinus.api.use_cases.objectives import accuracy_check, latency_check
from circinus.api.use_cases.query_pools import pool_now
from circinus.api.use_cases.views import deployment_view, served_bills

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """A deviation from the plan, or the reaction to it."""

    at: datetime
    what: str
    why: str


@router.get(f"/ui{QUERY}/deployment")
async def part(query_id: str, service: ServiceOf, rendered: QueriesOf) -> HTMLResponse:
    """Return the part of a query's page; NotFound if there is none of that id."""
    return page("_deployment.html", await deployed(service, rendered, query_id))


async def deployed(
    service: Service, rendered: RenderedQueries, query_id: str
) -> dict[str, object]:
    """Return what `_deployment.html` shows; NotFound if there is no query of that id.

    For use within the service's event loop.
    """
    query = await asyncio.to_thread(rendered.query, query_id)
    record, slo = query.record, query.record.query.slo
    status = await service.deployer.status(record.id) if record.phase in LIVE else None
    report = None if status is None else status.report
    window = None if report is None else service.requests.windows.observed(record.id, report)
    stored, turns, pool = await asyncio.to_thread(_read, service, query)
    billed = await asyncio.to_thread(served_bills, service.parts, record.id)
    plan = next((each.plan for each in stored if status and each.id == status.plan_id), None)
    observed = service.observed.get(record.id)
    deployment = deployment_view(record, status, service.parts.infrastructure, observed)
    return {
        "query": query.view,
        "deployment": deployment,
        "instances": [*zip(deployment.instances, status.instances if status else (), strict=True)],
        "accuracy": None if plan is None else accuracy_check(plan, slo, window),
        "latency": None if plan is None else latency_check(plan, slo, window),
        "window": window,
        "turns": turns,
        "pool": pool,
        "billed": billed,
    }


def _read(
    service: Service, query: RenderedQuery
) -> tuple[Sequence[StoredPlan], Sequence[Correction], PoolView | None]:
    plans = service.parts.store.plans(query.record.id)
    drifts = service.parts.store.events.of(query.record.id, kinds={EventKind.DRIFTED})
    turns = sorted(_turns(query.view, drifts), key=lambda turn: turn.at, reverse=True)
    pool = None if query.record.pool is None else pool_now(service.parts, query.record)
    return plans, turns, pool


def _turns(view: QueryView, drifts: Sequence[EventView]) -> Iterator[Correction]:
    known = {str(event.data.get("why")) for event in drifts}
    for event in drifts:
        yield Correction(at=event.at, what="drifted", why=str(event.data.get("why")))
    for change in view.replanned:
        why = "as it drifted" if change.why in known else change.why
        yield Correction(at=change.at, what="planned again", why=why)
    if view.search is not None:
        why = "as it drifted" if view.search.why in known else view.search.why
        yield Correction(at=view.search.since, what="searched on", why=why)
        if view.search.ended_at is not None:
            yield Correction(
                at=view.search.ended_at, what="search over", why=view.search.ended or ""
            )
