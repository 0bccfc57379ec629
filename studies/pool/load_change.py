"""Does what was tried at an earlier load help at a new one (Ribbon, section 5.5, figure 16)?

Both loads are simulated on one stream of requests, first come, first served, the types in order:
the published tables are of one load each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from circinus.scheduler.dispatch.baselines import FcfsDispatch
from circinus.scheduler.dispatch.policy import Fleet
from circinus.scheduler.pool.pools import Pool, PoolSpace
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.ribbon_reuse import carried_over
from circinus.scheduler.pool.search import CheapestInTime, Trials, search
from circinus.scheduler.simulation.engine import Scenario, simulate
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.workload import (
    BatchMix,
    arrival_times,
    poisson_gaps,
    ribbon_batches,
)
from circinus.studies.pool.lookups import PoolLookup


class LoadChangeRow(NamedTuple):
    """Evaluations of Ribbon up to the optimum; None: it was pruned."""

    seed: int
    earlier: int | None  # at the earlier load
    scratch: int | None  # at the new one, without what is known; with the settled pool again
    reused: int | None  # with it, the settled pool's new trial among them
    violating_scratch: int  # of the evaluations up to there
    violating_reused: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChange:
    """Two loads on the pools of one space."""

    earlier: PoolLookup
    new: PoolLookup  # with another optimum, which is not that of the earlier one
    prunes_below: float | None = 0.01

    def rows(self, seeds: Sequence[int]) -> Iterator[LoadChangeRow]:
        """Give a row for each seed."""
        for seed in seeds:
            goal = self._goal(self.earlier)
            known = self._until_optimum(self.earlier, seed, ())
            settled = self.earlier.optimum
            again = self.new.measure(settled)
            reused = self._until_optimum(
                self.new, seed + 1, carried_over(self._goal(self.new), known, again)
            )
            scratch = self._until_optimum(self.new, seed + 1, (again,))
            yield LoadChangeRow(
                seed=seed,
                earlier=_count(self.earlier, known),
                scratch=_count(self.new, [again, *scratch]),
                reused=_count(self.new, [again, *reused]),
                violating_scratch=1 + sum(not goal.feasible(trial) for trial in scratch),
                violating_reused=1 + sum(not goal.feasible(trial) for trial in reused),
            )

    def _goal(self, lookup: PoolLookup) -> CheapestInTime:
        return CheapestInTime(
            space=lookup.space, in_time=lookup.in_time, prunes_below=self.prunes_below
        )

    def _until_optimum(self, lookup: PoolLookup, seed: int, known: Trials) -> Trials:
        most = len(lookup.space.pools)
        trials = search(self._goal(lookup), Ribbon(seed=seed), lookup.measure, most, known)
        count = _count(lookup, trials)
        return trials if count is None else trials[:count]


def _count(lookup: PoolLookup, trials: Trials) -> int | None:
    pools = [trial.pool for trial in trials]
    return pools.index(lookup.optimum) + 1 if lookup.optimum in pools else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedLoad:
    """Requests of one seed, at any rate the same."""

    table: LatencyTable  # of the types of the space, in order
    qos_s: float  # a request should be answered within, `> 0`
    mix: BatchMix = ribbon_batches
    requests: int = 5000
    seed: int = 0

    def lookup(self, space: PoolSpace, rate_rps: float) -> PoolLookup:
        """Give what every pool does at a rate of Poisson arrivals; InvalidInput: none does."""
        sizes, gaps = map(np.random.default_rng, np.random.SeedSequence(self.seed).spawn(2))
        rows = self.table.rows(self.mix(self.requests, sizes))
        arrived_s = arrival_times(poisson_gaps(self.requests, gaps), rate_rps)
        service_s, pools = self.table.mean_s[rows], [tuple(pool) for pool in space.pools.tolist()]

        def share(pool: Pool) -> float:
            kind = np.repeat(np.arange(len(pool)), pool)
            scenario = Scenario(
                arrived_s=arrived_s,
                size=self.table.batches[rows].astype(np.float64),
                service_s=service_s,
                predicted_s=service_s,
                qos_s=self.qos_s,
                fleet=Fleet(kind, np.ones(len(kind)), np.ones(len(kind))),
            )
            return simulate(scenario, FcfsDispatch()).in_time

        return PoolLookup(
            model=f"{self.table.model} at {rate_rps:.0f} 1/s",
            space=space,
            shares={pool: share(pool) for pool in pools},
        )
