"""The guarded port for clients. Requests to deployments are answered in this process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

import uvicorn
import uvloop
from pydantic import JsonValue
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from circinus.api.bootstrap.planning import installed_version
from circinus.api.event_log import start_event_log
from circinus.api.http.authentication import Authentication
from circinus.api.http.bodies import JSON
from circinus.api.http.data_plane import DataPlane
from circinus.api.http.errors import answer_of
from circinus.api.http.loop_lag import LoopLag
from circinus.api.schemas.base import HealthView
from circinus.api.schemas.deployments import RequestReply
from circinus.api.serving.bounded import EdgeLimits, bounded
from circinus.api.serving.routes import ServedRoutes
from circinus.api.settings import Settings, allow_descriptors
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.runtime.walk import RequestResult
from circinus.deploy.workers.process import PRIVATE
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import CircinusError, InvalidInput

_GRACE_S = 5  # seconds, that answers on their way have when it ends
_BACKLOG = 2048
_IDLE_S = 75  # of an idle connection: longer than of clients and balancers, so these close it


class RoutePlane(DataPlane):
    """Answers requests to routes: as those to deployments, but that one of its units answers."""

    def __init__(self, app: ASGIApp, routes: ServedRoutes, body_limit_bytes: int) -> None:
        super().__init__(app, routes, routes.like.infrastructure, body_limit_bytes)
        self._routes = routes

    def reply(
        self, name: str, plan_id: str, result: RequestResult, output: JsonValue
    ) -> RequestReply:
        """Return an answer as clients get it: the tier is the unit that answered."""
        emulated = self._routes.emulates(name)
        return RequestReply.of(result, output=output, plan_id=None, emulated=emulated)


class ExactRoute(Route):
    """A route of some methods alone: other methods at its path are for the router's default."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether path and method are those of the route."""
        match, child_scope = super().matches(scope)
        return (match, child_scope) if match is Match.FULL else (Match.NONE, {})


@dataclass(frozen=True, slots=True)
class FunctionEndpoint:
    """An ASGI application around one function, whose errors become problem documents."""

    answer: Callable[[Scope, Receive], Awaitable[Response]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, see ASGI."""
        try:
            response = await self.answer(scope, receive)
        except CircinusError as error:
            response = answer_of(error, scope)
        await response(scope, receive, send)


def server_before(
    others: ASGIApp,
    orchestrator: Orchestrator,
    settings: Settings,
    routes: Sequence[BaseRoute] = (),
    streams: Callable[[], int] = lambda: 0,  # connections that are counted by `others`
) -> uvicorn.Server:
    """Return a server of requests to deployments, and of `routes`; all else is for `others`.

    Called within its event loop, whose lag counts as waiting from now on.
    """
    limit, lag = settings.body_limit_bytes, LoopLag(SystemClock())
    lag.start()
    bounds = EdgeLimits(connections=settings.connection_limit, apart=streams)
    plane = DataPlane(others, orchestrator, orchestrator.infrastructure, limit)
    health = ExactRoute("/healthz", FunctionEndpoint(_health), methods=["GET"])
    requests = ExactRoute("/v1/queries/{id}/requests", plane, methods=["POST"])
    router = Router([requests, *routes, health], redirect_slashes=False, default=others)
    return uvicorn.Server(
        uvicorn.Config(
            Authentication(router, lag=lag, **settings.guarded_by),
            http=bounded(bounds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )


def route_requests(others: ASGIApp, routes: ServedRoutes, body_limit_bytes: int) -> BaseRoute:
    """Return where requests to routes of this process are answered, or else by `others`."""
    plane = RoutePlane(others, routes, body_limit_bytes)
    return ExactRoute("/v1/routes/{id}/requests", plane, methods=["POST"])


async def _health(_scope: Scope, _receive: Receive) -> Response:
    """Answer that this process is there, whatever the service's does: deployments need no more."""
    view = HealthView(version=installed_version("circinus"))
    return Response(view.model_dump_json(), media_type=JSON)


def run_serving(work: Coroutine[None, None, None], settings: Settings) -> None:
    """Run what serves clients on an event loop of its own, with the rights and log it needs."""
    os.umask(PRIVATE)
    allow_descriptors()
    start_event_log(settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


def listening_at(host: str, port: int) -> socket.socket:
    """Return a socket for clients; InvalidInput if the address is not free."""
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=kind, backlog=_BACKLOG)
    except OSError as error:
        number = None if isinstance(error, socket.gaierror) else error.errno
        why = error.strerror if number is None else os.strerror(number)
        rule = f"must be an address that is free ({why})"
        raise InvalidInput.of("host and port", rule, f"{host}:{port}") from error
