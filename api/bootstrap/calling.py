"""What gives leave to call while serving: the limits of endpoints, shared by all processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from circinus.api.bootstrap.rate_limits import limits_of, rate_admission
from circinus.api.query_file import read_infrastructure
from circinus.api.settings import Settings
from circinus.deploy.runtime.calls import CallGate, UnlimitedCalls
from circinus.profiler.rate_gate import AsyncRateGate


@asynccontextmanager
async def call_gate(settings: Settings) -> AsyncIterator[CallGate]:
    """Return what the calls of deployments ask for leave; what it has of limits is given back.

    InvalidInput if the infrastructure cannot be read.
    """
    tiers = read_infrastructure(settings.infrastructure)
    if not limits_of(tiers):
        yield UnlimitedCalls()
        return
    with rate_admission(tiers, settings.database_url, "keeper") as admission:
        async with AsyncRateGate(admission) as gate:
            yield gate
