"""Requests drawn of a seed, and the search of the allowable rate on them.

One rule: the draws depend on the seed alone, so that every policy, pool and rate meets the same
requests.

`SimulatedRates` measures pools so, and ends runs of those that are no better early. `OracleRates`
has the rates of a dispatcher that knows all requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policy import Fleet, FloatArray, IntArray, heterogeneity
from circinus.scheduler.pool.search import Pool, PoolTrial
from circinus.scheduler.pool.throughput_bounds import throughput_bound
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from circinus.scheduler.simulation.loads import Load, arrival_times
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.metrics import oracle_rate

IN_TIME = 0.99
"""Share of the requests that must be in time (Kairos, section 7: the QoS is a 99th percentile)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadDraws:
    """Requests of one seed."""

    seed: int
    table: LatencyTable
    qos_s: float
    gaps: FloatArray  # (N,), of mean 1
    rows: IntArray  # (N,), of the table that each request is charged
    service_s: FloatArray  # (N, K), drawn if sampled
    sampled: bool

    @property
    def share(self) -> FloatArray:  # (B,)
        """Return the share of each batch size."""
        counts = np.bincount(self.rows, minlength=len(self.table.batches))
        return np.asarray(counts / len(self.rows))

    def first(self, requests: int) -> LoadDraws:
        """Return the first so many requests, or all that there are."""
        of = slice(requests)
        return replace(self, gaps=self.gaps[of], rows=self.rows[of], service_s=self.service_s[of])

    def bound_rps(self, pool: Pool) -> float:
        """Return the bound on the allowable rate of a pool."""
        counts, mean_s = np.array(pool, dtype=np.int64), self.table.mean_s
        return throughput_bound(self.share, mean_s, counts, self.qos_s, in_time=IN_TIME).rate_rps

    def scenarios(self, pool: Pool, level: float | None) -> Callable[[float], Scenario]:
        """Return the scenario of a pool as a function of the rate.

        Policies plan with means, or with the quantile of that level if runs are noisy.
        """
        kind, counts = np.repeat(np.arange(len(pool)), pool), np.array(pool, dtype=np.int64)
        table = self.table
        latency_s = table.mean_s if level is None or not self.sampled else table.quantile_s(level)
        price = throughput_bound(self.share, latency_s, counts, self.qos_s).price
        coefficient = heterogeneity(table.mean_s[-1])
        scenario_of = partial(
            Scenario,
            size=self.table.batches[self.rows].astype(np.float64),
            service_s=self.service_s,
            predicted_s=latency_s[self.rows],
            qos_s=self.qos_s,
            fleet=Fleet(kind, coefficient[kind], price[kind]),
        )
        return lambda rate: scenario_of(arrived_s=arrival_times(self.gaps, rate))


def draw(
    table: LatencyTable, qos_s: float, load: Load, requests: int, seed: int, *, sampled: bool
) -> LoadDraws:
    """Return the requests of a seed: gaps, sizes, service times."""
    streams = np.random.SeedSequence([2023, seed]).spawn(3)
    arrivals, sizes, service = (np.random.Generator(np.random.PCG64(each)) for each in streams)
    rows = table.rows(load.sizes(requests, sizes))
    return LoadDraws(
        seed=seed,
        table=table,
        qos_s=qos_s,
        gaps=load.gaps(requests, arrivals),
        rows=rows,
        service_s=table.sampled_s(rows, service) if sampled else table.mean_s[rows],
        sampled=sampled,
    )


# deviates: rate-by-bisection
def allowable_rate(
    policy: CompiledPolicy,
    scenarios: Callable[[float], Scenario],
    highest_rps: float,
    *,
    tolerance: float = 0.002,
) -> tuple[float, SimulationRun | None]:
    """Return the largest rate with at least 99 % in time, by bisection, and its run.

    It begins at a bound and stops at a relative width of `tolerance`; 0 and None if not even a
    fiftieth of the bound is allowable.
    """
    low, high, best = 0.0, highest_rps, None
    rate = 0.75 * high
    while high - low > tolerance * high:
        scenario = scenarios(rate)
        most_late = (1.0 - IN_TIME) * len(scenario.arrived_s)
        run = simulate(scenario, policy, most_late=most_late + 1e-6)
        if run.in_time >= IN_TIME:
            low, best = rate, run
        else:
            high = rate
        rate = (low + high) / 2 if low > 0 else 0.75 * high
        if high < 0.02 * highest_rps:
            break
    return low, best


class PoolRates(Protocol):
    """Measures pools on one set of draws."""

    def rate(self, pool: Pool) -> float:
        """Return the allowable rate of a pool, per second; 0: it has none."""

    def in_time(self, pool: Pool, rate_rps: float) -> float:
        """Return the share in time at a rate; 0 where it is surely below the target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleRates:
    """The `PoolRates` of ORCL (Kairos, section 7); the first type is the base type."""

    draws: LoadDraws

    def rate(self, pool: Pool) -> float:
        """See `PoolRates.rate`: all requests are in time, the draws' and no others."""
        draws, kind = self.draws, np.repeat(np.arange(len(pool)), pool)
        return oracle_rate(draws.rows, draws.service_s[:, kind], kind, draws.qos_s)

    def in_time(self, pool: Pool, rate_rps: float) -> float:
        """See there: all or none."""
        return float(self.rate(pool) >= rate_rps)


_OVER = 1.02  # a finite run may exceed the bound a little


# deviates: rates-by-simulation
@dataclass(slots=True, kw_only=True)
class SimulatedRates:
    """The `PoolRates` of a dispatch policy; keeps the highest.

    A pool that is not in time at the highest rate so far ends early: that takes one run.
    """

    policy: CompiledPolicy
    draws: LoadDraws
    tolerance: float = 0.002  # of the rates, relative, `> 0`
    highest_rps: float = field(default=0.0, init=False)

    def __call__(self, pool: Pool) -> PoolTrial:
        """Measure a pool; the value of one that ends early is 0."""
        if self.highest_rps > 0 and self.in_time(pool, self.highest_rps) < IN_TIME:
            return PoolTrial(pool, 0.0, ended_early=True)
        rate = self.rate(pool)
        self.highest_rps = max(rate, self.highest_rps)
        return PoolTrial(pool, rate)

    def rate(self, pool: Pool) -> float:
        """Return the allowable rate of a pool, per second."""
        scenarios = self.draws.scenarios(pool, self.policy.level)
        bound = _OVER * self.draws.bound_rps(pool)
        if not bound > 0:
            return 0.0
        return allowable_rate(self.policy, scenarios, bound, tolerance=self.tolerance)[0]

    def in_time(self, pool: Pool, rate_rps: float) -> float:
        """Return the share in time at a rate; 0 once it is clear that it is below the target."""
        scenario = self.draws.scenarios(pool, self.policy.level)(rate_rps)
        most_late = (1.0 - IN_TIME) * len(scenario.arrived_s) + 1e-6
        return simulate(scenario, self.policy, most_late=most_late).in_time
