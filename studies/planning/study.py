"""How many seconds of profiling a strategy takes to the first plan that truly satisfies.

Replays traces: a run is one strategy on one SLO with one seed, through the product's own
`planner.search.loop`. GroundTruth is the mean over the whole trace, of the plan as it would be
deployed, its shares included. Rows are written as runs end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from circinus.deploy.planning import Planner, to_the_end
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, ManualClock, SystemClock
from circinus.pipelines.execution.features import recorded_features
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace, load_trace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import LatencyStatistic, Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.result import PlanningResult
from circinus.planner.strategy.protocol import (
    Judgement,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
)
from circinus.profiler.drawing import Drawing
from circinus.studies.planning.ground_truth import (
    LEVELS,
    Goal,
    GroundTruth,
    Recorder,
    drawn,
    level_factors,
)
from circinus.studies.planning.methods import StudyMethod, published_count, study_method
from circinus.studies.planning.splitting import halves
from circinus.studies.report.tables import written

ONE_TIER = Infrastructure(name="measured", tiers=(Tier(name="measured", price_usd_per_hour=1.0),))
"""The tier a trace was measured on; the price only scales costs."""

_MARKS_S = (5.0, 20.0, 60.0)
_STREAM = 2  # of a run's seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningRow:
    """One run; fields are the columns of `planning.csv`, see `docs/studies/planning.md`.

    `response_seconds` are until the same plan as `profiling_seconds`, `workers` measurements being
    made at once, without the time that proposals take. The last seven count plans, see
    `studies.planning.ground_truth.Shown`.
    """

    trace: str
    method: str
    slo: str
    seed: int
    accuracy_slo: float
    latency_slo_s: float
    history: int
    profiling_seconds: float
    found: bool
    first_answer_true: bool | None
    steps: int
    oracle_seconds: float
    cost_ratio_5s: float | None
    cost_ratio_20s: float | None
    cost_ratio_60s: float | None
    proposal_seconds_p50: float
    proposal_seconds_p95: float
    workers: int
    response_seconds: float
    shown: int
    met: int
    met_wrongly: int
    accuracy_covered: int
    latency_covered: int
    latency_sure: int
    latency_sure_covered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningStudy:
    """What to run; InvalidInput for an unknown method or level now, not hours later."""

    # deviates: own-pipelines
    traces: tuple[Path, ...]  # folders
    methods: tuple[str, ...]  # names, see `studies.planning.methods`
    # of SLOs: easy, medium, hard; hard-medium: accuracy and latency apart
    levels: tuple[str, ...] = ("easy", "medium", "hard")
    seeds: int = 20  # per Pareto point
    first_seed: int = 0  # the first of them, `>= 0`
    infrastructure: Infrastructure = ONE_TIER  # where plans may run
    # deviates: seconds-of-profiling
    budget_s: float = 60.0  # profiling seconds of a run, `> 0`
    # whether a run ends with its first true plan (without cost ratios), or as users' searches do
    first_only: bool = False
    statistic: LatencyStatistic = LatencyStatistic.MEAN  # of latency
    # earlier queries on one half of the inputs, planned by the method of the run; then all runs
    # are on the other half, each without and with them. 0: none, and all inputs
    history: int = 0
    history_budget_s: float = 2.0  # profiling seconds of an earlier query, `> 0`
    workers: int = 1  # measurements made at once, `>= 1`
    # most Pareto points per level, spread evenly from the fastest to the most accurate one, `>=
    # 2`; None: all
    points: int | None = None
    # queries of each level and seed, their Pareto points drawn as in 6.1, `>= 1`; None: a query
    # for each point
    drawn: int | None = None
    # most that a run may measure, `>= 1`; None: any number. For competitors whose proposals take
    # seconds; a run that ends so without a plan counts its budget
    configurations: int | None = None

    def __post_init__(self) -> None:
        checks.at_least("points", self.points, 2)
        checks.at_least("drawn", self.drawn, 1)
        both = self.drawn is not None and self.points is not None
        checks.require(not both, "points", "must be left out with drawn", self.points)
        checks.positive("history_budget_s", self.history_budget_s)
        for name in self.methods:
            study_method(name, published_inputs=1)
        for level in self.levels:
            level_factors(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """A run that ended, and how many of its strategy's on these SLOs did so far."""

    row: PlanningRow
    done: int
    runs: int


Observer = Callable[[StudyProgress], None]


def run(
    study: PlanningStudy, out: Path, observer: Observer = lambda progress: None
) -> list[PlanningRow]:
    """Yield all rows, written to `out/planning.csv` one by one; the observer gets each."""

    def rows() -> Iterator[PlanningRow]:
        for progress in results(study):
            observer(progress)
            yield progress.row

    return written(rows(), PlanningRow, out / "planning.csv")


def results(study: PlanningStudy) -> Iterator[StudyProgress]:
    """Yield each run of a study as it ends."""
    where = study.infrastructure
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    for trace in [load_trace(folder) for folder in study.traces]:
        if not study.history:
            truth = GroundTruth(trace, where, study.statistic)
            yield from _runs(study, truth, seeds, None)
            continue
        for seed in seeds:
            before, truth = (GroundTruth(h, where, study.statistic) for h in halves(trace, seed))
            earlier = partial(
                earlier_queries,
                before,
                count=study.history,
                seed=seed,
                budget_s=study.history_budget_s,
            )
            yield from _runs(study, truth, (seed,), earlier)


def _runs(
    study: PlanningStudy,
    truth: GroundTruth,
    seeds: Sequence[int],
    earlier: Callable[[str], tuple[QueryRecord, ...]] | None,  # by the name of a method; None: no
) -> Iterator[StudyProgress]:
    histories: dict[str, tuple[tuple[QueryRecord, ...], ...]] = {
        name: ((),) if earlier is None else ((), earlier(name)) for name in study.methods
    }
    for level in study.levels:
        cases = list(_cases(study, truth.goals(level), seeds))
        for name in study.methods:
            named = cache(partial(method_for, name, truth))
            runs = itertools.product(cases, histories[name])
            for done, ((goal, seed), history) in enumerate(runs, start=1):
                row = _row(study, truth, goal, named(goal.slo), seed, history)
                count = len(cases) * len(histories[name])
                yield StudyProgress(row=row, done=done, runs=count)


def method_for(name: str, truth: GroundTruth, slo: Slo) -> StudyMethod:
    """Return a method on a trace: published competitors measure on what the t-test takes there."""
    return study_method(name, published_inputs=published_count(truth.trace, slo.accuracy))


def _cases(
    study: PlanningStudy, goals: Sequence[Goal], seeds: Sequence[int]
) -> Iterator[tuple[Goal, int]]:
    """Yield the queries: of each point all seeds, or of each seed what it draws."""
    if study.drawn is None:
        yield from itertools.product(_spread(goals, study.points), seeds)
        return
    for seed in seeds:
        for goal in drawn(goals, study.drawn, seed):
            yield goal, seed


def _spread(goals: Sequence[Goal], most: int | None) -> Sequence[Goal]:
    if most is None or len(goals) <= most:
        return goals
    return [goals[i * (len(goals) - 1) // (most - 1)] for i in range(most)]


def _row(
    study: PlanningStudy,
    truth: GroundTruth,
    goal: Goal,
    who: StudyMethod,
    seed: int,
    history: tuple[QueryRecord, ...],
) -> PlanningRow:
    clock, times = ManualClock(), list[float]()
    recorder = Recorder(truth=truth, slo=goal.slo, first_only=study.first_only)
    limits = PlanningLimits(
        profiling_s=study.budget_s, response_s=None, configurations=study.configurations
    )
    name = truth.trace.graph.name
    query = Query(pipeline=name, slo=goal.slo, seed=seed, limits=limits)
    planner = _timed(who.planner, times, for_good=study.first_only)
    drawing, evaluator = replayed(
        planner, truth.trace, seed, cached=who.cached, width=study.workers, clock=clock
    )
    planner.search(
        query,
        study.infrastructure,
        evaluator,
        drawing,
        observer=recorder,
        clock=clock,
        history=history,
    )
    first, plans = recorder.first_true, recorder.shown.values()
    ratios = [recorder.cost_ratio(mark, goal.least_cost) for mark in _MARKS_S]
    return PlanningRow(
        trace=name,
        method=who.name,
        slo=goal.level,
        seed=seed,
        accuracy_slo=goal.slo.accuracy,
        latency_slo_s=goal.slo.latency_s,
        history=len(history),
        profiling_seconds=study.budget_s if first is None else first.spent_s,
        found=first is not None,
        first_answer_true=recorder.first_answer_true,
        steps=len(times) if first is None else first.steps,
        oracle_seconds=goal.oracle_s,
        cost_ratio_5s=ratios[0],
        cost_ratio_20s=ratios[1],
        cost_ratio_60s=ratios[2],
        proposal_seconds_p50=float(np.median(times)) if times else 0.0,
        proposal_seconds_p95=float(np.quantile(times, 0.95)) if times else 0.0,
        workers=study.workers,
        response_seconds=clock.now() if first is None else first.elapsed_s,
        shown=len(plans),
        met=sum(plan.met for plan in plans),
        met_wrongly=sum(plan.met and not plan.true for plan in plans),
        accuracy_covered=sum(plan.accuracy_covered for plan in plans),
        latency_covered=sum(plan.latency_covered for plan in plans),
        latency_sure=sum(plan.latency_sure for plan in plans),
        latency_sure_covered=sum(p.latency_sure and p.latency_covered for p in plans),
    )


def _timed(planner: Planner, times: list[float], *, for_good: bool) -> Planner:
    """Return a planner that adds the seconds of each of its proposals to a list."""
    own, clock = planner.settings, SystemClock()
    settings = replace(
        own, strategy=lambda setting, rng: _Timed(own.strategy(setting, rng), clock, times)
    )
    # The time to a true plan is measured: a run that announced a false one goes on.
    # deviates: until-a-true-plan
    return replace(planner, settings=to_the_end(settings) if for_good else settings)


@dataclass(slots=True)
class _Timed:
    """A strategy whose proposals are timed, learning from the last measurement included."""

    _inner: Strategy
    _clock: Clock
    _times: list[float]
    _learning_s: float = 0.0

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        start = self._clock.now()
        proposal = self._inner.propose(under_way)
        self._times.append(self._clock.now() - start + self._learning_s)
        return proposal

    def observe(self, number: int, measured: Measured | None) -> None:
        start = self._clock.now()
        self._inner.observe(number, measured)
        self._learning_s = self._clock.now() - start

    def judged(self, number: int, measured: Measured) -> Judgement:
        start = self._clock.now()
        judgement = self._inner.judged(number, measured)
        self._learning_s += self._clock.now() - start
        return judgement

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        return self._inner.finishing(plans, under_way)

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        return self._inner.undecided(plans)

    def under(self, setting: SearchSetting) -> Strategy:
        return self._inner.under(setting)


def earlier_queries(
    truth: GroundTruth, method: str, *, count: int, seed: int, budget_s: float = 2.0
) -> tuple[QueryRecord, ...]:
    """Return what `count` queries measured, planned by a method, the newest first.

    They are of the same pipeline, each for a Pareto point and a level drawn at random, the same
    ones for every method, and profile for so many seconds.
    """
    rng = np.random.default_rng([seed, _STREAM])
    slos = [slo for level in LEVELS for slo in truth.slos(level)]
    limits, records = PlanningLimits(profiling_s=budget_s, response_s=None), list[QueryRecord]()
    for i in range(count):
        slo, own = slos[int(rng.integers(len(slos)))], int(rng.integers(2**31))
        query = Query(pipeline=truth.trace.graph.name, slo=slo, seed=own, limits=limits)
        who = method_for(method, truth, slo)
        drawing, evaluator = replayed(who.planner, truth.trace, query.seed, cached=who.cached)
        result = who.planner.search(query, truth.infrastructure, evaluator, drawing)
        records.append(record_of(f"earlier-{i}", query, result))
    return tuple(records[::-1])


def replayed(
    planner: Planner,
    trace: Trace,
    seed: int,
    *,
    cached: bool = True,
    width: int = 1,
    clock: Clock | None = None,
) -> tuple[Drawing, TraceEvaluator]:
    """Return the order in which a planner draws the inputs of a trace, and what replays it so."""
    count = len(trace.input_bytes)
    drawing = planner.drawing(lambda: recorded_features(trace), count, seed)
    return drawing, TraceEvaluator(trace, drawing.order, cached=cached, width=width, clock=clock)


def record_of(name: str, query: Query, result: PlanningResult) -> QueryRecord:
    """Return what a planned query leaves to later ones."""
    return QueryRecord(
        query=name, fingerprint="study", slo=query.slo, configurations=result.configurations
    )
