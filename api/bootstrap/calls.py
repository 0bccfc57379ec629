"""The rate limits of endpoints, shared by all on a database: who plans and who serves.

What planning a query may spend on calls: one ledger and one gate for all that call for it.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from circinus.api.store.calls import StoreLeases
from circinus.api.store.engine import connect
from circinus.api.use_cases.queries import require_affordable
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.execution.calling import EndpointCaller, PermitGate, all_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.endpoints import RateLimits
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query
from circinus.profiler.leases import MemoryLeases
from circinus.profiler.rate_gate import RateAdmission, RateGate
from circinus.profiler.spending import Ledger, MemoryLedger, SpendingGate

if TYPE_CHECKING:
    from circinus.planner.search.bill import CallsCost


def limits_of(infrastructure: Infrastructure) -> dict[str, RateLimits]:
    """Return the limits of the endpoints that have any, by name."""
    endpoints = infrastructure.endpoints
    return {each.name: each.limits for each in endpoints if each.limits != RateLimits()}


@contextmanager
def rate_admission(
    infrastructure: Infrastructure, database_url: str | None, role: str
) -> Iterator[RateAdmission]:
    """Return the limiter of endpoint calls, shared with all processes on a migrated database.

    Without a database it serves this process alone. `role` names the process's task in the names
    of lease holders.
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
    """Return the same for callers in threads; it returns its shares of the limits at the end.

    `stop_when` ends it; the check of money follows it, see `all_of`.
    """
    with (
        rate_admission(infrastructure, database_url, "planning") as admission,
        RateGate(admission) as gate,
    ):
        yield gate


def spending_of(
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    ledger: Ledger | None = None,
) -> SpendingGate:
    """Return the gate that permits calls while a query is planned; None: without a ledger.

    InvalidInput as `require_affordable`.
    """
    # scipy's parts take long to import: the service's process spares them
    from circinus.planner.search.budget import Budget

    require_affordable(query, infrastructure, pipeline)
    budget = Budget.of(query.limits, infrastructure)
    return SpendingGate(
        ledger or MemoryLedger(),
        query.limits.profiling_usd,
        price_usd_per_hour=budget.price_usd_per_hour,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningGate:
    """The gate that permits calls while a query is planned."""

    spending: SpendingGate
    rate: RateGate | None = None  # what endpoints let through; None: nothing limits them

    @property
    def permits(self) -> PermitGate:
        """Both: money is not reserved while an endpoint's limits are waited for."""
        return self.spending if self.rate is None else all_of([self.rate, self.spending])

    def stop_when(self, over: Callable[[], bool]) -> None:
        """Raise Stopped, in place of a permit, once `over` returns true."""
        self.spending.stop_when(over)
        if self.rate is not None:
            self.rate.stop_when(over)


@contextmanager
def planning_gate(
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    ledger: Ledger | None = None,
    database_url: str | None = None,
) -> Iterator[PlanningGate]:
    """Return the gate of a query's planning; its limits are those of all on a migrated database.

    Without one they are of this process alone. InvalidInput as `require_affordable`.
    """
    spending = spending_of(query, infrastructure, pipeline, ledger)
    with rate_gate(infrastructure, database_url) as rate:
        yield PlanningGate(spending=spending, rate=rate)


def calls_of(spending: SpendingGate) -> tuple[CallsCost, ...]:
    """Return what calls cost until now, as bills have it."""
    from circinus.planner.search.bill import CallsCost

    return tuple(
        CallsCost(operator=operator, open_usd=spent.open_usd, **spent.used._asdict())
        for operator, spent in spending.spent().items()
    )


def calling_here(infrastructure: Infrastructure, gate: PermitGate, clock: Clock) -> EndpointCaller:
    """Return what makes calls in this process."""
    return EndpointCaller(
        endpoints={endpoint.name: endpoint for endpoint in infrastructure.endpoints},
        gate=gate,
        clock=clock,
        rng=np.random.Generator(np.random.PCG64()),  # of waits: no two processes shall wait alike
    )


def calls_endpoints(pipeline: Pipeline) -> bool:
    """Return whether operators of a pipeline may call; its judge calls in this process."""
    return any(operator.spec.calls for operator in pipeline.operators)
