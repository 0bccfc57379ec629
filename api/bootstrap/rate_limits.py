"""The rate limits of endpoints, shared by all on a database: who plans and who serves."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from circinus.api.store.engine import connect
from circinus.api.store.leases import StoreLeases
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.endpoints import RateLimits
from circinus.pipelines.infrastructure import Infrastructure
from circinus.profiler.leases import MemoryLeases
from circinus.profiler.rate_gate import RateAdmission, RateGate


def limits_of(infrastructure: Infrastructure) -> dict[str, RateLimits]:
    """Return the limits of the endpoints that have any, by name."""
    endpoints = infrastructure.endpoints
    return {each.name: each.limits for each in endpoints if each.limits != RateLimits()}


@contextmanager
def rate_admission(
    infrastructure: Infrastructure, database_url: str | None, role: str
) -> Iterator[RateAdmission]:
    """Return what keeps within the limits of endpoints, with all others on a migrated database.

    Without one it is for this process alone. `role` says what the process does, in the names of
    those that hold leases.
    """
    clock, limits = SystemClock(), limits_of(infrastructure)
    engine = connect(database_url) if database_url and limits else None
    try:
        yield RateAdmission(
            limits=limits,
            leases=MemoryLeases(clock) if engine is None else StoreLeases(engine),
            clock=clock,
            holder=f"{role} {socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}",
        )
    finally:
        if engine is not None:
            engine.dispose()


@contextmanager
def rate_gate(infrastructure: Infrastructure, database_url: str | None) -> Iterator[RateGate]:
    """Return the same for who calls from threads; what it has of limits is given back at the end.

    It is told when to stop by `stop_when`; money comes behind it, see `all_of`.
    """
    with (
        rate_admission(infrastructure, database_url, "planning") as admission,
        RateGate(admission) as gate,
    ):
        yield gate
