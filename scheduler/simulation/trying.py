"""Pools tried in the simulator: what `scheduler.pool.calibrated` asks, thousands of times.

| symbol | meaning |
| --- | --- |
| E | runs asked for |
| S | streams: other arrivals, sizes and luck of requests |
| V | steps from the smoothest arrivals to the most bursty |
| N | requests of a run, in order of arrival |
| B, K | sizes in the latency table, types of instance |

Gaps are gamma distributed: their squared coefficient of variation is 1 for a Poisson process,
less where arrivals are smoother (gaps of a Poisson-distributed whole number of milliseconds, as
the artefacts of both papers draw them, have 1 / mean), more where they are bursty. It goes from
`SMOOTHEST` to `MOST_BURSTY` in equal factors as the variability goes from 0 to 1. All are made of
the same uniform numbers, so that a run is nearly continuous in the variability and in the scales.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import gamma

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import CompiledPolicy, compiled_part
from circinus.scheduler.dispatch.policy import Fleet, FloatArray, IntArray, heterogeneity
from circinus.scheduler.pool.throughput_bounds import throughput_bound
from circinus.scheduler.simulation.engine import SLACK_S, Scenario, simulate
from circinus.scheduler.simulation.loads import BatchMix
from circinus.scheduler.simulation.measurements import LatencyTable

SMOOTHEST, MOST_BURSTY = 1 / 16, 16.0
"""Squared coefficients of variation of gaps, a Poisson process halfway."""

_STEPS = 9  # V, a factor of two each; between them gaps are interpolated


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialLoad:
    """What is sent in a trial."""

    mix: BatchMix
    qos_s: float  # a request should be answered within, `> 0`
    rate_rps: float  # requests per second on average, `> 0`
    requests: int = 10_000  # `>= 100`

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.positive("rate_rps", self.rate_rps)
        checks.at_least("requests", self.requests, 100)


@compiled_part
def _step(variability: float, steps: int) -> tuple[int, float]:
    """Return the step below, never the last one, and the part of the way to the next."""
    place = variability * (steps - 1)
    low = min(int(place), steps - 2)
    return low, place - low


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialDraws:
    """All that is random of simulated trials; see `trial_draws`."""

    table: LatencyTable
    qos_s: float  # a request should be answered within, `> 0`
    gaps_s: FloatArray  # (S, V, N)
    rows: IntArray  # (S, N), of the table that each request is charged
    service_s: FloatArray  # (S, N, K)

    @property
    def requests(self) -> int:
        """N."""
        return int(self.rows.shape[1])

    @property
    def streams(self) -> int:
        """S."""
        return int(self.rows.shape[0])

    def arrived_s(self, stream: int, variability: float) -> FloatArray:  # (N,)
        """Return when the requests of a stream arrive."""
        low, part = _step(variability, _STEPS)
        before, after = self.gaps_s[stream, low : low + 2]
        return np.asarray(np.cumsum(before + part * (after - before)))


def trial_draws(
    table: LatencyTable,
    load: TrialLoad,
    rng: np.random.Generator,
    *,
    streams: int = 4,  # `>= 2`: their spread is what a finite run leaves open
) -> TrialDraws:
    """Draw the requests of simulated trials; InvalidInput if there are fewer streams."""
    checks.at_least("streams", streams, 2)
    shape = 1.0 / np.geomspace(SMOOTHEST, MOST_BURSTY, _STEPS)[:, None]
    gaps, rows, service = [], [], []
    for _ in range(streams):
        uniform = rng.random(load.requests)
        gaps.append(gamma.ppf(uniform, shape) / shape / load.rate_rps)
        rows.append(table.rows(load.mix(load.requests, rng)))
        service.append(table.sampled_s(rows[-1], rng))
    return TrialDraws(
        table=table,
        qos_s=load.qos_s,
        gaps_s=np.array(gaps),
        rows=np.array(rows),
        service_s=np.array(service),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstComeTrials:
    """A `PoolSimulator`: first come, first served, on the first idle instance of the list.

    What `FcfsDispatch` does in `simulate`, a hundred times as fast: a tenth of a millisecond for
    10,000 requests.
    """

    draws: TrialDraws

    @property
    def requests(self) -> int:
        """See `PoolSimulator.requests`."""
        return self.draws.requests

    @property
    def streams(self) -> int:
        """See there."""
        return self.draws.streams

    def in_time(
        self,
        pools: IntArray,  # (E, K)
        scale: FloatArray,  # (E, K)
        variability: FloatArray,  # (E,)
        stream: IntArray,  # (E,)
        enough: float = 0.0,
    ) -> FloatArray:  # (E,)
        """See there."""
        draws = self.draws
        most_late = _most_late(enough, draws.requests)
        runs = _Requests(draws.gaps_s, draws.service_s, draws.qos_s + SLACK_S, most_late)
        return _shares(pools, scale, variability, stream, runs)


def _most_late(enough: float, requests: int) -> int:
    """Return how many may be late where so much is enough, whatever the rounding."""
    return int((1.0 - enough) * requests + 1e-6)


class _Requests(NamedTuple):
    """The inputs of the runs."""

    gaps: FloatArray  # (S, V, N)
    service: FloatArray  # (S, N, K)
    qos: float
    most_late: int  # a run with one more is stopped


@compiled_part
def _shares(
    pools: IntArray,  # (E, K)
    scale: FloatArray,  # (E, K)
    variability: FloatArray,  # (E,)
    stream: IntArray,  # (E,)
    runs: _Requests,
) -> FloatArray:  # (E,)
    shares = np.empty(len(pools))
    for e in range(len(pools)):
        shares[e] = _share(pools[e], scale[e], variability[e], stream[e], runs)
    return shares


@compiled_part
def _share(
    pool: IntArray, scale: FloatArray, variability: float, stream: int, runs: _Requests
) -> float:
    """Return the share in time of a run."""
    gaps, service = runs.gaps[stream], runs.service[stream]
    low, part = _step(variability, len(gaps))
    kind = np.repeat(np.arange(len(pool)), pool)
    free_at = np.zeros(len(kind))
    now, late = 0.0, 0
    for i in range(len(service)):
        now += gaps[low, i] + part * (gaps[low + 1, i] - gaps[low, i])
        chosen = 0
        for j in range(len(kind)):
            if free_at[j] <= now:
                chosen = j
                break
            if free_at[j] < free_at[chosen]:
                chosen = j
        k = kind[chosen]
        free_at[chosen] = max(now, free_at[chosen]) + scale[k] * service[i, k]
        if free_at[chosen] - now > runs.qos:
            late += 1
            if late > runs.most_late:
                break
    return 1.0 - late / len(service)


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchedTrials:
    """A `PoolSimulator`: the dispatcher in use, by the event loop of all simulations.

    A run of 2,000 requests takes 5 to 8 ms: fewer particles and pools have to do. The policy plans
    with the table's quantile of its level, scaled as the instances are: in service it learns what
    they take.
    """

    draws: TrialDraws
    policy: CompiledPolicy

    @property
    def requests(self) -> int:
        """See `PoolSimulator.requests`."""
        return self.draws.requests

    @property
    def streams(self) -> int:
        """See there."""
        return self.draws.streams

    def in_time(
        self,
        pools: IntArray,  # (E, K)
        scale: FloatArray,  # (E, K)
        variability: FloatArray,  # (E,)
        stream: IntArray,  # (E,)
        enough: float = 0.0,
    ) -> FloatArray:  # (E,)
        """See there; a run that was stopped gives 0."""
        most_late = _most_late(enough, self.requests)
        return np.array(
            [
                simulate(self._scenario(*run), self.policy, most_late=most_late).in_time
                for run in zip(pools, scale, variability.tolist(), stream.tolist(), strict=True)
            ]
        )

    def _scenario(
        self, pool: IntArray, scale: FloatArray, variability: float, stream: int
    ) -> Scenario:
        draws, table, level = self.draws, self.draws.table, self.policy.level
        rows, kind = draws.rows[stream], np.repeat(np.arange(len(pool)), pool)
        planned_s = scale * (table.mean_s if level is None else table.quantile_s(level))
        share = np.bincount(rows, minlength=len(table.batches)) / len(rows)
        price = throughput_bound(share, planned_s, pool, draws.qos_s).price
        coefficient = heterogeneity((scale * table.mean_s)[-1])
        return Scenario(
            arrived_s=draws.arrived_s(stream, variability),
            size=table.batches[rows].astype(np.float64),
            service_s=scale * draws.service_s[stream],
            predicted_s=planned_s[rows],
            qos_s=draws.qos_s,
            fleet=Fleet(kind, coefficient[kind], price[kind]),
        )
