"""Deployments: how they fare, ending them, and requests to them."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request

from api.payload_json import payload_from_json, payload_to_json
from api.routes.connection import while_connected
from api.routes.service import ServiceOf
from api.schemas import DeploymentView, QueryView, RequestBody, RequestReply
from api.services.requests import Answer, ExampleChoice, InferenceCall
from api.services.retirement import undeploy
from api.views import deployment_view, query_view
from pipelines.infrastructure import Infrastructure

router = APIRouter(prefix="/v1/queries/{query_id}", tags=["deployments"])


@router.get("/deployment")
async def deployment(query_id: str, service: ServiceOf) -> DeploymentView:
    """Give how the deployment of a query fares."""
    record = await asyncio.to_thread(service.parts.store.query, query_id)
    return deployment_view(record, service.status(query_id), service.parts.infrastructure)


@router.delete("/deployment")
def retire(query_id: str, service: ServiceOf) -> QueryView:
    """Retire a query and free its capacity; retiring it again changes nothing."""
    parts = service.parts
    record = undeploy(parts.store, query_id, clock=parts.clock)
    return query_view(record, parts.infrastructure, service.schedule())


@router.post("/requests")
async def send(
    query_id: str, body: RequestBody, service: ServiceOf, request: Request
) -> RequestReply:
    """Send one request to the deployed plan of a query."""
    answer = await while_connected(request, service.requests.send(query_id, _call(body)))
    return _reply(answer, service.parts.infrastructure)


def _call(body: RequestBody) -> InferenceCall:
    example = None
    if body.example is not None:
        chosen = body.example
        example = ExampleChoice(index=chosen.index, count=chosen.count, seed=chosen.seed)
    return InferenceCall(
        input=payload_from_json(body.input), example=example, timeout_s=body.timeout_s
    )


def _reply(answer: Answer, infrastructure: Infrastructure) -> RequestReply:
    result = answer.result
    emulated = any(infrastructure.tier(tier).emulated for tier in result.tier_s)
    return RequestReply(
        output=payload_to_json(result.output),
        latency_s=result.latency_s,
        operator_s=dict(result.operator_s),
        tier_s=dict(result.tier_s),
        transfer_s=result.transfer_s,
        plan_id=answer.plan_id,
        score=answer.score,
        emulated=emulated or any(link.emulated for link in infrastructure.links),
    )
