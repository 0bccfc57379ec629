"""What planning a query may spend on calls: one ledger and one gate for all that call for it."""

from __future__ import annotations

import numpy as np

from circinus.api.use_cases.affordable import require_affordable
from circinus.pipelines.calling import Caller, Gate
from circinus.pipelines.clock import Clock
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.query import Query
from circinus.profiler.spending import Ledger, MemoryLedger, SpendingGate


def spending_of(
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    ledger: Ledger | None = None,
) -> SpendingGate:
    """Give what leave to call is asked of while a query is planned; None: nothing is kept.

    InvalidInput as `require_affordable`.
    """
    # scipy's parts take long to import: the service's process spares them
    from circinus.planner.search.bill import Budget

    require_affordable(query, infrastructure, pipeline)
    budget = Budget.of(query.limits, infrastructure)
    return SpendingGate(
        ledger or MemoryLedger(),
        query.limits.profiling_usd,
        price_usd_per_hour=budget.price_usd_per_hour,
    )


def calling_here(infrastructure: Infrastructure, gate: Gate, clock: Clock) -> Caller:
    """Give what makes calls in this process."""
    return Caller(
        endpoints={endpoint.name: endpoint for endpoint in infrastructure.endpoints},
        gate=gate,
        clock=clock,
        rng=np.random.Generator(np.random.PCG64()),  # of waits: no two processes shall wait alike
    )


def calls_endpoints(pipeline: Pipeline) -> bool:
    """Say whether operators of a pipeline may call endpoints; its judge calls in this process."""
    return any(operator.spec.calls for operator in pipeline.operators)
