"""Queries on chosen mixes of machine types: asked for, looked at, dropped.

What does not fit now is refused, and nothing is changed. What fitted and has been lost since is
lacking: it is placed again as soon as there is room (`scheduler.rolling.holding`).
"""

from __future__ import annotations

from circinus.api.phases import QueryPhase
from circinus.api.schemas.pooling import PoolView
from circinus.api.store.records import Conflict, StoredQuery
from circinus.api.use_cases.capacity import with_machines
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.scheduling import LiveProblem, LiveQuery
from circinus.api.use_cases.views import pool_view
from circinus.pipelines import checks
from circinus.scheduler.problem import Assignment
from circinus.scheduler.rolling.chosen import ChosenPool, Slices, require_pool
from circinus.scheduler.rolling.pooling import pooled

_SERVED = frozenset({QueryPhase.DEPLOYING, QueryPhase.SERVING})


def apply_pool(
    parts: ServiceParts, query_id: str, slices: Slices, *, follows: bool = False, why: str = ""
) -> StoredQuery:
    """Let a query be served by a pool; the schedule follows within a moment.

    `follows`: it is chosen anew when requests change, see `api.control.pool_follower`.

    NotFound if there is no such query; InvalidInput unless the pool names types of shared tiers in
    counts that can be; Conflict, which says what is missing, if the query is not served or the
    pool does not fit on what others leave. Nothing was changed then.
    """
    record = parts.store.query(query_id)
    require_pool(ChosenPool(slices=slices), parts.infrastructure.tiers)
    rule = "must be of one tier to follow the requests"
    checks.require(not follows or len(slices) == 1, "pool", rule, ", ".join(slices))
    require_served(record)
    # Counts of 0 say nothing.
    wanted = {t: {kind: n for kind, n in counts.items() if n} for t, counts in slices.items()}
    pool = LiveQuery.of(parts.store, query_id, parts.infrastructure).pool(wanted)
    now = LiveProblem.of(parts).plain
    candidate = next((c for c in now.candidates if c.query_id == query_id), None)
    if candidate is None or query_id not in now.running:
        raise Conflict("query", "must be in the schedule", query_id)
    found = pooled(now, tuple(now.running.values()), candidate, pool)
    if not isinstance(found, Assignment):
        raise Conflict("pool", f"must fit: {found.why}", pool.words())
    at = parts.clock.timestamp()
    return parts.store.set_pool(query_id, wanted, at=at, follows=follows, why=why)


def require_served(record: StoredQuery) -> None:
    """Raise Conflict unless a query is being served."""
    if record.phase not in _SERVED:
        raise Conflict("phase", "must be deploying or serving", record.phase)


def pool_now(parts: ServiceParts, record: StoredQuery) -> PoolView:
    """Return the pool of a query as the schedule in force has it; NotFound if it has none."""
    in_force = parts.store.schedules.read()[1]
    return pool_view(record, in_force, with_machines(parts.infrastructure, in_force.machines))


def drop_pool(parts: ServiceParts, query_id: str) -> StoredQuery:
    """Let a query be served by its plan's own replicas; without a pool nothing changes.

    NotFound if there is no such query.
    """
    parts.store.drop_pool(query_id, at=parts.clock.timestamp(), why="as was asked for")
    return parts.store.query(query_id)
