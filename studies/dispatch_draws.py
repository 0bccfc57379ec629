"""What a dispatch study draws of a seed, and the search of the allowable rate on it.

The draws depend on the seed alone: every policy, pool and rate meets the same requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from scheduler.dispatch.matching import heterogeneity
from scheduler.dispatch.policy import Fleet, FloatArray, IntArray
from scheduler.pool.throughput_bound import ThroughputBound, throughput_bound
from scheduler.simulation.arrivals import arrival_times
from scheduler.simulation.engine import Run, SimulatedPolicy, simulate
from scheduler.simulation.measurements import LatencyTable
from scheduler.simulation.scenario import Scenario
from studies.dispatch_load import Load

Pool = tuple[int, ...]

IN_TIME = 0.99
"""Share of the requests that must be in time (Kairos, section 7: the QoS is a 99th percentile)."""

_STREAMS = 3  # arrivals, sizes, service


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """Requests of one seed.

    Attributes:
        table: Latencies of the model.
        qos_s: T.
        gaps: Of mean 1.
        rows: Row of the table that each request is charged.
        service_s: What each takes on each kind.
        sampled: Whether that was drawn.
    """

    table: LatencyTable
    qos_s: float
    gaps: FloatArray  # (N,)
    rows: IntArray  # (N,)
    service_s: FloatArray  # (N, K)
    sampled: bool

    @property
    def share(self) -> FloatArray:  # (B,)
        """Give the share of each batch size."""
        counts = np.bincount(self.rows, minlength=len(self.table.batches))
        return np.asarray(counts / len(self.rows))

    def expected_s(self, level: float | None) -> FloatArray:  # (B, K)
        """Give the latencies that a policy plans with: means, or quantiles if runs are noisy."""
        if level is None or not self.sampled:
            return self.table.mean_s
        return self.table.quantile_s(level)

    def bound(self, pool: Pool, *, level: float | None = None) -> ThroughputBound:
        """Give the bound on the allowable rate of a pool, and its prices."""
        counts = np.array(pool, dtype=np.int64)
        latency_s = self.expected_s(level)
        return throughput_bound(self.share, latency_s, counts, self.qos_s, in_time=IN_TIME)

    def scenarios(self, pool: Pool, level: float | None) -> Callable[[float], Scenario]:
        """Give the scenario of a pool as a function of the rate."""
        kind = np.repeat(np.arange(len(pool)), pool)
        latency_s = self.expected_s(level)
        counts = np.array(pool, dtype=np.int64)
        price = throughput_bound(self.share, latency_s, counts, self.qos_s).price
        coefficient = heterogeneity(self.table.mean_s[-1])
        fleet = Fleet(kind, coefficient[kind], price[kind])
        predicted_s = latency_s[self.rows]
        size = self.table.batches[self.rows].astype(np.float64)
        return lambda rate: Scenario(
            arrived_s=arrival_times(self.gaps, rate),
            size=size,
            service_s=self.service_s,
            predicted_s=predicted_s,
            qos_s=self.qos_s,
            fleet=fleet,
        )


def draw(
    table: LatencyTable, qos_s: float, load: Load, requests: int, seed: int, *, sampled: bool
) -> Draws:
    """Give the requests of a seed: gaps, sizes, service times."""
    streams = np.random.SeedSequence([2023, seed]).spawn(_STREAMS)
    arrivals, sizes, service = (np.random.default_rng(stream) for stream in streams)
    gaps = load.gaps(requests, arrivals)
    rows = table.rows(load.sizes(requests, sizes))
    service_s = table.sampled_s(rows, service) if sampled else table.mean_s[rows]
    return Draws(
        table=table, qos_s=qos_s, gaps=gaps, rows=rows, service_s=service_s, sampled=sampled
    )


def allowable_rate(
    policy: SimulatedPolicy,
    scenarios: Callable[[float], Scenario],
    highest_rps: float,
    *,
    tolerance: float = 0.002,
) -> tuple[float, Run | None]:
    """Give the largest rate with at least 99 % in time, by bisection, and its run.

    Args:
        policy: Decides.
        scenarios: The scenario of a rate.
        highest_rps: Where to begin; a bound.
        tolerance: Relative width at which the bisection stops.

    Returns:
        The rate and its run; 0 and None if not even a fiftieth of the bound is allowable.
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
