"""Where clients come: a guarded port. Requests to deployments are answered in this process."""

from __future__ import annotations

import os
import socket

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from circinus.api.bootstrap.planning import installed_version
from circinus.api.http.authentication import Authentication
from circinus.api.http.bodies import JSON
from circinus.api.http.data_plane import DataPlane
from circinus.api.http.loop_lag import LoopLag
from circinus.api.keeper.bounded import EdgeLimits, bounded
from circinus.api.keeper.route_plane import RoutePlane
from circinus.api.keeper.routes import ServedRoutes
from circinus.api.schemas.base import HealthView
from circinus.api.settings import Settings
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.errors import InvalidInput

_GRACE_S = 5  # seconds, that answers on their way have when it ends
_BACKLOG = 2048
_IDLE_S = 75  # that a connection is kept: longer than clients and balancers do, so these close it


def server_before(
    others: ASGIApp,
    orchestrator: Orchestrator,
    settings: Settings,
    lag: LoopLag,
    limits: EdgeLimits,
    routes: ServedRoutes | None = None,
) -> uvicorn.Server:
    """Return a server that answers requests to deployments and routes, where there are some.

    All else is for `others` to answer.
    """
    limit = settings.body_limit_bytes
    if routes is not None:
        others = RoutePlane(others, routes, limit)
    plane = DataPlane(others, orchestrator, orchestrator.infrastructure, limit)
    return uvicorn.Server(
        uvicorn.Config(
            Authentication(_alive_before(plane), lag=lag, **settings.guarded_by),
            http=bounded(limits),
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


def _alive_before(app: ASGIApp) -> ASGIApp:
    """Say that this process is there, whatever the service's does: deployments need no more."""
    view = HealthView(version=installed_version("circinus")).model_dump_json()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and scope["path"] == "/healthz"
        if asked and scope["method"] in ("GET", "HEAD"):
            await Response(view, media_type=JSON)(scope, receive, send)
        else:
            await app(scope, receive, send)

    return answer


def listening_at(host: str, port: int) -> socket.socket:
    """Return a socket that clients may come to; InvalidInput if the address is not free."""
    try:
        kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=kind, backlog=_BACKLOG)
    except OSError as error:
        number = None if isinstance(error, socket.gaierror) else error.errno
        why = error.strerror if number is None else os.strerror(number)
        rule = f"must be an address that is free ({why})"
        raise InvalidInput.of("host and port", rule, f"{host}:{port}") from error
