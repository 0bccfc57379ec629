"""The pool of a query: the mix of machine types that it is served by."""

from __future__ import annotations

from fastapi import APIRouter

from circinus.api.control.service import Service
from circinus.api.http.description import problems
from circinus.api.http.routes.paths import QUERY
from circinus.api.http.routes.read_once import ReadOnce
from circinus.api.http.routes.service import ServiceOf
from circinus.api.schemas.pooling import PoolBody, PoolView
from circinus.api.schemas.progress import QueryView
from circinus.api.store.records import StoredQuery
from circinus.api.use_cases.capacity import with_machines
from circinus.api.use_cases.pooling import apply_pool, drop_pool
from circinus.api.use_cases.views import pool_view, query_view

router = APIRouter(prefix="/v1", route_class=ReadOnce, tags=["pools"])
_POOL = f"{QUERY}/pool"


@router.get(_POOL, responses=problems(404))
def pool(query_id: str, service: ServiceOf) -> PoolView:
    """Give the pool of a query, whether it has it, and what is missing if not."""
    return _shown(service.parts.store.query(query_id), service)


@router.put(_POOL, responses=problems(404, 409))
def put(query_id: str, body: PoolBody, service: ServiceOf) -> PoolView:
    """Let a query be served by a mix of machine types; refused if that does not fit now.

    The schedule follows within a moment, and new instances serve before old ones end.
    """
    return _shown(apply_pool(service.parts, query_id, body.slices), service)


@router.delete(_POOL, responses=problems(404))
def drop(query_id: str, service: ServiceOf) -> QueryView:
    """Let a query be served by its plan's own replicas; without a pool nothing changes."""
    record = drop_pool(service.parts, query_id)
    return query_view(record, service.parts.infrastructure, service.schedule())


def _shown(record: StoredQuery, service: Service) -> PoolView:
    in_force = service.parts.store.schedules.read()[1]
    now = with_machines(service.parts.infrastructure, in_force.machines)
    return pool_view(record, in_force, now)
