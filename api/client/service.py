"""Calls about the service itself: its schedule, routes, infrastructure and events."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter

from circinus.api.client.connection import Document, Repeat, body_of, path_part, query_path
from circinus.api.client.queries import CHOOSING_S, PAGE_SIZE, QueryCalls
from circinus.api.schemas.base import HealthView
from circinus.api.schemas.deployments import RequestBody, RequestReply
from circinus.api.schemas.events import EventPage
from circinus.api.schemas.planning import MethodView
from circinus.api.schemas.pools import ChoosePoolBody, PoolChoiceView
from circinus.api.schemas.routes import RouteInput, RouteList, RouteView
from circinus.api.schemas.schedule import PreviewBody, ScheduleView
from circinus.api.schemas.service import (
    EmulationBody,
    InfrastructureView,
    MachinesBody,
    PipelineList,
)
from circinus.api.schemas.violations import checked


class ServiceCalls(QueryCalls):
    """Requests about everything that queries share."""

    async def health(self) -> HealthView:
        """Return the version of a service that is there, if not ready."""
        return await self._get(HealthView, "/healthz", repeat=Repeat.NEVER)

    async def ready(self) -> HealthView:
        """Return the version of a service that can take queries; Unavailable with the reason."""
        return await self._get(HealthView, "/readyz", repeat=Repeat.NEVER)

    async def metrics(self) -> str:
        """Return the state of the queues of all deployments, in the text format of Prometheus."""
        return await self.call("GET", "/metrics", bytes.decode)

    async def schedule(self, *, observed: bool = True) -> ScheduleView:
        """Return the schedule; `observed`: with the latest requests of each query."""
        return await self._get(ScheduleView, "/v1/schedule", observed="true" if observed else None)

    async def preview(self, body: PreviewBody | Document) -> ScheduleView:
        """Return the schedule that a change would lead to; nothing is changed."""
        changes = body_of(PreviewBody, body)
        return await self._send("POST", ScheduleView, "/v1/schedule:preview", changes)

    async def problem(self) -> dict[str, object]:
        """Return the scheduling problem as it stands, in the form that studies read."""
        read = TypeAdapter(dict[str, object]).validate_json
        return await self.call("GET", "/v1/schedule/problem", read)

    async def choose_pool(self, body: ChoosePoolBody | Document) -> PoolChoiceView:
        """Return which instances to rent by measured latencies; nothing is changed."""
        limits = body_of(ChoosePoolBody, body)
        return await self._send(
            "POST", PoolChoiceView, "/v1/pools:choose", limits, timeout=CHOOSING_S
        )

    async def routes(self) -> RouteList:
        """Return the routes over deployment units, and how they fare."""
        return await self._get(RouteList, "/v1/routes")

    async def route(self, name: str) -> RouteView:
        """Return a route, and how it fares."""
        return await self._get(RouteView, _route_path(name))

    async def set_route(self, body: RouteInput | Document) -> RouteView:
        """Return a route that is served from now on, new or changed."""
        route = body_of(RouteInput, body)
        return await self._send("PUT", RouteView, _route_path(route.name), route)

    async def drop_route(self, name: str) -> None:
        """End a route and its workers."""
        await self.call("DELETE", _route_path(name), bytes, repeat=Repeat.UNSENT)

    async def ask_route(self, name: str, body: RequestBody | Document) -> RequestReply:
        """Return the answer of one of a route's units. It is not sent again by itself."""
        return await self._request(f"{_route_path(name)}/requests", body)

    async def pipelines(self) -> PipelineList:
        """Return the registered pipelines."""
        return await self._get(PipelineList, "/v1/pipelines")

    async def method(self) -> MethodView:
        """Return how the service plans, schedules and dispatches."""
        return await self._get(MethodView, "/v1/method")

    async def infrastructure(self) -> InfrastructureView:
        """Return the infrastructure that the service plans for."""
        return await self._get(InfrastructureView, "/v1/infrastructure")

    async def set_machines(self, machines: Mapping[str, int | None]) -> InfrastructureView:
        """Return the infrastructure with other numbers of machines; None: as stated."""
        body = checked(MachinesBody, {"machines": dict(machines)})
        return await self._send("PATCH", InfrastructureView, "/v1/infrastructure", body)

    async def emulation(self) -> InfrastructureView:
        """Return the infrastructure with the links that are emulated."""
        return await self._get(InfrastructureView, "/v1/emulation")

    async def set_emulation(self, body: EmulationBody | Document) -> InfrastructureView:
        """Return the infrastructure with the links that are emulated from now on."""
        links = body_of(EmulationBody, body)
        return await self._send("PATCH", InfrastructureView, "/v1/emulation", links)

    async def event_page(
        self, query_id: str | None = None, *, after: int | None = None, limit: int = PAGE_SIZE
    ) -> EventPage:
        """Return events after a serial number, of a query or of everything, the oldest first."""
        start = None if after is None else str(after)
        return await self._get(EventPage, event_path(query_id), after=start, limit=str(limit))


def event_path(query_id: str | None) -> str:
    """Return the path of events: of a query, or None: of everything."""
    return "/v1/events" if query_id is None else query_path(query_id, "/events")


def _route_path(name: str) -> str:
    return f"/v1/routes/{path_part(name)}"
