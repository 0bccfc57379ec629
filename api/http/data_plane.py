"""The way of a request with an input of its own: HTTP in, dispatch, HTTP out.

It runs where deployments run and uses nothing else: no database, no catalogue, no framework. What
it cannot answer (requests for examples, queries that do not serve) is passed to the service, which
has the reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from pydantic import JsonValue
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from circinus.api.http.authentication import arrival_in
from circinus.api.http.bodies import JSON, parsed, read_body, replayed, require_type
from circinus.api.http.errors import ClientGone, problem_of, unforeseen
from circinus.api.http.payload_json import payload_from_json, payload_to_json
from circinus.api.schemas.deployments import Late, RequestBody, RequestReply
from circinus.api.schemas.violations import checked
from circinus.api.use_cases.deployer import RequestServer
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.errors import TooManyRequests
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.payload import Payload, plain_json

_LONG = 2**14  # bytes of a body that others do not wait for in one go
_LARGE = 2**20  # bytes of an output that is written beside the loop
_BEFORE = b'{"output":'  # how every reply begins
_LATE_MARKS = (b"\\", b'"late"')  # a name may be written with escapes
# A refusal takes so long: a client that retries at once then takes less time of others.
_REFUSED_S = 0.05
T = TypeVar("T")


class DataPlane:
    """Answers requests to what serves in this process by the path's `id`; `app` has the rest."""

    def __init__(
        self,
        app: ASGIApp,
        deployments: RequestServer,
        infrastructure: Infrastructure,
        body_limit_bytes: int,
    ) -> None:
        self._app, self._deployments = app, deployments
        self._infrastructure, self._limit = infrastructure, body_limit_bytes

    def reply(
        self, name: str, plan_id: str, result: RequestResult, output: JsonValue
    ) -> RequestReply:
        """Return an answer as clients get it."""
        return reply_of(result, plan_id, self._infrastructure, output)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        served_id = scope["path_params"]["id"]
        if self._deployments.plan_serving(served_id) is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await self._answer(served_id, scope, receive, send)
        except CircinusError as error:
            if isinstance(error, TooManyRequests):
                await asyncio.sleep(_REFUSED_S)
            response = problem_of(error, scope["path"])
        except Exception as error:  # noqa: BLE001 - the edge of the process
            response = unforeseen(error, scope["path"])
        if response is not None:
            await response(scope, receive, send)

    async def _answer(
        self, query_id: str, scope: Scope, receive: Receive, send: Send
    ) -> Response | None:
        """Return the answer; None if the request was passed to the service."""
        headers, arrived = Headers(scope=scope), arrival_in(scope)
        body = await read_body(headers, receive, self._limit)
        require_type(headers, {JSON: ""})
        self._deployments.shed_infeasible(
            query_id, arrived, unless=lambda: any(mark in body for mark in _LATE_MARKS)
        )
        request = checked(RequestBody, parsed(body))
        if len(body) > _LONG:
            await asyncio.sleep(0)
        if request.example is not None:
            await self._app(scope, replayed(body, receive), send)
            return None
        payload, terms = payload_from_json(request.input), terms_of(request, arrived)
        if len(body) > _LONG:
            await asyncio.sleep(0)
        plan_id = self._deployments.plan_serving(query_id)
        if plan_id is None:
            reason = f"{query_id} has no deployment at this moment"
            raise Unavailable(reason, retry_after_s=1.0)
        work = self._deployments.request(query_id, payload, terms)
        result = await while_connected(receive, work)
        if len(result.encoded) > _LARGE:  # others do not wait until it is written
            return await asyncio.to_thread(self._written, query_id, plan_id, result)
        return self._written(query_id, plan_id, result)

    def _written(self, query_id: str, plan_id: str, result: RequestResult) -> Response:
        text = plain_json(result.encoded) if len(result.encoded) > _LARGE else None
        if text is None:
            reply = self.reply(query_id, plan_id, result, output_json(result.output))
            return Response(reply.model_dump_json(), media_type=JSON)
        # What is JSON already is not read: that would hold every other request for seconds.
        rest = self.reply(query_id, plan_id, result, None).model_dump_json().encode()
        return Response(_BEFORE + text + rest.removeprefix(_BEFORE + b"null"), media_type=JSON)


def terms_of(body: RequestBody, arrived: float) -> RequestTerms:
    """Return the terms of a request that arrived then, on the system's clock."""
    late = body.late is Late.SERVE
    return RequestTerms(timeout_s=body.timeout_s, serve_late=late, arrived=arrived)


def reply_of(
    result: RequestResult, plan_id: str, infrastructure: Infrastructure, output: JsonValue
) -> RequestReply:
    """Return the answer of a plan as clients get it, its output as JSON."""
    emulated = any(infrastructure.tier(tier).emulated for tier in result.tier_s)
    return RequestReply.of(
        result,
        output=output,
        plan_id=plan_id,
        emulated=emulated or any(link.emulated for link in infrastructure.links),
    )


def output_json(output: Payload) -> JsonValue:
    """Return an output as JSON has it; OperatorFailed if it has no form of it."""
    try:
        return payload_to_json(output)
    except InvalidInput as error:  # nothing is wrong with what the client sent
        raise OperatorFailed("output", str(error)) from error


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work; cancel it, ClientGone, when the client disconnects."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
    raise ClientGone("the client closed the connection before the answer")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
