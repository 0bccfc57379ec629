"""The way of a request to a route: as one to a deployment, but that one of its units answers."""

from __future__ import annotations

from pydantic import JsonValue
from starlette.types import ASGIApp

from circinus.api.http.bodies import ROUTE_REQUESTS
from circinus.api.http.data_plane import DataPlane
from circinus.api.keeper.routes import ServedRoutes
from circinus.api.schemas.deployments import RequestReply
from circinus.deploy.runtime.dispatcher import RequestResult


class RoutePlane(DataPlane):
    """Answers requests to routes of this process; lets all others through."""

    paths = ROUTE_REQUESTS

    def __init__(self, app: ASGIApp, routes: ServedRoutes, body_limit_bytes: int) -> None:
        super().__init__(app, routes, routes.like.infrastructure, body_limit_bytes)
        self._routes = routes

    def reply(
        self, asked: str, plan_id: str, result: RequestResult, output: JsonValue
    ) -> RequestReply:
        """Return an answer as clients get it: the tier is the unit that answered."""
        emulated = self._routes.emulates(asked)
        return RequestReply.of(result, output=output, plan_id=None, emulated=emulated)
