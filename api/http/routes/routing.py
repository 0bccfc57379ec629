"""Routes: endpoints that unlike deployment units serve."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from circinus.api.http.bodies import ReadOnce
from circinus.api.http.description import problems
from circinus.api.http.routes.paths import ROUTE
from circinus.api.http.routes.service import ServiceOf
from circinus.api.schemas.deployments import RequestBody, RequestReply
from circinus.api.schemas.routes import RouteInput, RouteList, RouteView
from circinus.api.use_cases.routes import every_route, put_route, remove_route, route_view
from circinus.pipelines.errors import InvalidInput, Unavailable

router = APIRouter(prefix="/v1", route_class=ReadOnce, tags=["routes"])


@router.get("/routes")
async def every(service: ServiceOf) -> RouteList:
    """List the routes and how they fare."""
    return await every_route(service.parts, service.deployer)


@router.put(ROUTE, responses=problems())
async def put(name: str, body: RouteInput, service: ServiceOf) -> RouteView:
    """Serve an endpoint by unlike deployment units, or update a served one to the body.

    Its workers follow within a moment: each unit's outputs are verified before it takes traffic.
    Where another number, demand or price is all that is new, workers go on as they are.
    """
    await asyncio.to_thread(put_route, service.parts, name, body)
    return await route_view(service.parts, service.deployer, name)


@router.get(ROUTE, responses=problems(404))
async def one(name: str, service: ServiceOf) -> RouteView:
    """Return a route: its mode and why, each unit's traffic weight, workers and what it lacks."""
    return await route_view(service.parts, service.deployer, name)


@router.delete(ROUTE, status_code=204, responses=problems(404))
async def remove(name: str, service: ServiceOf) -> None:
    """End a route and its workers."""
    await asyncio.to_thread(remove_route, service.parts, name)


@router.post(f"{ROUTE}/requests", responses=problems(404, 429, 502, 503))
async def request(name: str, body: RequestBody, service: ServiceOf) -> RequestReply:
    """Send an input to a route; the tier of the answer is the unit that served it."""
    await route_view(service.parts, service.deployer, name)  # NotFound if there is none
    if body.example is not None:
        rule = "must be left out: a route is asked with inputs"
        raise InvalidInput.of("example", rule, "an example")
    # the serving process of routes would have answered
    raise Unavailable(f"route {name} is not served yet", retry_after_s=1.0)
