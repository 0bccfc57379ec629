"""What a dispatch study draws of a seed, and the search of the allowable rate on it.

The draws depend on the seed alone: every policy, pool and rate meets the same requests. What is
sent is told in words (`kairos`, `bursty`, the path of a recording), as on a command line. A
recording is a text file with a number per line: batch sizes, or seconds between arrivals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.matching import heterogeneity
from circinus.scheduler.dispatch.policy import Fleet, FloatArray, IntArray
from circinus.scheduler.pool.throughput_bound import throughput_bound
from circinus.scheduler.simulation import workload
from circinus.scheduler.simulation.engine import Scenario, SimulationRun, simulate
from circinus.scheduler.simulation.measurements import LatencyTable

Pool = tuple[int, ...]

IN_TIME = 0.99
"""Share of the requests that must be in time (Kairos, section 7: the QoS is a 99th percentile)."""

Gaps = Callable[[int, np.random.Generator], FloatArray]
"""(count, rng) -> gaps of mean 1, shape (count,)."""

MIXES: Mapping[str, workload.BatchMix] = {
    "kairos": workload.kairos_batches,
    "ribbon": workload.ribbon_batches,
    "gaussian": workload.gaussian_batches,
}
ARRIVALS: Mapping[str, Gaps] = {"poisson": workload.poisson_gaps, "bursty": workload.bursty_gaps}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is sent; named after the mix, and the arrivals unless they are Poisson."""

    name: str
    sizes: workload.BatchMix
    gaps: Gaps


def load_of(
    mix: str = "kairos", arrivals: str = "poisson", *, after: str | None = None, at: float = 0.5
) -> Load:
    """Give a load by the names of its parts, or paths of recorded batch sizes and gaps in seconds.

    Recorded gaps are scaled to the rate, and each seed begins at another place of the recording.
    The mix is that of `after` from a share `at` of the requests on. InvalidInput if a name is
    unknown and no file, or a file holds anything else.
    """
    name, sizes = Path(mix).name, _mix("mix", mix)
    if after is not None:
        sizes = workload.changing(sizes, _mix("mix_after", after), at=at)
        name = f"{name} then {Path(after).name} at {at:g}"
    if arrivals != "poisson":
        name = f"{name}, {Path(arrivals).name}"
    return Load(name=name, sizes=sizes, gaps=_gaps(arrivals))


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
        """Give the share of each batch size."""
        counts = np.bincount(self.rows, minlength=len(self.table.batches))
        return np.asarray(counts / len(self.rows))

    def first(self, requests: int) -> LoadDraws:
        """Give the first so many requests, or all that there are."""
        of = slice(requests)
        return replace(self, gaps=self.gaps[of], rows=self.rows[of], service_s=self.service_s[of])

    def bound_rps(self, pool: Pool) -> float:
        """Give the bound on the allowable rate of a pool."""
        counts, mean_s = np.array(pool, dtype=np.int64), self.table.mean_s
        return throughput_bound(self.share, mean_s, counts, self.qos_s, in_time=IN_TIME).rate_rps

    def scenarios(self, pool: Pool, level: float | None) -> Callable[[float], Scenario]:
        """Give the scenario of a pool as a function of the rate.

        Policies plan with means, or with the quantile of that level if runs are noisy.
        """
        kind, counts = np.repeat(np.arange(len(pool)), pool), np.array(pool, dtype=np.int64)
        table = self.table
        latency_s = table.mean_s if level is None or not self.sampled else table.quantile_s(level)
        price = throughput_bound(self.share, latency_s, counts, self.qos_s).price
        coefficient = heterogeneity(table.mean_s[-1])
        given = partial(
            Scenario,
            size=self.table.batches[self.rows].astype(np.float64),
            service_s=self.service_s,
            predicted_s=latency_s[self.rows],
            qos_s=self.qos_s,
            fleet=Fleet(kind, coefficient[kind], price[kind]),
        )
        return lambda rate: given(arrived_s=workload.arrival_times(self.gaps, rate))


def draw(
    table: LatencyTable, qos_s: float, load: Load, requests: int, seed: int, *, sampled: bool
) -> LoadDraws:
    """Give the requests of a seed: gaps, sizes, service times."""
    streams = np.random.SeedSequence([2023, seed]).spawn(3)
    arrivals, sizes, service = (np.random.default_rng(stream) for stream in streams)
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


def allowable_rate(
    policy: CompiledPolicy,
    scenarios: Callable[[float], Scenario],
    highest_rps: float,
    *,
    tolerance: float = 0.002,
) -> tuple[float, SimulationRun | None]:
    """Give the largest rate with at least 99 % in time, by bisection, and its run.

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


def _mix(field: str, word: str) -> workload.BatchMix:
    if word in MIXES:
        return MIXES[word]
    sizes = _numbers(field, word, MIXES)
    whole = bool(((sizes >= 1) & (sizes == np.rint(sizes))).all())
    checks.require(whole, field, "must hold whole numbers >= 1", word)
    return workload.recorded_batches(sizes.astype(np.int64).tolist())


def _gaps(word: str) -> Gaps:
    if word in ARRIVALS:
        return ARRIVALS[word]
    seconds = _numbers("arrivals", word, ARRIVALS)
    workload.recorded_gaps(seconds, len(seconds))  # complains now, not in the middle of a study

    def drawn(count: int, rng: np.random.Generator) -> FloatArray:
        return workload.recorded_gaps(np.roll(seconds, -rng.integers(len(seconds))), count)

    return drawn


def _numbers(field: str, word: str, known: Mapping[str, object]) -> FloatArray:
    rule = f"must be {', '.join(known)} or a file with a number per line"
    try:
        numbers = np.array(Path(word).read_text().split(), dtype=np.float64)
    except (OSError, ValueError) as error:
        raise InvalidInput.of(field, rule, word) from error
    checks.require(len(numbers) > 0 and bool(np.isfinite(numbers).all()), field, rule, word)
    return numbers
