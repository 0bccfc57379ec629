"""What gives leave to call while serving: the limits of endpoints, shared by all processes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from circinus.api.query_file import read_infrastructure
from circinus.api.settings import Settings
from circinus.api.store.engine import connect
from circinus.api.store.leases import StoreLeases
from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.endpoints import RateLimits
from circinus.profiler.rate_gate import AsyncRateGate, RateAdmission


@asynccontextmanager
async def call_gate(settings: Settings) -> AsyncIterator[CallGate]:
    """Give what the calls of deployments ask for leave; what it has of limits is given back.

    InvalidInput if the infrastructure cannot be read.
    """
    endpoints = read_infrastructure(settings.infrastructure).endpoints
    limits = {each.name: each.limits for each in endpoints if each.limits != RateLimits()}
    if not limits:
        yield UnlimitedCalls()
        return
    engine = connect(settings.database_url)
    admission = RateAdmission(
        limits=limits,
        leases=StoreLeases(engine),
        clock=SystemClock(),
        holder=f"keeper {socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}",
    )
    try:
        async with AsyncRateGate(admission) as gate:
            yield gate
    finally:
        engine.dispose()
