"""How good is a pool that is chosen anew when the mix of sizes changes under load?

The pool with the highest bound for the first mix serves while the monitor looks on; then the mix
changes. Some choose from the sizes since, others try pool after pool, as in Kairos' figure 12
(8.4). The worth of pools is measured on draws of the new mix that none of them observes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean, mode
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from circinus.deploy.methods import DEFAULT
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.dispatch.policies import dispatch_policy
from circinus.scheduler.pool.kairos_bound import kairos_bounds, kairos_figures
from circinus.scheduler.pool.monitor import MonitorSettings, TrafficMonitor
from circinus.scheduler.pool.ribbon import Ribbon
from circinus.scheduler.pool.search import (
    MOST_OF_TYPE,
    KairosPlus,
    LargestRate,
    MeasurePool,
    Pool,
    PoolSpace,
    PoolStrategy,
    PoolTrial,
    search,
)
from circinus.scheduler.pool.throughput_bounds import throughput_bounds
from circinus.scheduler.simulation.choosing import largest_for_budget
from circinus.scheduler.simulation.draws import IN_TIME, LoadDraws, SimulatedRates, draw
from circinus.scheduler.simulation.engine import SimulationRun, simulate
from circinus.scheduler.simulation.loads import (
    Load,
    changing,
    load_of,
    poisson_gaps,
    recorded_batches,
)
from circinus.scheduler.simulation.measurements import LatencyTable
from circinus.scheduler.simulation.pool_choice import ChoiceMethod, PoolQuestion
from circinus.studies.dispatch.study import policy_for
from circinus.studies.report.charts import COLOURS, Bar, bars
from circinus.studies.report.tables import grouped, written

OLD, RIBBON = "old", "ribbon"
CHOOSING = (ChoiceMethod.KAIROS, ChoiceMethod.BOUND, ChoiceMethod.SIMULATED)
"""Who tries nothing; the default policy serves what they choose."""

TRYING = {"kairos_plus": "kairos", "drs": "drs", "clockwork": "clockwork", RIBBON: "fcfs"}
"""Who tries pools, and the dispatch policy that serves them."""

_AT_RATE, _UNSEEN, _OBSERVED = 5000, 6000, 7000  # seeds are so much larger: streams of their own
_SEARCHED = 4_000  # requests of bounds, and of sweeps for the threshold of DRS
_SOON = 1_000  # sizes of the second choice
_NO_BOUND = 1.5  # times the highest: no rate that is measured is above it


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeRow:
    """A line of `pool-change.csv`."""

    model: str  # name of the model
    before: str  # mix that the pool was chosen for
    after: str  # that follows
    scheme: str  # who chose or tried the pool
    policy: str  # that dispatches
    seed: int  # of all draws
    told_after: int  # requests of the new mix before the monitor reported it
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
        """Return the pools that the budget may pay, and more."""
        budget = self.budget_usd_per_hour
        return PoolSpace.within_budget(self.table.kinds, self.prices, budget, MOST_OF_TYPE)


class Change(NamedTuple):
    """A change as the monitor detects it."""

    told_after: int  # requests of the new mix
    # of all requests since the change, but for less than a block of those before it
    sizes: FloatArray
    known: int  # of them, when the monitor reported it

    def stages(self) -> tuple[FloatArray, ...]:
        """Return the sizes to choose from: at the report, soon after, and after a window."""
        return self.sizes[: self.known], self.sizes[:_SOON], self.sizes


def run(study: PoolChangeStudy, out: Path) -> list[PoolChangeRow]:
    """Return all rows, written to `out/pool-change.csv` one by one."""
    return written(results(study), PoolChangeRow, out / "pool-change.csv")


def results(study: PoolChangeStudy) -> Iterator[PoolChangeRow]:
    """Yield the rows of a study as they are measured."""
    space = study.space()
    for seed in range(study.first_seed, study.first_seed + study.seeds):
        yield from _Seed(study, space, seed).rows()


def measured(draws: LoadDraws, policy: str) -> MeasurePool:
    """Return what measures the allowable rate of a pool; DRS has its best threshold there."""
    sweep = draws.first(_SEARCHED)

    def measure(pool: Pool) -> PoolTrial:
        rates = SimulatedRates(policy=policy_for(policy, sweep, pool), draws=draws)
        return PoolTrial(pool, rates.rate(pool))

    return measure


def best_rate(draws: LoadDraws, space: PoolSpace, budget: float) -> float:
    """Return the highest allowable rate of all pools, under the default policy."""
    bounds, full = np.zeros(len(space.pools)), space.full(budget)
    share, mean_s = draws.share, draws.table.mean_s
    bounds[full] = throughput_bounds(
        share, mean_s, space.pools[full], draws.qos_s, in_time=IN_TIME
    )
    goal = LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)
    rates = SimulatedRates(policy=dispatch_policy(DEFAULT.dispatch), draws=draws)
    trials = search(goal, KairosPlus(bounds=bounds), rates, len(bounds))
    return max((trial.value for trial in trials), default=0.0)


@dataclass(frozen=True, slots=True)
class _Seed:
    study: PoolChangeStudy
    space: PoolSpace
    seed: int

    def rows(self) -> Iterator[PoolChangeRow]:
        """Yield the rows of the seed."""
        default = DEFAULT.dispatch
        before = self._draws(self.study.before, self.seed)
        old = self.chosen(ChoiceMethod.BOUND, before.table.batches[before.rows])
        rate_rps = measured(before, default)(old).value
        change = self.watched(old, self.study.load * rate_rps)
        unseen = self._draws(self.study.after, _UNSEEN + self.seed)
        best_rps = best_rate(unseen, self.space, self.study.budget_usd_per_hour)
        measure = measured(unseen, default)
        row = partial(
            PoolChangeRow,
            model=self.study.table.model,
            before=self.study.before.name,
            after=self.study.after.name,
            seed=self.seed,
            told_after=change.told_after,
        )

        def outcome(trial: PoolTrial) -> dict[str, Any]:
            rate, pool = trial.value, " ".join(map(str, trial.pool))
            return {"pool": pool, "rate_rps": rate, "of_best": rate / best_rps}

        yield row(scheme=OLD, policy=default, seen=0, evaluation=0, **outcome(measure(old)))
        for sizes in change.stages():
            for method in CHOOSING:
                of = outcome(measure(self.chosen(method, sizes)))
                yield row(scheme=method, policy=default, seen=len(sizes), evaluation=0, **of)
        for scheme, policy in TRYING.items():
            of_scheme = partial(row, scheme=scheme, policy=policy, seen=change.known)
            for n, trial in enumerate(self.tried(scheme, policy, unseen, change), 1):
                yield of_scheme(evaluation=n, **outcome(trial))

    def chosen(self, method: ChoiceMethod, sizes: FloatArray | IntArray) -> Pool:
        """Return the pool that a method chooses for observed sizes."""
        question = PoolQuestion(
            table=self.study.table,
            prices=self.study.prices,
            qos_s=self.study.qos_s,
            dispatch=DEFAULT.dispatch,
            load=_size_load(sizes),
            method=method,
            sampled=True,
            seed=self.seed,
        )
        choice = largest_for_budget(question, self.study.budget_usd_per_hour)
        checks.require(choice.chosen is not None, "budget", "must buy a rate", choice.reason)
        counts = dict(zip(choice.types, choice.chosen.pool if choice.chosen else (), strict=True))
        return tuple(counts.get(kind, 0) for kind in self.study.table.kinds)

    def tried(
        self, scheme: str, policy: str, unseen: LoadDraws, change: Change
    ) -> list[PoolTrial]:
        """Return the trials of a scheme, under the new mix."""
        space, budget = self.space, self.study.budget_usd_per_hour
        observed = self._draws(_size_load(change.stages()[0]), _OBSERVED + self.seed, _SEARCHED)
        figures = kairos_figures(observed.share, observed.table.mean_s, observed.qos_s)
        bounds = kairos_bounds(figures, space.pools)
        goal = LargestRate(space=space, budget_usd_per_hour=budget, bounds=bounds)
        strategy: PoolStrategy = KairosPlus(bounds=bounds)
        if scheme == RIBBON:  # it knows no bound of a pool, but one of all
            strategy = Ribbon(seed=self.seed)
            goal = replace(goal, bounds=np.full_like(bounds, _NO_BOUND * bounds.max()))
        return search(goal, strategy, measured(unseen, policy), self.study.evaluations)

    def watched(self, pool: Pool, rate_rps: float) -> Change:
        """Return the change that a monitor reports, on a run of the pool at that rate."""
        settings = MonitorSettings()
        # in the middle of a block, of each seed in another place
        changed_at = settings.window + settings.least + 37 * self.seed % settings.block
        count = changed_at + settings.window + settings.least
        mix = changing(self.study.before.sizes, self.study.after.sizes, at=changed_at / count)
        load = replace(self.study.before, sizes=mix)
        draws = self._draws(load, _AT_RATE + self.seed, count)
        policy = dispatch_policy(DEFAULT.dispatch)
        served = simulate(draws.scenarios(pool, policy.level)(rate_rps), policy)
        return observed_change(served, changed_at, TrafficMonitor(settings))

    def _draws(self, load: Load, seed: int, requests: int | None = None) -> LoadDraws:
        count = requests or self.study.requests
        return draw(self.study.table, self.study.qos_s, load, count, seed, sampled=True)


def _size_load(sizes: FloatArray | IntArray) -> Load:
    """Return a load of the observed sizes."""
    mix = recorded_batches(sizes.astype(np.int64).tolist())
    return Load(name="seen", sizes=mix, gaps=poisson_gaps)


def observed_change(run: SimulationRun, changed_at: int, monitor: TrafficMonitor) -> Change:
    """Return the change that a monitor reports after a request of a run, with the window after it.

    InvalidInput if it reports none.
    """
    scenario = run.scenario
    columns = (scenario.size.tolist(), scenario.arrived_s.tolist(), run.waiting.tolist())
    for i, (size, at, waiting) in enumerate(zip(*columns, strict=True), 1):
        if monitor.observe(size, at, waiting) and i > changed_at:
            known = len(monitor.sizes())
            first = i - known
            sizes = scenario.size[first : first + monitor.settings.window]
            return Change(i - changed_at, sizes, known)
    raise InvalidInput.of("mix_after", "must be another than before: no change is seen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolChangeLine:
    """A scheme over seeds: its best row each, of those with as many observed sizes."""

    scheme: str  # who chose
    seen: float  # sizes that the choice is of, mean
    tried: float  # pools, mean
    pool: str  # that was chosen most often
    rate_rps: float  # mean
    of_best: float  # mean
    least_of_best: float  # the worst seed's
    first_of_best: float  # of the first pool that was tried, mean


def lines_of(rows: Sequence[PoolChangeRow]) -> list[PoolChangeLine]:
    """Return a line for each scheme, and one more where it chose again a window later."""
    by_scheme: dict[tuple[str, int], list[list[PoolChangeRow]]] = {}
    for (scheme, _), of_seed in grouped(rows, "scheme", "seed").items():
        for place, tries in enumerate(grouped(of_seed, "seen").values()):
            by_scheme.setdefault((scheme, place), []).append(tries)
    return [_line(scheme, tries) for (scheme, _), tries in sorted(by_scheme.items(), key=_later)]


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


def picture(rows: Sequence[PoolChangeRow]) -> Figure:
    """Draw the rate over the best pool's, of each line."""
    entries = []
    for line in lines_of(rows):
        colour = COLOURS[0] if line.scheme in CHOOSING else COLOURS[-1]
        note = f"{line.of_best:.3f}; {line.tried:.3g} tried"
        name = f"{line.scheme}, {line.seen:.0f} sizes"
        entries.append(Bar(name=name, value=line.of_best, error=0.0, note=note, colour=colour))
    first = rows[0]
    title = f"{first.model}: {first.before} to {first.after}, rate over the best pool's"
    return bars(title, entries)
