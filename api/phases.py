"""The phases of a query's life, and which may follow which."""

from __future__ import annotations

from enum import StrEnum


class QueryPhase(StrEnum):
    """The state of a query. Every change is stored before its event is published."""

    QUEUED = "queued"
    PLANNING = "planning"
    INFEASIBLE = "infeasible"  # no configuration can meet the SLO
    EXHAUSTED = "exhausted"  # a limit ended planning before the first feasible plan
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING = "waiting"  # has plans, but no capacity yet
    DEPLOYING = "deploying"
    SERVING = "serving"
    RETIRED = "retired"  # was undeployed, or served as long as requested


CANCELLABLE = frozenset({QueryPhase.QUEUED, QueryPhase.PLANNING})
"""Phases in which planning can still be stopped."""

LIVE = frozenset({QueryPhase.WAITING, QueryPhase.DEPLOYING, QueryPhase.SERVING})
"""Phases in which a query competes for capacity."""

REPLANNABLE = LIVE | {QueryPhase.INFEASIBLE, QueryPhase.EXHAUSTED}
"""Phases in which a query was planned and may be planned anew."""

UNFINISHED = CANCELLABLE | LIVE
"""Phases that something will still happen to by itself."""

SETTLED = frozenset(QueryPhase) - UNFINISHED | {QueryPhase.SERVING}
"""Phases that a client waits for after submitting a query."""
