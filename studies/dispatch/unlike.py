"""Do unlike instances keep their goodput under too many requests? Real workers, learnt latencies.

The set-up is in docs/studies/dispatch.md. Goodput is counted in seconds of work on the slow type:
a second of an instance is worth the same whatever size it serves, so a policy cannot gain by
picking small requests. A load ends with its last arrival.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES, BoolArray, FloatArray, IntArray
from circinus.scheduler.simulation.draws import LoadDraws, allowable_rate, draw
from circinus.scheduler.simulation.engine import Scenario, simulate
from circinus.scheduler.simulation.loads import Load, poisson_gaps
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.studies.dispatch.live_pool import (
    LivePool,
    LoadOutcome,
    PhaseObserver,
    RequestStream,
    quantile_ms,
    rate_of,
)
from circinus.studies.report.tables import grouped

TABLE = LatencyTable(
    model="unlike",
    kinds=("fast", "slow"),
    batches=np.array([1, 8]),
    mean_s=np.array([[0.020, 0.080], [0.160, 0.640]]),
    std_s=np.zeros((2, 2)),
)
QOS_S = 0.5  # a large one takes 0.64 s on the slow type
POOL = (2, 4)
SMALL = 0.8  # of the requests: then both types are full at the same rate
LIMIT = 64  # requests that wait at most, as in the service
LOADS = (0.8, 1.0, 1.2, 3.0)
REFERENCE = "plan_ahead"
_WARM_UP = 200
_DRAWN = 40_000
_AFTER, _RECOVERY_S, _CALM_S = 0.8, 5.0, 5.0
_ALLOWABLE_OF = 20_000  # requests that the allowable rate is of


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeStudy:
    """What to compare."""

    policies: tuple[str, ...] = ("plan_ahead", "kairos", "fcfs", "fcfs_reject")  # their names
    seeds: int = 5  # how many, `>= 1`
    first_seed: int = 0  # the others follow, `>= 0`
    seconds: float = 10.0  # of each load, `> 0`

    def __post_init__(self) -> None:
        checks.require(len(self.policies) > 0, "policies", "must not be empty", self.policies)
        checks.unique("policies", self.policies)
        for name in self.policies:
            checks.among("policies", name, DISPATCH_POLICIES)
        checks.at_least("seeds", self.seeds, 1)
        checks.at_least("first_seed", self.first_seed, 0)
        most = _DRAWN / (sum(LOADS) + 1) / 150
        rule = f"must be in (0, {most:.0f}]"
        checks.require(0 < self.seconds <= most, "seconds", rule, self.seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeRow:
    """A line: one load of one seed under one policy."""

    policy: str  # its name
    seed: int  # of the arrivals
    load: float  # times the allowable rate
    rate_rps: float  # of the arrivals
    requests: int  # that arrived
    answered: int  # of them
    refused: int  # of them, by an error of any kind
    in_time: float  # share of the requests
    goodput: float  # seconds of work on the slow type, per second
    simulated_goodput: float  # the simulator's on the same arrivals
    small_in_time: float  # share of the small requests
    large_in_time: float  # of the large ones
    simulated_small: float  # the simulator's
    simulated_large: float  # likewise
    lag_p99_ms: float  # of the sender
    load_average: float  # of the machine, at the end


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeLine:
    """Means over seeds of one load under one policy."""

    policy: str  # its name
    load: float  # times the allowable rate
    rate_rps: float  # of the arrivals
    in_time: float  # share of the requests
    small_in_time: float  # share of the small requests
    large_in_time: float  # of the large ones
    goodput: float  # seconds of work on the slow type, per second
    of_100: float | None  # over that at load 1, seed by seed; None without any there
    least_of_100: float | None  # the worst seed's
    of_simulated: float | None  # over the simulator's, all seeds together; None if it had none


def run(study: UnlikeStudy, tell: PhaseObserver) -> list[UnlikeRow]:
    """Return the rows; report each as it is measured, and each recovery."""
    with TemporaryDirectory() as logs:
        return asyncio.run(_measured(study, tell, Path(logs)))


def lines_of(rows: Sequence[UnlikeRow]) -> list[UnlikeLine]:
    """Return a line for each policy and load."""
    full = {(row.policy, row.seed): row.goodput for row in rows if row.load == 1.0}
    return [_line(group, full) for group in grouped(rows, "policy", "load").values()]


def draws_of(seed: int) -> LoadDraws:
    """Return the requests of a seed."""
    load = Load(name="two sizes", sizes=_sizes, gaps=poisson_gaps)
    return draw(TABLE, QOS_S, load, _DRAWN, seed, sampled=False)


def allowable_of(draws: LoadDraws) -> float:
    """Return the rate at which the reference has 99 % in time, in the simulator."""
    policy = dispatch_policy(REFERENCE)
    first = draws.first(_ALLOWABLE_OF)
    bound = 1.02 * draws.bound_rps(POOL)
    return allowable_rate(policy, first.scenarios(POOL, None), bound)[0]


async def _measured(study: UnlikeStudy, tell: PhaseObserver, logs: Path) -> list[UnlikeRow]:
    rows: list[UnlikeRow] = []
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    drawn = {seed: draws_of(seed) for seed in seeds}
    allowable = {seed: allowable_of(drawn[seed]) for seed in seeds}
    tell("simulated", {"allowable_rps": {s: round(r, 1) for s, r in allowable.items()}})
    async with AsyncExitStack() as stack:
        pool = LivePool([kind for kind, n in enumerate(POOL) for _ in range(n)], QOS_S, logs)
        await pool.start(stack)
        for seed in seeds:
            for policy in study.policies:
                of = _Run(policy, drawn[seed], allowable[seed], study.seconds)
                rows += await _loads(of, pool, tell)
    return rows


@dataclass(frozen=True, slots=True)
class _Run:
    policy: str
    draws: LoadDraws
    allowable_rps: float
    seconds: float

    def parts(self) -> Iterator[tuple[float, Scenario]]:
        """Yield the loads in their order: to learn from, those that are compared, afterwards."""
        warm_up_s = min(_WARM_UP / (0.5 * self.allowable_rps), self.seconds)
        seconds = [(0.5, warm_up_s), *((load, self.seconds) for load in LOADS)]
        seconds += [(_AFTER, min(_RECOVERY_S + _CALM_S, self.seconds))]
        requests = RequestStream(self.draws, self.draws.scenarios(POOL, None)(1.0))
        for load, lasts in seconds:
            rate = load * self.allowable_rps
            yield load, requests.next((rate, max(int(rate * lasts), 1)))


async def _loads(run: _Run, pool: LivePool, tell: PhaseObserver) -> list[UnlikeRow]:
    rows = []
    prior_s = float(TABLE.mean_s.mean())
    dispatcher = await pool.serve_with(run.policy, limit=LIMIT, prior_s=prior_s)
    (_, warm_up), *loads, (_, after) = run.parts()
    await pool.load(dispatcher, warm_up)
    for load, scenario in loads:
        row = _row(run, load, await pool.load(dispatcher, scenario))
        rows.append(row)
        tell(f"{run.policy}, seed {run.draws.seed}, load {load:g}", _row_words(row))
    outcome = await pool.load(dispatcher, after)
    tell(f"{run.policy}, seed {run.draws.seed}, afterwards", _recovery(outcome))
    return rows


def _row(run: _Run, load: float, outcome: LoadOutcome) -> UnlikeRow:
    scenario = outcome.scenario
    simulated = simulate(scenario, dispatch_policy(run.policy), limit=LIMIT)
    done_s = simulated.finished_s
    live = _Shares.of(scenario, scenario.arrived_s + outcome.latency_s)
    predicted = _Shares.of(scenario, done_s)
    return UnlikeRow(
        policy=run.policy,
        seed=run.draws.seed,
        load=load,
        rate_rps=rate_of(scenario.arrived_s),
        requests=len(scenario.arrived_s),
        answered=int(np.isfinite(outcome.latency_s).sum()),
        refused=outcome.errors.total(),
        in_time=round(float(outcome.in_time.mean()), 4),
        goodput=live.goodput,
        simulated_goodput=predicted.goodput,
        small_in_time=live.small,
        large_in_time=live.large,
        simulated_small=predicted.small,
        simulated_large=predicted.large,
        lag_p99_ms=outcome.sender_lag_ms()[1],
        load_average=round(os.getloadavg()[0], 1),
    )


@dataclass(frozen=True, slots=True)
class _Shares:
    goodput: float
    small: float
    large: float

    @classmethod
    def of(cls, scenario: Scenario, done_s: FloatArray) -> _Shares:
        """Return the figures of requests that were done then; NaN: never."""
        good = done_s - scenario.arrived_s <= scenario.qos_s + 1e-9
        work_s = scenario.service_s[:, 1]
        before = good & (done_s <= scenario.arrived_s[-1])
        small = scenario.size == scenario.size.min()
        goodput = float(work_s[before].sum() / scenario.arrived_s[-1])
        return cls(round(goodput, 3), *(_share(good[s]) or 0.0 for s in (small, ~small)))


def _recovery(outcome: LoadOutcome) -> dict[str, object]:
    """Return what became of the load after the overload, second by second."""
    arrived, good = outcome.scenario.arrived_s, outcome.in_time
    by_second = [good[(arrived >= s) & (arrived < s + 1)] for s in range(int(_RECOVERY_S))]
    return {
        "in_time_by_second": [_share(of) for of in by_second if len(of)],
        "in_time_from_5_s_on": _share(good[arrived >= _RECOVERY_S]),
        "p99_ms": quantile_ms(outcome.latency_s, 0.99),
        "errors": dict(outcome.errors),
    }


def _share(good: BoolArray) -> float | None:
    return round(float(good.mean()), 4) if len(good) else None


def _row_words(row: UnlikeRow) -> dict[str, object]:
    names = [name for name in UnlikeRow.__dataclass_fields__ if name not in ("policy", "seed")]
    return {name: getattr(row, name) for name in names}


def _line(rows: Sequence[UnlikeRow], full: Mapping[tuple[str, int], float]) -> UnlikeLine:
    ratios = [
        row.goodput / full[row.policy, row.seed] for row in rows if full[row.policy, row.seed] > 0
    ]
    simulated = sum(row.simulated_goodput for row in rows)
    return UnlikeLine(
        policy=rows[0].policy,
        load=rows[0].load,
        rate_rps=_mean(row.rate_rps for row in rows),
        in_time=_mean(row.in_time for row in rows),
        small_in_time=_mean(row.small_in_time for row in rows),
        large_in_time=_mean(row.large_in_time for row in rows),
        goodput=_mean(row.goodput for row in rows),
        of_100=_mean(ratios) if ratios else None,
        least_of_100=round(min(ratios), 4) if ratios else None,
        of_simulated=sum(row.goodput for row in rows) / simulated if simulated else None,
    )


def _mean(values: Iterable[float]) -> float:
    return round(mean(values), 4)


def _sizes(count: int, rng: np.random.Generator) -> IntArray:
    return np.where(rng.random(count) < SMALL, 1, 8).astype(np.int64)
