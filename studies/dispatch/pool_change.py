"""How good is a pool that is chosen anew when the mix of sizes changes under load?

    circinus study pool-change --latency CSV --prices CSV --model rm2 --qos-ms 350 --out out/change

The pool that is best for the first mix serves at a share of its allowable rate while the monitor
looks on; then the mix changes. Some choose from the sizes seen since, without trying anything:
`bound` takes the pool with the highest LP bound, `kairos` chooses in one shot as published
(5.2), `simulated` looks for the best one in the
simulator, in the order of bounds. Others try pool after pool and get better, as in Kairos'
figure 12 (8.4): `kairos_plus` under Kairos' matching, `drs` and `clockwork` under theirs, all
three in the order of bounds with its pruning (algorithm 1), which the paper grants them, too;
`ribbon` by Bayesian optimisation, first come, first served. What pools are worth is measured on
draws of the new mix that none of them sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean, mode
from typing import Any, NamedTuple

import numpy as np

from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.dispatch.policy import FloatArray, IntArray
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.kairos_plus import KairosPlus
from circinus.scheduler.pool.monitor import MonitorSettings, TrafficMonitor
from circinus.scheduler.pool.one_shot import one_shot
from circinus.scheduler.pool.pools import Pool, PoolSpace, PoolTrial
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import LargestRate, MeasurePool, search
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws, allowable_rate, draw
from circinus.scheduler.simulation.engine import SimulationRun, simulate
from circinus.scheduler.simulation.loads import Load, load_of
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.workload import changing, poisson_gaps, recorded_batches
from circinus.studies.dispatch.study import policy_for
from circinus.studies.report.charts import COLOURS, Bar, bars
from circinus.studies.report.tables import grouped, written

OLD, BOUND, KAIROS, SIMULATED = "old", "bound", "kairos", "simulated"
RIBBON = "ribbon"
TRYING = {"kairos_plus": "kairos", "drs": "drs", "clockwork": "clockwork", RIBBON: "fcfs"}
"""Who tries pools, and the dispatch policy that serves them."""

_AT_RATE, _UNSEEN, _SIMULATED = 5000, 6000, 7000  # seeds are so much larger: streams of their own
_SEARCHED = 4_000  # requests of a simulated search, and of sweeps for the threshold of DRS
_COARSE, _FINE = 0.01, 0.002  # tolerances


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeRow:
    """A line of `pool-change.csv`."""

    model: str  # name of the model
    before: str  # mix that the pool was chosen for
    after: str  # that follows
    scheme: str  # who chose or tried the pool
    policy: str  # that dispatches
    seed: int  # of all draws
    told_after: int  # requests of the new mix that had come when the monitor told of it
    seen: int  # sizes that the choice is of
    evaluation: int  # pools that the scheme tried, this one included; 0: it was not tried
    pool: str  # counts of each type, joined by spaces
    rate_rps: float  # its allowable rate under the new mix
    of_best: float  # over that of the best pool under the default dispatch policy


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeStudy:
    """What changes, and what there is to choose from."""

    table: LatencyTable  # latencies of the model
    qos_s: float  # requests should be answered within, `> 0`
    prices: tuple[float, ...]  # of the table's types, USD per hour
    budget_usd_per_hour: float = 2.5
    before: Load = field(default_factory=load_of)
    after: Load = field(default_factory=lambda: load_of("gaussian"))
    seeds: int = 5  # how many, `>= 1`
    first_seed: int = 0  # the others follow, in [0, 1000 - seeds]
    requests: int = 20_000  # of a measurement, `>= 1000`
    evaluations: int = 20  # most pools that a scheme tries
    load: float = 0.9  # of the allowable rate of the first pool, in (0, 1]

    def __post_init__(self) -> None:
        checks.positive("qos_s", self.qos_s)
        kinds = len(self.table.kinds)
        checks.require(len(self.prices) == kinds, "prices", f"must be {kinds}", self.prices)
        checks.at_least("seeds", self.seeds, 1)
        last = 1000 - self.seeds
        good = 0 <= self.first_seed <= last
        checks.require(good, "first_seed", f"must be in [0, {last}]", self.first_seed)
        checks.at_least("requests", self.requests, 1000)
        checks.at_least("evaluations", self.evaluations, 1)
        checks.share("load", self.load)

    def space(self) -> PoolSpace:
        """Give the pools that the budget may pay, and more."""
        budget, most = self.budget_usd_per_hour, 100  # of a type: only where it is free
        return PoolSpace.within_budget(self.table.kinds, self.prices, budget, most)


class Change(NamedTuple):
    """What the monitor saw of a change."""

    told_after: int  # requests of the new mix
    sizes: FloatArray  # that it had then, of requests since the change, but for a few
    of_window: FloatArray  # that it has when a whole window came after that


def run(study: PoolChangeStudy, out: Path) -> list[PoolChangeRow]:
    """Give all rows, written to `out/pool-change.csv` one by one."""
    return written(results(study), PoolChangeRow, out / "pool-change.csv")


def results(study: PoolChangeStudy) -> Iterator[PoolChangeRow]:
    """Give the rows of a study as they are measured."""
    space = study.space()
    for seed in range(study.first_seed, study.first_seed + study.seeds):
        yield from _Seed(study, space, seed).rows()


def bounded(draws: LoadDraws, space: PoolSpace, budget: float) -> LargestRate:
    """Give the goal, with LP bounds where there is room for no other instance of any type.

    Other pools have bound 0: they are contained in one of those.
    """
    full = space.within(budget) & ~space.within(budget - min(space.prices))
    bounds, latency_s = np.zeros(len(space.pools)), draws.table.mean_s
    pools, qos_s = space.pools[full], draws.qos_s
    bounds[full] = throughput_bounds(draws.share, latency_s, pools, qos_s, in_time=IN_TIME)
    return LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)


def searched(goal: LargestRate, measure: MeasurePool, most: int | None = None) -> list[PoolTrial]:
    """Give trials in the order of bounds, until no pool can be better (Kairos, algorithm 1)."""
    strategy = KairosPlus(bounds=goal.bounds)
    return search(goal, strategy, measure, most or len(goal.bounds))


def best_of(trials: Sequence[PoolTrial]) -> PoolTrial:
    """Give the trial of the largest value; there must be one."""
    return max(trials, key=lambda trial: trial.value)


def measured(draws: LoadDraws, policy: str, *, tolerance: float) -> MeasurePool:
    """Give what measures the allowable rate of a pool; DRS has its best threshold there."""
    sweep = draws.first(_SEARCHED)

    def measure(pool: Pool) -> PoolTrial:
        chosen, highest = policy_for(policy, sweep, pool), 1.02 * draws.bound_rps(pool)
        scenarios = draws.scenarios(pool, chosen.level)
        return PoolTrial(pool, allowable_rate(chosen, scenarios, highest, tolerance=tolerance)[0])

    return measure


@dataclass(frozen=True, slots=True)
class _Seed:
    study: PoolChangeStudy
    space: PoolSpace
    seed: int

    def rows(self) -> Iterator[PoolChangeRow]:
        """Give the rows of the seed."""
        before = self._draws(self.study.before, self.seed)
        bounds = self._goal(before).bounds
        first_pool = tuple(self.space.pools[np.argmax(bounds)].tolist())
        served = measured(before, DEFAULT.dispatch, tolerance=_FINE)(first_pool)
        change = self.watched(first_pool, self.study.load * served.value)
        unseen = self._draws(self.study.after, _UNSEEN + self.seed)
        measure = measured(unseen, DEFAULT.dispatch, tolerance=_FINE)
        best_rps = best_of(searched(self._goal(unseen), measure)).value
        row = partial(
            PoolChangeRow,
            model=self.study.table.model,
            before=self.study.before.name,
            after=self.study.after.name,
            seed=self.seed,
            told_after=change.told_after,
        )

        def told(trial: PoolTrial) -> dict[str, Any]:
            rate, pool = trial.value, " ".join(map(str, trial.pool))
            return {"pool": pool, "rate_rps": rate, "of_best": rate / best_rps}

        default = DEFAULT.dispatch
        yield row(scheme=OLD, policy=default, seen=0, evaluation=0, **told(measure(first_pool)))
        for sizes in (change.sizes, change.of_window):
            for scheme, pool in self.choices(sizes):
                of = told(measure(pool))
                yield row(scheme=scheme, policy=default, seen=len(sizes), evaluation=0, **of)
        seen = len(change.sizes)
        for scheme, policy in TRYING.items():
            for n, trial in enumerate(self.tried(scheme, policy, unseen, change.sizes), 1):
                yield row(scheme=scheme, policy=policy, seen=seen, evaluation=n, **told(trial))

    def choices(self, sizes: FloatArray) -> Iterator[tuple[str, Pool]]:
        """Give the pools that are chosen from sizes alone, nothing tried."""
        seen = self._seen(sizes)
        goal = self._goal(seen)
        yield BOUND, tuple(self.space.pools[np.argmax(goal.bounds)].tolist())
        affordable = self.space.pools[self.space.within(self.study.budget_usd_per_hour)]
        figures = kairos_figures(seen.share, seen.table.mean_s, seen.qos_s)
        yield KAIROS, one_shot(affordable, kairos_bounds(figures, affordable)).pool
        simulated = measured(seen, DEFAULT.dispatch, tolerance=_COARSE)
        yield SIMULATED, best_of(searched(goal, simulated)).pool

    def tried(
        self, scheme: str, policy: str, unseen: LoadDraws, sizes: FloatArray
    ) -> list[PoolTrial]:
        """Give the trials of a scheme, under the new mix."""
        measure, most = measured(unseen, policy, tolerance=_FINE), self.study.evaluations
        goal = self._goal(self._seen(sizes))
        if scheme != RIBBON:
            return searched(goal, measure, most)
        # it knows no bound of a pool, but one of all
        anything = np.full_like(goal.bounds, goal.bounds.max())
        budget = self.study.budget_usd_per_hour
        blind = LargestRate(space=self.space, budget_usd_per_hour=budget, bounds=anything)
        return search(blind, Ribbon(seed=self.seed), measure, most)

    def watched(self, pool: Pool, rate_rps: float) -> Change:
        """Give what a monitor tells of the change, on a run of the pool at that rate."""
        settings = MonitorSettings()
        # in the middle of a block, of each seed in another place
        changed_at = settings.window + settings.least + 37 * self.seed % settings.block
        count = changed_at + settings.window + settings.least
        mix = changing(self.study.before.sizes, self.study.after.sizes, at=changed_at / count)
        load = replace(self.study.before, sizes=mix)
        draws = self._draws(load, _AT_RATE + self.seed, count)
        policy = dispatch_policy(DEFAULT.dispatch)
        served = simulate(draws.scenarios(pool, policy.level)(rate_rps), policy)
        return _told(served, changed_at, TrafficMonitor(settings))

    def _goal(self, draws: LoadDraws) -> LargestRate:
        return bounded(draws, self.space, self.study.budget_usd_per_hour)

    def _seen(self, sizes: FloatArray) -> LoadDraws:
        """Draw requests like those seen."""
        mix = recorded_batches(sizes.astype(np.int64).tolist())
        load = Load(name="seen", sizes=mix, gaps=poisson_gaps)
        return self._draws(load, _SIMULATED + self.seed, _SEARCHED)

    def _draws(self, load: Load, seed: int, requests: int | None = None) -> LoadDraws:
        count = requests or self.study.requests
        return draw(self.study.table, self.study.qos_s, load, count, seed, sampled=True)


def waiting_at_arrivals(run: SimulationRun) -> IntArray:  # (N,)
    """Give how many waited when each request came, all having been served."""
    arrived_s = run.scenario.arrived_s
    started = np.searchsorted(np.sort(run.started_s), arrived_s, side="right")
    return np.asarray(np.maximum(np.arange(len(arrived_s)) - started, 0))


def _told(run: SimulationRun, changed_at: int, monitor: TrafficMonitor) -> Change:
    """Give what the monitor has when it tells of a change, and a window later."""
    scenario, told, sizes = run.scenario, len(run.scenario.arrived_s), np.zeros(0)
    seen = (scenario.size.tolist(), scenario.arrived_s.tolist(), waiting_at_arrivals(run).tolist())
    for i, (size, at, waiting) in enumerate(zip(*seen, strict=True)):
        if monitor.observe(size, at, waiting) and i >= changed_at and not len(sizes):
            told, sizes = i + 1, monitor.sizes()
    return Change(told - changed_at, sizes, scenario.size[-monitor.settings.window :])


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeLine:
    """What a scheme came to, over seeds: its best row each, of those that saw as many sizes."""

    scheme: str  # who chose
    seen: float  # sizes that the choice is of, mean
    tried: float  # pools, mean
    pool: str  # that was chosen most often
    rate_rps: float  # mean
    of_best: float  # mean
    least_of_best: float  # the worst seed's
    first_of_best: float  # of the first pool that was tried, mean


def lines_of(rows: Sequence[PoolChangeRow]) -> list[PoolChangeLine]:
    """Give a line for each scheme, and one more where it chose again a window later."""
    found: dict[tuple[str, int], list[list[PoolChangeRow]]] = {}
    for (scheme, _), of_seed in grouped(rows, "scheme", "seed").items():
        for place, tries in enumerate(grouped(of_seed, "seen").values()):
            found.setdefault((scheme, place), []).append(tries)
    return [_line(scheme, tries) for (scheme, _), tries in sorted(found.items(), key=_later)]


def _later(item: tuple[tuple[str, int], object]) -> int:
    return item[0][1]


def _line(scheme: str, tries: Sequence[Sequence[PoolChangeRow]]) -> PoolChangeLine:
    best = [max(of, key=lambda row: row.rate_rps) for of in tries]
    return PoolChangeLine(
        scheme=scheme,
        seen=mean(row.seen for row in best),
        tried=mean(of[-1].evaluation for of in tries),
        pool=mode(row.pool for row in best),
        rate_rps=mean(row.rate_rps for row in best),
        of_best=mean(row.of_best for row in best),
        least_of_best=min(row.of_best for row in best),
        first_of_best=mean(of[0].of_best for of in tries),
    )


def picture(rows: Sequence[PoolChangeRow]) -> str:
    """Give an SVG: the rate over the best pool's, of each line."""
    found = []
    for line in lines_of(rows):
        colour = COLOURS[0] if line.scheme in (BOUND, SIMULATED) else COLOURS[-1]
        note = f"{line.of_best:.3f}; {line.tried:.3g} tried"
        name = f"{line.scheme}, {line.seen:.0f} sizes"
        found.append(Bar(name=name, value=line.of_best, error=0.0, note=note, colour=colour))
    first = rows[0]
    title = f"{first.model}: {first.before} to {first.after}, rate over the best pool's"
    return bars(title, found)
