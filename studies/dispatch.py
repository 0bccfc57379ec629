"""Which dispatch policy serves the highest rate in time, and how late are the late?

For every policy and seed: the allowable rate, the largest Poisson rate with at least 99 % of the
requests within the QoS (Kairos, section 7); the lateness of the late at the allowable rate of
the first policy; and what a decision takes. Common random numbers throughout.

Sampled service draws a log-normal of the measured mean and deviation for each request. Policies
plan with what the service tells them: `plan_ahead` with the 90th percentile, the published ones
with means, as published (`DispatchPolicy.level`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deploy.methods import DEFAULT, PUBLISHED, method_where
from pipelines import checks
from pipelines.clock import Clock
from scheduler.dispatch.drs import SizeThreshold
from scheduler.dispatch.kernel import CompiledPolicy
from scheduler.dispatch.policies import dispatch_policy
from scheduler.dispatch.policy import DISPATCH_POLICIES
from scheduler.simulation.engine import Run, simulate
from scheduler.simulation.measurements import LatencyTable
from scheduler.simulation.metrics import metrics
from scheduler.simulation.oracle import oracle_rate
from scheduler.simulation.snapshots import state_at
from studies.dispatch_draws import Draws, Pool, allowable_rate, draw
from studies.dispatch_load import Load, load_of
from studies.dispatch_pools import best_pool
from studies.tables import written

ORACLE = "oracle"
_METHODS = (PUBLISHED.dispatch, DEFAULT.dispatch)
POLICIES = (*_METHODS, "fcfs", "drs", "clockwork", "clockwork_reject", ORACLE)
"""In the order in which they run, those of the methods first; also `fcfs_reject`."""
_KNOWN = (*DISPATCH_POLICIES, ORACLE)

_THRESHOLDS = (0, 100, 200, 300, 400, 500, 600, 700, 800, 900)
_SWEEP_REQUESTS = 4000
_SEARCH_SEED = 9000  # of sweeps and pool searches: none of the study's own
_DECISIONS = 200  # timed per run


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchRow:
    """A line of `dispatch.csv`.

    Attributes:
        model: Name of the model.
        service: `mean` or `sampled`.
        mix: Of batch sizes, and the arrivals unless they are Poisson.
        policy: Its name.
        method: Whose dispatch policy it is; empty: of none.
        pool: Counts of each type, joined by spaces.
        seed: Of all draws.
        allowable_rps: Largest rate with 99 % in time.
        late_mean_s: Mean lateness of the late at the allowable rate of the first policy; those
            that were rejected have none.
        late_max_s: The worst of it.
        decision_us_p50: Median of a decision, from Python, in microseconds of the clock given.
        decision_us_p99: Its 99th percentile.
    """

    model: str
    service: str
    mix: str
    policy: str
    method: str | None
    pool: str
    seed: int
    allowable_rps: float
    late_mean_s: float
    late_max_s: float
    decision_us_p50: float
    decision_us_p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchStudy:
    """What to compare.

    Attributes:
        table: Latencies of the model.
        qos_s: Requests should be answered within, `> 0`.
        policies: Names, the first one sets the rate at which lateness is compared.
        pools: Pool of each policy.
        seeds: How many, `>= 1`.
        first_seed: The others follow, `>= 0`.
        requests: Per run, `>= 100`.
        service: `mean` or `sampled`.
        load: Sizes and arrivals.
    """

    table: LatencyTable
    qos_s: float
    policies: tuple[str, ...]
    pools: Mapping[str, Pool]
    seeds: int = 5
    first_seed: int = 0
    requests: int = 20_000
    service: str = "mean"
    load: Load = field(default_factory=load_of)

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        checks.require(self.seeds >= 1, "seeds", "must be >= 1", self.seeds)
        checks.require(self.requests >= 100, "requests", "must be >= 100", self.requests)
        rule = "must be mean or sampled"
        checks.require(self.service in ("mean", "sampled"), "service", rule, self.service)
        last = _SEARCH_SEED - self.seeds
        rule = f"must be in [0, {last}]"
        checks.require(0 <= self.first_seed <= last, "first_seed", rule, self.first_seed)
        checks.require(len(self.policies) > 0, "policies", "must not be empty", self.policies)
        checks.unique("policies", self.policies)
        rule = f"must be among {', '.join(_KNOWN)}"
        kinds = len(self.table.kinds)
        for name in self.policies:
            checks.require(name in _KNOWN, "policies", rule, name)
            pool = self.pools.get(name, ())
            good = len(pool) == kinds and min(pool) >= 0 and sum(pool) > 0
            text = f"must be {kinds} counts >= 0, not all 0 ({', '.join(self.table.kinds)})"
            checks.require(good, f"pool of {name}", text, pool)


def run(study: DispatchStudy, out: Path, clock: Clock) -> list[DispatchRow]:
    """Give all rows, written to `out/dispatch.csv` one by one; `clock` times decisions."""
    return written(results(study, clock), DispatchRow, out / "dispatch.csv")


def results(study: DispatchStudy, clock: Clock) -> Iterator[DispatchRow]:
    """Give the rows of a study as runs end."""
    sweep = _draws(study, _SEARCH_SEED, _SWEEP_REQUESTS)
    policies = {name: policy_for(name, sweep, study.pools[name]) for name in study.policies}
    for seed in range(study.first_seed, study.first_seed + study.seeds):
        draws = _draws(study, seed, study.requests)
        common_rps: float | None = None
        for name in study.policies:
            row = _row(study, name, policies[name], draws, common_rps, clock)
            row = replace(row, seed=seed)
            common_rps = common_rps or row.allowable_rps
            yield row


def policy_for(name: str, sweep: Draws, pool: Pool) -> CompiledPolicy | None:
    """Give a policy by name, DRS with its best threshold for the pool; None for the oracle."""
    if name == ORACLE:
        return None
    if name == "drs":
        return _best_threshold(sweep, pool)
    return dispatch_policy(name)


def level_for(name: str) -> float | None:
    """Give the quantile of the latencies that a policy plans with; None: means."""
    return None if name == ORACLE else dispatch_policy(name).level


def search_pool(
    name: str, study: DispatchStudy, pools: Sequence[Pool], requests: int = 4000
) -> Pool:
    """Give the best of some pools for a policy, on draws that are none of the study's."""
    coarse = _draws(study, _SEARCH_SEED + 1, requests)
    fine = _draws(study, _SEARCH_SEED + 2, study.requests)
    bounds = [(pool, coarse.bound(pool).rate_rps) for pool in pools]
    bounds.sort(key=lambda pair: -pair[1])
    if name == ORACLE:
        return max(pools, key=lambda pool: _oracle(coarse, pool))

    def policy_of(draws: Draws, pool: Pool) -> CompiledPolicy:
        policy = policy_for(name, coarse, pool)
        if policy is None:
            raise ValueError(f"{name} is no policy.")
        return policy

    return best_pool(policy_of, level_for(name), bounds, coarse, fine)


def _draws(study: DispatchStudy, seed: int, requests: int) -> Draws:
    return draw(
        study.table,
        study.qos_s,
        study.load,
        requests,
        seed,
        sampled=study.service == "sampled",
    )


def _row(
    study: DispatchStudy,
    name: str,
    policy: CompiledPolicy | None,
    draws: Draws,
    common_rps: float | None,
    clock: Clock,
) -> DispatchRow:
    pool = study.pools[name]
    rate, late_mean, late_max, times = 0.0, np.nan, np.nan, np.array([np.nan])
    if policy is None:
        rate = _oracle(draws, pool)
    else:
        scenarios = draws.scenarios(pool, level_for(name))
        rate, own = allowable_rate(policy, scenarios, 1.02 * draws.bound(pool).rate_rps)
        if rate > 0 or common_rps:
            common = metrics(simulate(scenarios(common_rps or rate), policy))
            late_mean, late_max = common.late_mean_s, common.late_max_s
        if own is not None:
            times = _decision_us(policy, own, clock)
    return DispatchRow(
        model=study.table.model,
        service=study.service,
        mix=study.load.name,
        policy=name,
        method=method_where(lambda method: method.dispatch == name),
        pool=" ".join(map(str, pool)),
        seed=0,
        allowable_rps=rate,
        late_mean_s=float(late_mean),
        late_max_s=float(late_max),
        decision_us_p50=float(np.quantile(times, 0.5)),
        decision_us_p99=float(np.quantile(times, 0.99)),
    )


def _oracle(draws: Draws, pool: Pool) -> float:
    kind = np.repeat(np.arange(len(pool)), pool)
    return oracle_rate(draws.rows, draws.service_s[:, kind], kind, draws.qos_s)


def _best_threshold(draws: Draws, pool: Pool) -> SizeThreshold:
    scenarios = draws.scenarios(pool, None)
    bound = draws.bound(pool).rate_rps

    def rate_of(policy: SizeThreshold) -> float:
        return allowable_rate(policy, scenarios, bound, tolerance=0.01)[0]

    largest = float(draws.table.batches[-1])
    tried = [SizeThreshold(largest_small=t) for t in _THRESHOLDS if t <= largest]
    return max(tried, key=rate_of)


def _decision_us(policy: CompiledPolicy, run: Run, clock: Clock) -> np.ndarray:
    """Give what single decisions took, on states that an arrival of the run met."""
    count = len(run.scenario.arrived_s)
    chosen = np.linspace(count // 10, count - 1, min(_DECISIONS, count)).astype(int)
    taken = []
    for request in chosen.tolist():
        state = state_at(run, request)
        began = clock.now()
        policy.decide(state)
        taken.append((clock.now() - began) * 1e6)
    return np.array(taken)
