"""Which dispatch policy serves the highest rate in time, and how late are the late?

For every policy and seed: the allowable rate, the largest Poisson rate with at least 99 % of the
requests within the QoS (Kairos, section 7); the lateness of the late at the allowable rate of
the first policy; and what a decision takes. Common random numbers throughout.

Sampled service draws a log-normal of the measured mean and deviation for each request. Policies
plan with predictions as in the service: `plan_ahead` with the 90th percentile, the published ones
with means, as published (`DispatchPolicy.level`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Annotated

import numpy as np
from matplotlib.figure import Figure

from circinus.deploy.methods import DEFAULT, PUBLISHED, method_where
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.scheduler.dispatch.baselines import SizeThreshold
from circinus.scheduler.dispatch.kernel import CompiledPolicy
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import DISPATCH_POLICIES
from circinus.scheduler.pool.search import Pool
from circinus.scheduler.simulation.draws import LoadDraws, OracleRates, allowable_rate, draw
from circinus.scheduler.simulation.engine import SimulationRun, simulate
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.metrics import lateness_s, state_at
from circinus.studies.report import pages
from circinus.studies.report.charts import COLOURS, Bar, bars, svg
from circinus.studies.report.tables import grouped, of_column, summarised, written

ORACLE = "oracle"
_METHODS = (PUBLISHED.dispatch, DEFAULT.dispatch)
POLICIES = (*_METHODS, "fcfs", "drs", "clockwork", "clockwork_reject", ORACLE)
"""In the order in which they run, those of the methods first; also `fcfs_reject`."""
_KNOWN = (*DISPATCH_POLICIES, ORACLE)

_STEPS = (0.2, 0.1, 0.05)  # of hill climbing, as parts of the largest size
_SWEEP_REQUESTS = 4000
SEARCH_SEED = 9000  # of sweeps: none of the study's own
_DECISIONS = 200  # timed per run


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRow:
    """A line of `dispatch.csv`."""

    model: str  # name of the model
    service: str  # `mean` or `sampled`
    mix: str  # of batch sizes, and the arrivals unless they are Poisson
    policy: str  # its name
    method: str | None  # whose dispatch policy it is; empty: of none
    pool: str  # counts of each type, joined by spaces
    seed: int  # of all draws
    allowable_rps: float  # largest rate with 99 % in time
    late_mean_s: float  # of the late, but for the rejected, at the first policy's allowable rate
    late_max_s: float  # the worst of it
    decision_us_p50: float  # median of a decision, from Python, in microseconds of the clock given
    decision_us_p99: float  # its 99th percentile


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStudy:
    """What to compare."""

    table: LatencyTable  # latencies of the model
    qos_s: float  # requests should be answered within, `> 0`
    policies: tuple[str, ...]  # names, the first one sets the rate at which lateness is compared
    pools: Mapping[str, Pool]  # pool of each policy
    seeds: int = 5  # how many, `>= 1`
    first_seed: int = 0  # the others follow, `>= 0`
    requests: int = 20_000  # per run, `>= 100`
    service: str = "mean"  # `mean` or `sampled`
    load: Load = field(default_factory=load_of)  # sizes and arrivals

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.require(self.seeds >= 1, "seeds", "must be >= 1", self.seeds)
        checks.require(self.requests >= 100, "requests", "must be >= 100", self.requests)
        rule = "must be mean or sampled"
        checks.require(self.service in ("mean", "sampled"), "service", rule, self.service)
        last = SEARCH_SEED - self.seeds
        rule = f"must be in [0, {last}]"
        checks.require(0 <= self.first_seed <= last, "first_seed", rule, self.first_seed)
        checks.require(len(self.policies) > 0, "policies", "must not be empty", self.policies)
        checks.unique("policies", self.policies)
        kinds = len(self.table.kinds)
        rule = f"must be {kinds} counts >= 0, not all 0 ({', '.join(self.table.kinds)})"
        for name in self.policies:
            checks.among("policies", name, _KNOWN)
            pool = self.pools.get(name, ())
            good = len(pool) == kinds and min(pool) >= 0 and sum(pool) > 0
            checks.require(good, f"pool of {name}", rule, pool)


def run(study: DispatchStudy, out: Path, clock: Clock) -> list[DispatchRow]:
    """Return all rows, written to `out/dispatch.csv` one by one; `clock` times decisions."""
    return written(results(study, clock), DispatchRow, out / "dispatch.csv")


def results(study: DispatchStudy, clock: Clock) -> Iterator[DispatchRow]:
    """Yield the rows of a study as runs end."""
    sweep = draws_of(study, SEARCH_SEED, _SWEEP_REQUESTS)
    policies = {
        name: None if name == ORACLE else policy_for(name, sweep, study.pools[name])
        for name in study.policies
    }
    for seed in range(study.first_seed, study.first_seed + study.seeds):
        draws = draws_of(study, seed, study.requests)
        common_rps: float | None = None
        for name in study.policies:
            row = _row(study, name, policies[name], draws, common_rps, clock)
            common_rps = common_rps or row.allowable_rps
            yield row


def policy_for(name: str, sweep: LoadDraws, pool: Pool) -> CompiledPolicy:
    """Return a policy by name, DRS with its best threshold for the pool."""
    return _best_threshold(sweep, pool) if name == "drs" else dispatch_policy(name)


def draws_of(study: DispatchStudy, seed: int, requests: int) -> LoadDraws:
    """Return the requests of a seed."""
    sampled = study.service == "sampled"
    return draw(study.table, study.qos_s, study.load, requests, seed, sampled=sampled)


def _row(
    study: DispatchStudy,
    name: str,
    policy: CompiledPolicy | None,
    draws: LoadDraws,
    common_rps: float | None,
    clock: Clock,
) -> DispatchRow:
    pool = study.pools[name]
    rate, late_mean, late_max, times = 0.0, np.nan, np.nan, np.array([np.nan])
    if policy is None:
        rate = OracleRates(draws=draws).rate(pool)
    else:
        scenarios = draws.scenarios(pool, policy.level)
        rate, own = allowable_rate(policy, scenarios, 1.02 * draws.bound_rps(pool))
        if rate > 0 or common_rps:
            late_mean, late_max = lateness_s(simulate(scenarios(common_rps or rate), policy))
        if own is not None:
            times = _decision_us(policy, own, clock)
    return DispatchRow(
        model=study.table.model,
        service=study.service,
        mix=study.load.name,
        policy=name,
        method=method_where(lambda method: method.dispatch == name),
        pool=" ".join(map(str, pool)),
        seed=draws.seed,
        allowable_rps=rate,
        late_mean_s=float(late_mean),
        late_max_s=float(late_max),
        decision_us_p50=float(np.quantile(times, 0.5)),
        decision_us_p99=float(np.quantile(times, 0.99)),
    )


def _best_threshold(draws: LoadDraws, pool: Pool) -> SizeThreshold:
    """Return the threshold of the highest allowable rate by hill climbing (Kairos, section 7)."""
    scenarios = draws.scenarios(pool, None)
    bound = draws.bound_rps(pool)

    @cache
    def rate_of(fraction: float) -> float:
        policy = SizeThreshold(fraction=fraction)
        return allowable_rate(policy, scenarios, bound, tolerance=0.01)[0]

    return SizeThreshold(fraction=climbed(rate_of, SizeThreshold().fraction))


def climbed(height_of: Callable[[float], float], start: float) -> float:
    """Return where hill climbing in [0, 1] ends: no step up, of whatever length, is left."""
    at = start
    for step in _STEPS:
        while True:
            near = [round(min(max(at + move, 0.0), 1.0), 9) for move in (0.0, step, -step)]
            best = max(near, key=height_of)
            if height_of(best) <= height_of(at):
                break
            at = best
    return at


def _decision_us(policy: CompiledPolicy, run: SimulationRun, clock: Clock) -> np.ndarray:
    """Return what single decisions took, on states that an arrival of the run met."""
    count = len(run.scenario.arrived_s)
    chosen = np.linspace(count // 10, count - 1, min(_DECISIONS, count)).astype(int)
    taken = []
    for request in chosen.tolist():
        state = state_at(run, request)
        began = clock.now()
        policy.decide(state)
        taken.append((clock.now() - began) * 1e6)
    return np.array(taken)


def _deviation(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchCell:
    """A policy over seeds: means unless stated otherwise."""

    policy: str
    pool: str
    allowable_rps: Annotated[float, of_column(fmean, "allowable_rps")]
    deviation_rps: Annotated[float, of_column(_deviation, "allowable_rps")]  # 0 of a single seed
    late_mean_s: Annotated[float, of_column(fmean, "late_mean_s")]
    late_max_s: Annotated[float, of_column(max, "late_max_s")]  # the worst seed's
    decision_us_p50: Annotated[float, of_column(fmean, "decision_us_p50")]
    decision_us_p99: Annotated[float, of_column(fmean, "decision_us_p99")]


def summary(rows: Sequence[DispatchRow]) -> list[DispatchCell]:
    """Return a cell per policy, in their order."""
    return summarised(rows, DispatchCell, "policy", "pool")


def picture(rows: Sequence[DispatchRow]) -> Figure:
    """Draw a model: a bar per policy, a whisker of one deviation to either side."""
    drawn = [
        Bar(
            name=cell.policy,
            value=cell.allowable_rps,
            error=cell.deviation_rps,
            note=f"{cell.allowable_rps:.1f}",
            colour=COLOURS[0] if cell.policy == DEFAULT.dispatch else COLOURS[-1],
        )
        for cell in summary(rows)
    ]
    return bars(f"{_title(rows)}: allowable rate, requests/s", drawn)


def page(rows: Sequence[DispatchRow], requests: int) -> str:
    """Return the report as one HTML document with its pictures inside."""
    seeds = len({row.seed for row in rows})
    about = (
        f"{seeds} seeds of {requests} requests. Allowable rate: the largest Poisson rate with "
        "at least 99 % of the requests within the QoS, mean and standard deviation over seeds. "
        "Lateness of the late: at the allowable rate of the first policy; rejected requests "
        "have none."
    )
    sections = [
        pages.heading(_title(group)) + svg(picture(group)) + _table(group)
        for group in grouped(rows, "model", "service").values()
    ]
    return pages.page("Dispatch policies", pages.paragraph(about), *sections)


def _title(rows: Sequence[DispatchRow]) -> str:
    return f"{rows[0].model}, {rows[0].service} service times"


def _table(rows: Sequence[DispatchRow]) -> str:
    head = (
        *("policy", "pool", "rate, 1/s", "sd, %", "relative", "late mean, ms", "late worst, ms"),
        *("decision p50, us", "p99, us"),
    )
    cells, lines = summary(rows), []
    first = cells[0].allowable_rps
    for cell in cells:
        rate = cell.allowable_rps
        figures = (
            f"{rate:.1f}",
            f"{100 * cell.deviation_rps / rate:.1f}" if rate else "",
            f"{rate / first:.3f}" if first else "",
            f"{cell.late_mean_s * 1e3:.1f}",
            f"{cell.late_max_s * 1e3:.1f}",
            f"{cell.decision_us_p50:.0f}",
            f"{cell.decision_us_p99:.0f}",
        )
        lines.append((cell.policy, cell.pool, *(text.replace("nan", "-") for text in figures)))
    return pages.grid(head, lines)
