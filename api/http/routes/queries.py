"""Queries: submitted, followed, asked about, replanned, deployed, sent requests to."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import JsonValue

from circinus.api.control.service import Service
from circinus.api.http.data_plane import reply_of, terms_of, while_connected
from circinus.api.http.description import header, problems
from circinus.api.http.gate import arrival_in
from circinus.api.http.payload_json import payload_from_json
from circinus.api.http.routes.read_once import ReadOnce
from circinus.api.http.routes.paths import PLAN, QUERY
from circinus.api.http.routes.service import LATEST, ServiceOf
from circinus.api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from circinus.api.schemas.planning import planning_view
from circinus.api.schemas.plans import PlanList, PlanView, plan_view
from circinus.api.schemas.progress import PageRequest, QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest
from circinus.api.schemas.service import DeploymentView, RequestBody, RequestReply
from circinus.api.store.records import StoredQuery
from circinus.api.use_cases.knowledge import explain
from circinus.api.use_cases.knowledge import what_if as found_if
from circinus.api.use_cases.queries import LONGEST_KEY, page_of, undeploy
from circinus.api.use_cases.queries import submit as submitted
from circinus.api.use_cases.replanning import replan_for_change
from circinus.api.use_cases.views import deployment_view, query_view
from circinus.deploy.runtime.orchestrator import DeploymentStatus
from circinus.pipelines.errors import Unavailable

router = APIRouter(prefix="/v1", route_class=ReadOnce)
# What it must be, the use case checks: what is printable in Latin-1, as headers come.
_KEY: dict[str, JsonValue] = {
    "minLength": 1,
    "maxLength": LONGEST_KEY,
    "pattern": r"^[ -~\xa1-\xac\xae-\xff]+$",
}


@router.post(
    "/queries",
    status_code=202,
    tags=["queries"],
    responses={202: header("Location", "Path of the query."), **problems(409, 429)},
)
def submit(
    request: QueryRequest,
    service: ServiceOf,
    response: Response,
    idempotency_key: Annotated[str | None, Header(json_schema_extra=_KEY)] = None,
) -> QueryView:
    """Queue a query. The same Idempotency-Key gives the same query again."""
    record = submitted(service.parts, request, idempotency_key)
    response.headers["Location"] = f"/v1/queries/{record.id}"
    return _shown(record, service)


@router.get("/queries", tags=["queries"])
def page(service: ServiceOf, asked: Annotated[PageRequest, Query()]) -> QueryPage:
    """List queries, newest first, a page at a time; `key_prefix` is of the idempotency key."""
    records, next_cursor = page_of(service.parts.store, asked)
    infrastructure, schedule = service.parts.infrastructure, service.schedule()
    items = [query_view(record, infrastructure, schedule) for record in records]
    return QueryPage(items=items, next_cursor=next_cursor)


@router.get(QUERY, tags=["queries"], responses=problems(404))
async def query(query_id: str, service: ServiceOf) -> QueryView:
    """Give a query: its phase, best plan so far, spend, deployment; who made way for whom."""
    status = await service.deployer.status(query_id)
    return await asyncio.to_thread(_with_deployment, query_id, service, status)


def _with_deployment(
    query_id: str, service: Service, status: DeploymentStatus | None
) -> QueryView:
    parts = service.parts
    record = parts.store.query(query_id)
    displaced = parts.store.schedules.displaced(limit=LATEST, query_id=query_id)
    found = query_view(record, parts.infrastructure, service.schedule(), displaced)
    if status is None:
        return found
    deployment = deployment_view(record, status, parts.infrastructure)
    return found.model_copy(update={"deployment": deployment})


@router.post(f"{QUERY}:cancel", tags=["queries"], responses=problems(404, 409))
def cancel(query_id: str, service: ServiceOf) -> QueryView:
    """Stop planning a query, or searching on while it serves; again changes nothing."""
    at = service.parts.clock.timestamp()
    return _shown(service.parts.store.request_cancel(query_id, at=at), service)


def _shown(record: StoredQuery, service: Service) -> QueryView:
    return query_view(record, service.parts.infrastructure, service.schedule())


@router.get(f"{QUERY}/plans", tags=["plans"], responses=problems(404))
def plans(query_id: str, service: ServiceOf) -> PlanList:
    """Give the Pareto set of a query, cheapest first; empty until planning ended."""
    parts = service.parts
    owner = parts.store.query(query_id)
    slo, stored = owner.query.slo, parts.store.plans(query_id)
    return PlanList(items=[plan_view(s.plan, slo, parts.infrastructure) for s in stored])


@router.get(PLAN, tags=["plans"], responses=problems(404))
def plan(plan_id: str, service: ServiceOf) -> PlanView:
    """Give a plan; where several queries found the same one, as the newest of them sees it."""
    parts = service.parts
    stored = parts.store.plan(plan_id)
    slo = parts.store.query(stored.query_id).query.slo
    return plan_view(stored.plan, slo, parts.infrastructure)


@router.get(f"{PLAN}/explanation", tags=["questions"], responses=problems(404))
def explanation(plan_id: str, service: ServiceOf) -> ExplanationView:
    """Give why a plan is what it is, as the newest query that found it sees it."""
    parts = service.parts
    stored = parts.store.plan(plan_id)
    record = parts.store.query(stored.query_id)
    return ExplanationView.of(
        explain(parts, record, stored),
        plan=plan_view(stored.plan, record.query.slo, parts.infrastructure),
        planning=planning_view(record.query.planning),
    )


@router.post(f"{QUERY}:whatif", tags=["questions"], responses=problems(404, 409))
def what_if(query_id: str, body: WhatIfBody, service: ServiceOf) -> WhatIfView:
    """Give what other circumstances would do to a query; nothing is changed or measured."""
    return found_if(service.parts, service.parts.store.query(query_id), body)


@router.post(f"{QUERY}:replan", tags=["questions"], responses=problems(404, 409))
def replan(query_id: str, body: ReplanBody, service: ServiceOf) -> QueryView:
    """Give the query with other objectives or data, planned again with what is known."""
    record = service.parts.store.query(query_id)
    return _shown(replan_for_change(service.parts, record, body), service)


@router.get(f"{QUERY}/deployment", tags=["deployments"], responses=problems(404))
async def deployment(query_id: str, service: ServiceOf) -> DeploymentView:
    """Give how the deployment of a query fares."""
    record = await asyncio.to_thread(service.parts.store.query, query_id)
    status = await service.deployer.status(query_id)
    return deployment_view(record, status, service.parts.infrastructure)


@router.delete(f"{QUERY}/deployment", tags=["deployments"], responses=problems(404, 409))
async def retire(query_id: str, service: ServiceOf) -> QueryView:
    """Retire a query and free its capacity; retiring it again changes nothing."""
    parts = service.parts
    record = await asyncio.to_thread(undeploy, parts.store, query_id, clock=parts.clock)
    with contextlib.suppress(Unavailable):  # nothing runs then
        await service.deployer.withhold(query_id)
    return await asyncio.to_thread(_shown, record, service)


@router.post(
    f"{QUERY}/requests",
    tags=["deployments"],
    responses=problems(404, 409, 429, 502),
)
async def send(
    query_id: str, body: RequestBody, service: ServiceOf, request: Request
) -> RequestReply:
    """Send one request to the deployed plan of a query."""
    given, terms = payload_from_json(body.input), terms_of(body, arrival_in(request.scope))
    work = service.requests.send(query_id, given, body.example, terms)
    answered = await while_connected(request.receive, work)
    reply = reply_of(answered.result, answered.plan_id, service.parts.infrastructure)
    scored = {"score": answered.score, "planned_on": answered.planned_on}
    return reply.model_copy(update=scored)
