"""How many seconds of profiling a strategy takes to the first plan that truly satisfies.

Replays traces: a run is one strategy on one SLO with one seed, through the product's own
`planner.search`. Truth is the mean over the whole trace, of the plan as it would be
deployed, its shares included. Rows are written as runs end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines import checks
from pipelines.clock import Clock, ManualClock, SystemClock
from pipelines.infrastructure import Infrastructure, Tier
from pipelines.query import PlanningLimits, Query
from pipelines.replay import TraceEvaluator
from pipelines.slo import LatencyStatistic
from pipelines.trace import load_trace
from planner.history import QueryRecord
from planner.strategy import Judgement, Observation, Proposal, Strategy
from studies.planning_announced import Recorder
from studies.planning_contestants import Contestant, contestant, published_count
from studies.planning_history import drawn, earlier_queries, halves
from studies.planning_truth import Goal, Truth, check_level
from studies.tables import markdown, written

ONE_TIER = Infrastructure(name="measured", tiers=(Tier(name="measured", price_usd_per_hour=1.0),))
"""The tier a trace was measured on; the price only scales costs."""

FOR_GOOD: Mapping[str, Any] = {"patience": 10**9, "hopeless": 0.0}
"""What is asked is how long it takes to a true plan: a run that announced a false one goes on."""
_MARKS_S = (5.0, 20.0, 60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One run; fields are the columns of `planning.csv`, see `docs/studies/planning.md`.

    `response_seconds` are until the same plan as `profiling_seconds`, `workers` measurements being
    made at once, without the time that proposals take. The last seven count plans, see
    `studies.planning_announced.Shown`.
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
    """What to run.

    Attributes:
        traces: Folders.
        methods: Names, see `planning_contestants`.
        levels: Of SLOs: easy, medium, hard.
        seeds: Per Pareto point.
        points: Most Pareto points per level, spread evenly from the fastest to the most accurate
            one, `>= 2`; None: all.
        configurations: Most that a run may measure, `>= 1`; None: any number. For competitors
            whose proposals take seconds; a run that ends so without a plan counts its budget.
        first_seed: The first of them, `>= 0`.
        infrastructure: Where plans may run.
        budget_s: Profiling seconds of a run, `> 0`.
        first_only: Whether a run ends with its first true plan, whatever was announced before
            (cost ratios stay empty); False: when the search does, as users' do.
        statistic: Of latency.
        history: Earlier queries on one half of the inputs; then all runs are on the other half,
            each without and with them. 0: none, and all inputs.
        workers: Measurements made at once, `>= 1`.

    Raises:
        InvalidInput: If there is no such method or level: before the first run, not hours later.
    """

    traces: tuple[Path, ...]
    methods: tuple[str, ...]
    levels: tuple[str, ...] = ("easy", "medium", "hard")
    seeds: int = 20
    first_seed: int = 0
    infrastructure: Infrastructure = ONE_TIER
    budget_s: float = 60.0
    first_only: bool = False
    statistic: LatencyStatistic = LatencyStatistic.MEAN
    history: int = 0
    workers: int = 1
    points: int | None = None
    configurations: int | None = None

    def __post_init__(self) -> None:
        if self.points is not None:
            checks.require(self.points >= 2, "points", "must be >= 2", self.points)
        for name in self.methods:
            contestant(name, published_inputs=1)
        for level in self.levels:
            check_level(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """A run that ended, and how many of its strategy's on these SLOs did so far."""

    row: Row
    done: int
    runs: int


Observer = Callable[[Progress], None]


def run(study: PlanningStudy, out: Path, observer: Observer | None = None) -> list[Row]:
    """Give all rows, written to `out/planning.csv` one by one; the observer is told of each."""

    def told() -> Iterator[Row]:
        for progress in results(study):
            if observer is not None:
                observer(progress)
            yield progress.row

    return written(told(), Row, out / "planning.csv")


def results(study: PlanningStudy) -> Iterator[Progress]:
    """Give each run of a study as it ends."""
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    for trace in [load_trace(folder) for folder in study.traces]:
        if not study.history:
            yield from _rows(
                study, Truth(trace, study.infrastructure, study.statistic), seeds, ((),)
            )
            continue
        for seed in seeds:
            before, now = halves(trace, seed)
            earlier = earlier_queries(before, study.infrastructure, count=study.history, seed=seed)
            yield from _rows(
                study, Truth(now, study.infrastructure, study.statistic), (seed,), ((), earlier)
            )


def _rows(
    study: PlanningStudy,
    truth: Truth,
    seeds: Sequence[int],
    histories: Sequence[tuple[QueryRecord, ...]],
) -> Iterator[Progress]:
    for level, name in itertools.product(study.levels, study.methods):
        goals = _spread(truth.goals(level), study.points)
        each = list(itertools.product(seeds, histories))
        done = itertools.count(1)
        for goal in goals:
            rng = np.random.default_rng(0)
            count = published_count(truth.trace, goal.slo.accuracy, rng)
            who = contestant(name, published_inputs=count)
            for seed, history in each:
                row = one_run(study, truth, goal, (name, who), seed, history)
                yield Progress(row=row, done=next(done), runs=len(goals) * len(each))


def _spread(goals: Sequence[Goal], most: int | None) -> Sequence[Goal]:
    if most is None or len(goals) <= most:
        return goals
    return [goals[i * (len(goals) - 1) // (most - 1)] for i in range(most)]


def one_run(
    study: PlanningStudy,
    truth: Truth,
    goal: Goal,
    named: tuple[str, Contestant],
    seed: int,
    history: tuple[QueryRecord, ...] = (),
) -> Row:
    """Give the row of one run."""
    name, who = named
    stopwatch, clock = SystemClock(), ManualClock()
    times: list[float] = []
    recorder = Recorder(truth=truth, slo=goal.slo, first_only=study.first_only)
    timed = replace(
        who.planner,
        strategy=lambda setting, rng: _Timed(who.planner.strategy(setting, rng), stopwatch, times),
        **(FOR_GOOD if study.first_only else {}),
    )
    drawing = drawn(timed, truth.trace, seed)
    evaluator = TraceEvaluator(
        truth.trace, drawing.order, cached=who.cached, width=study.workers, clock=clock
    )
    query = Query(
        pipeline=truth.trace.graph.name,
        slo=goal.slo,
        seed=seed,
        limits=PlanningLimits(profiling_s=study.budget_s, configurations=study.configurations),
    )
    timed.search(
        query,
        study.infrastructure,
        evaluator,
        drawing,
        observer=recorder,
        clock=clock,
        history=history,
    )
    first, shown = recorder.first_true, recorder.shown.values()
    ratios = [recorder.cost_ratio(mark, goal.least_cost) for mark in _MARKS_S]
    return Row(
        trace=truth.trace.graph.name,
        method=name,
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
        shown=len(shown),
        met=sum(plan.met for plan in shown),
        met_wrongly=sum(plan.met and not plan.true for plan in shown),
        accuracy_covered=sum(plan.accuracy_covered for plan in shown),
        latency_covered=sum(plan.latency_covered for plan in shown),
        latency_sure=sum(plan.latency_sure for plan in shown),
        latency_sure_covered=sum(p.latency_sure and p.latency_covered for p in shown),
    )


class _Timed:
    """A strategy whose proposals are timed, learning from the last measurement included."""

    def __init__(self, inner: Strategy, clock: Clock, times: list[float]) -> None:
        self._inner = inner
        self._clock = clock
        self._times = times
        self._learning_s = 0.0

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        start = self._clock.now()
        proposal = self._inner.propose(under_way)
        self._times.append(self._clock.now() - start + self._learning_s)
        return proposal

    def observe(self, number: int, seen: Observation | None) -> None:
        start = self._clock.now()
        self._inner.observe(number, seen)
        self._learning_s = self._clock.now() - start

    def judged(self, number: int, seen: Observation) -> Judgement:
        start = self._clock.now()
        judgement = self._inner.judged(number, seen)
        self._learning_s += self._clock.now() - start
        return judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """The runs of a method on a level of SLOs of a trace."""

    trace: str
    method: str
    slo: str
    history: int
    runs: int
    mean_s: float
    response_s: float
    oracle_s: float
    found: float
    first_true: float
    steps: float
    cost_20s: float
    proposal_p50_s: float
    proposal_p95_s: float


def summary(rows: Iterable[Row]) -> list[Cell]:
    """Give a cell per trace, level, method and history, in order of first appearance."""
    groups: dict[tuple[str, str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.trace, row.slo, row.method, row.history), []).append(row)
    return [
        Cell(
            trace=trace,
            method=method,
            slo=slo,
            history=history,
            runs=len(group),
            mean_s=_mean([row.profiling_seconds for row in group]),
            response_s=_mean([row.response_seconds for row in group]),
            oracle_s=_mean([row.oracle_seconds for row in group]),
            found=_mean([float(row.found) for row in group]),
            first_true=_mean(
                [float(r.first_answer_true) for r in group if r.first_answer_true is not None]
            ),
            steps=_mean([float(row.steps) for row in group]),
            cost_20s=_mean([r.cost_ratio_20s for r in group if r.cost_ratio_20s is not None]),
            proposal_p50_s=_mean([row.proposal_seconds_p50 for row in group]),
            proposal_p95_s=_mean([row.proposal_seconds_p95 for row in group]),
        )
        for (trace, slo, method, history), group in groups.items()
    ]


def table(cells: Iterable[Cell]) -> str:
    """Give the cells as a Markdown table."""
    return markdown(cells, Cell)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")
