"""Queries: submitting, following, explaining, replanning, deploying, and their requests."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import JsonValue

from circinus.api.control.service import Service
from circinus.api.http.authentication import arrival_in
from circinus.api.http.bodies import JSON, ReadOnce
from circinus.api.http.data_plane import output_json, reply_of, terms_of, while_connected
from circinus.api.http.description import header, problems
from circinus.api.http.payload_json import payload_from_json
from circinus.api.http.rendered import TAGGED, IfNoneMatch, tagged
from circinus.api.http.routes.paths import PLAN, QUERY
from circinus.api.http.routes.service import QueriesOf, ServiceOf
from circinus.api.phases import LIVE
from circinus.api.schemas.deployments import (
    DeploymentView,
    ObjectiveList,
    ReplicasBody,
    RequestBody,
    RequestReply,
)
from circinus.api.schemas.explanation import ExplanationView, ReplanBody, WhatIfBody, WhatIfView
from circinus.api.schemas.plans import PlanList, PlanView, plan_view
from circinus.api.schemas.progress import PageRequest, QueryPage, QueryView
from circinus.api.schemas.query import QueryRequest
from circinus.api.store.records import StoredQuery
from circinus.api.use_cases.queries import LONGEST_KEY, undeploy
from circinus.api.use_cases.queries import submit as submitted
from circinus.api.use_cases.replanning import replan_for_change
from circinus.api.use_cases.views import deployment_view, objectives_view, query_view, served_bills
from circinus.pipelines.errors import Unavailable

router = APIRouter(prefix="/v1", route_class=ReadOnce)
# The use case checks its rule: printable in Latin-1, as headers are.
_KEY: dict[str, JsonValue] = {
    "minLength": 1,
    "maxLength": LONGEST_KEY,
    "pattern": r"^[ -~\xa1-\xac\xae-\xff]+$",
}


@router.post(
    "/queries",
    status_code=202,
    response_model=QueryView,
    tags=["queries"],
    responses={202: header("Location", "Path of the query."), **problems(409, 429)},
)
def submit(
    request: QueryRequest,
    service: ServiceOf,
    idempotency_key: Annotated[str | None, Header(json_schema_extra=_KEY)] = None,
) -> Response:
    """Queue a query. The same Idempotency-Key returns the same query again."""
    record = submitted(service.parts, request, idempotency_key)
    text = _view(record, service).model_dump_json()
    return Response(text, 202, {"Location": f"/v1/queries/{record.id}"}, media_type=JSON)


@router.get("/queries", response_model=QueryPage, responses={**TAGGED}, tags=["queries"])
def page(
    rendered: QueriesOf,
    page_request: Annotated[PageRequest, Query()],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List queries, newest first, a page at a time; `key_prefix` is of the idempotency key.

    `unfinished`: only those that something will still happen to by itself.
    """
    text, tag = rendered.page(page_request)
    return tagged(text, if_none_match, tag)


@router.get(
    QUERY, response_model=QueryView, responses={**TAGGED, **problems(404)}, tags=["queries"]
)
async def query(
    query_id: str, service: ServiceOf, rendered: QueriesOf, if_none_match: IfNoneMatch = None
) -> Response:
    """Return a query: its phase, best plan so far, spending, deployment and displacements.

    Cheap to poll: with the ETag of the last answer as If-None-Match the answer is an empty 304
    until the query changes.
    """
    rendered_query = await asyncio.to_thread(rendered.query, query_id)
    live = rendered_query.record.phase in LIVE
    status = await service.deployer.status(query_id) if live else None
    billed = await asyncio.to_thread(served_bills, service.parts, query_id)
    if status is None and not billed:
        return tagged(rendered_query.text, if_none_match)
    update: dict[str, object] = {"billed": billed}
    if status is not None:
        infrastructure, observed = service.parts.infrastructure, service.observed.get(query_id)
        update["deployment"] = deployment_view(
            rendered_query.record, status, infrastructure, observed
        )
    view = rendered_query.view.model_copy(update=update)
    return tagged(view.model_dump_json().encode(), if_none_match)


@router.post(f"{QUERY}:cancel", tags=["queries"], responses=problems(404, 409))
def cancel(query_id: str, service: ServiceOf) -> QueryView:
    """Stop planning a query, or searching on while it serves; again changes nothing."""
    at = service.parts.clock.timestamp()
    return _view(service.parts.store.request_cancel(query_id, at=at), service)


def _view(record: StoredQuery, service: Service) -> QueryView:
    return query_view(record, service.parts.infrastructure, service.schedule())


@router.get(
    f"{QUERY}/plans",
    response_model=PlanList,
    responses={**TAGGED, **problems(404)},
    tags=["plans"],
)
def plans(query_id: str, rendered: QueriesOf, if_none_match: IfNoneMatch = None) -> Response:
    """Return the Pareto set of a query, cheapest first; empty until planning ended."""
    return tagged(rendered.plans(query_id), if_none_match)


@router.get(PLAN, tags=["plans"], responses=problems(404))
def plan(plan_id: str, service: ServiceOf) -> PlanView:
    """Return a plan; where several queries have the same one, as a view of the newest.

    Also one that was `superseded`, until its query is replanned once more.
    """
    parts = service.parts
    stored = parts.store.plan(plan_id)
    slo = parts.store.query(stored.query_id).query.slo
    view = plan_view(stored.plan, slo, parts.infrastructure)
    return view.model_copy(update={"superseded": stored.superseded_at is not None})


@router.get(f"{PLAN}/explanation", tags=["questions"], responses=problems(404))
def explanation(plan_id: str, service: ServiceOf) -> ExplanationView:
    """Return the explanation of a plan, as a view of the newest query that has it."""
    return service.answers.explain(service.parts.store.plan(plan_id))


@router.post(f"{QUERY}:whatif", tags=["questions"], responses=problems(404, 409))
def what_if(query_id: str, body: WhatIfBody, service: ServiceOf) -> WhatIfView:
    """Return what other circumstances would do to a query; nothing is changed or measured."""
    return service.answers.what_if(query_id, body)


@router.post(f"{QUERY}:replan", tags=["questions"], responses=problems(404, 409))
def replan(query_id: str, body: ReplanBody, service: ServiceOf) -> QueryView:
    """Return the query with other objectives or data, planned again with what is known."""
    record = service.parts.store.query(query_id)
    return _view(replan_for_change(service.parts, record, body), service)


@router.get(
    f"{QUERY}/deployment",
    response_model=DeploymentView,
    responses={**TAGGED, **problems(404)},
    tags=["deployments"],
)
async def deployment(
    query_id: str, service: ServiceOf, rendered: QueriesOf, if_none_match: IfNoneMatch = None
) -> Response:
    """Return how the deployment of a query fares."""
    record = (await asyncio.to_thread(rendered.query, query_id)).record
    status = await service.deployer.status(query_id)
    observed = service.observed.get(query_id)
    view = deployment_view(record, status, service.parts.infrastructure, observed)
    return tagged(view.model_dump_json().encode(), if_none_match)


@router.get("/objectives", tags=["deployments"])
async def objectives(service: ServiceOf) -> ObjectiveList:
    """Return how each query that is served fares by its requests: all at once, for who watches."""
    observed = sorted(service.observed.items())
    return ObjectiveList(items=[objectives_view(query_id, each) for query_id, each in observed])


@router.delete(f"{QUERY}/deployment", tags=["deployments"], responses=problems(404, 409))
async def retire(query_id: str, service: ServiceOf) -> QueryView:
    """Retire a query and free its capacity; retiring it again changes nothing."""
    parts = service.parts
    record = await asyncio.to_thread(undeploy, parts.store, query_id, clock=parts.clock)
    with contextlib.suppress(Unavailable):  # nothing runs then
        await service.deployer.withhold(query_id)
    return await asyncio.to_thread(_view, record, service)


@router.put(f"{QUERY}/replicas", tags=["deployments"], responses=problems(404, 409))
def scale(query_id: str, body: ReplicasBody, service: ServiceOf) -> QueryView:
    """Let a query have so many replicas as far as there is room; they follow no rate then."""
    return _view(service.parts.store.set_replicas(query_id, body.replicas), service)


@router.delete(f"{QUERY}/replicas", tags=["deployments"], responses=problems(404))
def follow(query_id: str, service: ServiceOf) -> QueryView:
    """Let the replicas of a query follow the rate of its requests; again changes nothing."""
    return _view(service.parts.store.set_replicas(query_id, None), service)


@router.post(
    f"{QUERY}/requests",
    tags=["deployments"],
    responses=problems(404, 409, 429, 502),
)
async def send(
    query_id: str, body: RequestBody, service: ServiceOf, request: Request
) -> RequestReply:
    """Send one request to the deployed plan of a query."""
    payload, terms = payload_from_json(body.input), terms_of(body, arrival_in(request.scope))
    work = service.requests.send(query_id, payload, body.example, terms)
    answered = await while_connected(request.receive, work)
    result, infrastructure = answered.result, service.parts.infrastructure
    reply = reply_of(result, answered.plan_id, infrastructure, output_json(result.output))
    scored = {"score": answered.score, "planned_on": answered.planned_on}
    return reply.model_copy(update=scored)
