"""The rate limits of endpoints for who calls from threads: those that plan, mostly."""

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


@contextmanager
def rate_gate(infrastructure: Infrastructure, database_url: str | None) -> Iterator[RateGate]:
    """Give what keeps within the limits of endpoints, with all others on a migrated database.

    Without one, for this process alone. What it has of limits is given back at the end. It is told
    when to stop by `stop_when`; money comes behind it, see `all_of`.
    """
    endpoints = infrastructure.endpoints
    limits = {each.name: each.limits for each in endpoints if each.limits != RateLimits()}
    clock = SystemClock()
    engine = connect(database_url) if database_url and limits else None
    admission = RateAdmission(
        limits=limits,
        leases=MemoryLeases(clock) if engine is None else StoreLeases(engine),
        clock=clock,
        holder=f"planning {socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}",
    )
    try:
        with RateGate(admission) as gate:
            yield gate
    finally:
        if engine is not None:
            engine.dispose()
