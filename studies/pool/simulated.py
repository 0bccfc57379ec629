"""Tables of what every pool does, simulated: first come, first served, the types in order.

Published tables are of one load each, and there are two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from circinus.pipelines.model.profile import IntArray
from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.pool.ribbon_space import MeasuredTypes, most_useful
from circinus.scheduler.pool.ribbon_trial import EarlyEnd
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.trying import TrialLoad
from circinus.scheduler.simulation.workload import arrival_times
from circinus.studies.pool.lookups import PoolLookup, PoolProfile

MOST_OF_A_TYPE = 20
"""Instances that are looked at where their largest count is derived."""


def _ribbon() -> Load:
    return load_of("ribbon")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """Requests of one seed, at any rate the same."""

    table: LatencyTable  # of the types of the space, in order
    qos_s: float  # a request should be answered within, `> 0`
    load: Load = field(default_factory=_ribbon)
    requests: int = 5000
    seed: int = 0

    def lookup(
        self, space: PoolSpace, rate_rps: float, ends: EarlyEnd | None = None
    ) -> PoolLookup:
        """Return what every pool does at a rate, trials ending early by a rule; None: none does.

        InvalidInput if no pool has enough in time.
        """
        serve, shares, early = self.served(rate_rps), {}, {}
        for counts in space.pools.tolist():
            run = serve(pool := tuple(counts))
            shares[pool] = run.in_time
            if ends is not None:
                trial, count = ends.trial(pool, run.waiting, run.each_in_time)
                if trial.ended_early:
                    early[pool] = (trial, count / self.requests)
        return PoolLookup(
            model=f"{self.table.model} at {rate_rps:.0f} 1/s",
            space=space,
            shares=shares,
            profile=PoolProfile(table=self.table, load=self._trial(rate_rps)),
            early=early,
        )

    def of_useful(self, prices: Sequence[float]) -> SimulatedLoad:
        """Return the load on the types that are worth a place in a pool (Ribbon, 3.3)."""
        rows = self._rows()
        share = np.bincount(rows, minlength=len(self.table.batches)) / len(rows)
        types = MeasuredTypes(share=share, latency_s=self.table.mean_s, prices=np.array(prices))
        kinds = [self.table.kinds[k] for k in types.useful(self.qos_s)]
        return replace(self, table=self.table.of_kinds(kinds))

    def most(self, rate_rps: float) -> Pool:
        """Return the count of each type, alone, on which more do not improve, at most 20."""
        serve = self.served(rate_rps)
        return most_useful(lambda pool: serve(pool).in_time, len(self.table.kinds), MOST_OF_A_TYPE)

    def served(self, rate_rps: float) -> Callable[[Pool], SimulationRun]:
        """Return what serves the requests at a rate by a pool."""
        gaps, rows = self._rng(1), self._rows()
        arrived_s = arrival_times(self.load.gaps(self.requests, gaps), rate_rps)
        service_s = self.table.mean_s[rows]
        size = self.table.batches[rows].astype(np.float64)

        def serve(pool: Pool) -> SimulationRun:
            kind = np.repeat(np.arange(len(pool)), pool)
            scenario = Scenario(
                arrived_s=arrived_s,
                size=size,
                service_s=service_s,
                predicted_s=service_s,
                qos_s=self.qos_s,
                fleet=Fleet(kind, np.ones(len(kind)), np.ones(len(kind))),
            )
            return simulate(scenario, FcfsDispatch())

        return serve

    def _rows(self) -> IntArray:  # (N,)
        return self.table.rows(self.load.sizes(self.requests, self._rng(0)))

    def _rng(self, purpose: int) -> np.random.Generator:
        """Return the generator of sizes, 0, or gaps, 1."""
        return np.random.default_rng(np.random.SeedSequence(self.seed).spawn(2)[purpose])

    def _trial(self, rate_rps: float) -> TrialLoad:
        return TrialLoad(
            mix=self.load.sizes, qos_s=self.qos_s, rate_rps=rate_rps, requests=self.requests
        )
