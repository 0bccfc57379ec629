"""Pools: the mix of machine types that a query is served by, and which one it should be."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from circinus.api.http.bodies import ReadOnce
from circinus.api.http.description import problems
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.service import ServiceOf
from circinus.api.schemas.pools import (
    ChoosePoolBody,
    ChooseQueryPoolBody,
    PoolBody,
    PoolChoiceView,
    PoolView,
    QueryPoolView,
)
from circinus.api.schemas.progress import QueryView
from circinus.api.use_cases.query_pools import apply_pool, drop_pool, pool_now, require_choosable
from circinus.api.use_cases.views import query_view

router = APIRouter(prefix="/v1", route_class=ReadOnce, tags=["pools"])
_POOL = f"{QUERY}/pool"


@router.get(_POOL, responses=problems(404))
def pool(query_id: str, service: ServiceOf) -> PoolView:
    """Return the pool of a query, whether it has it, and what is missing if not."""
    return pool_now(service.parts, service.parts.store.query(query_id))


@router.put(_POOL, responses=problems(404, 409))
def put(query_id: str, body: PoolBody, service: ServiceOf) -> PoolView:
    """Let a query be served by a mix of machine types; refused if that does not fit now.

    The schedule follows within a moment, and new instances serve before old ones end.
    """
    done = apply_pool(service.parts, query_id, body.slices, follows=body.follow)
    return pool_now(service.parts, done)


@router.post("/pools:choose", responses=problems())
async def choose(body: ChoosePoolBody, service: ServiceOf) -> PoolChoiceView:
    """Choose which instances to rent by measured latencies; nothing is changed."""
    await asyncio.to_thread(require_choosable, body)
    return await service.pools.choose(body)


@router.post(f"{_POOL}:choose", responses=problems(404, 409))
async def choose_for(
    query_id: str, body: ChooseQueryPoolBody, service: ServiceOf
) -> QueryPoolView:
    """Choose the mix of machine types for a query, by what its requests were; nothing changes."""
    return await service.choose_pool(query_id, body)


@router.delete(_POOL, responses=problems(404))
def drop(query_id: str, service: ServiceOf) -> QueryView:
    """Let a query be served by its plan's own replicas; without a pool nothing changes."""
    record = drop_pool(service.parts, query_id)
    return query_view(record, service.parts.infrastructure, service.schedule())
