"""Tables of what every pool does, simulated: first come, first served, the types in order.

Published tables are of one load each, and there are two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.pool.ribbon_space import most_useful
from circinus.scheduler.simulation.engine import Scenario, simulate
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

    def lookup(self, space: PoolSpace, rate_rps: float) -> PoolLookup:
        """Give what every pool does at a rate; InvalidInput: none has enough in time."""
        share = self.shares(rate_rps)
        return PoolLookup(
            model=f"{self.table.model} at {rate_rps:.0f} 1/s",
            space=space,
            shares={tuple(pool): share(tuple(pool)) for pool in space.pools.tolist()},
            profile=PoolProfile(table=self.table, load=self._trial(rate_rps)),
        )

    def most(self, rate_rps: float) -> Pool:
        """Give the count of each type, alone, on which more do not improve, at most 20."""
        return most_useful(self.shares(rate_rps), len(self.table.kinds), MOST_OF_A_TYPE)

    def _trial(self, rate_rps: float) -> TrialLoad:
        return TrialLoad(
            mix=self.load.sizes, qos_s=self.qos_s, rate_rps=rate_rps, requests=self.requests
        )

    def shares(self, rate_rps: float) -> Callable[[Pool], float]:
        """Give what tells the share of the requests that a pool has in time at a rate."""
        sizes, gaps = map(np.random.default_rng, np.random.SeedSequence(self.seed).spawn(2))
        rows = self.table.rows(self.load.sizes(self.requests, sizes))
        arrived_s = arrival_times(self.load.gaps(self.requests, gaps), rate_rps)
        service_s = self.table.mean_s[rows]
        size = self.table.batches[rows].astype(np.float64)

        def share(pool: Pool) -> float:
            kind = np.repeat(np.arange(len(pool)), pool)
            scenario = Scenario(
                arrived_s=arrived_s,
                size=size,
                service_s=service_s,
                predicted_s=service_s,
                qos_s=self.qos_s,
                fleet=Fleet(kind, np.ones(len(kind)), np.ones(len(kind))),
            )
            return simulate(scenario, FcfsDispatch()).in_time

        return share
