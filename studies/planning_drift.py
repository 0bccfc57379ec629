"""How many seconds of profiling a new plan takes after the world drifted (Circinus 4.3, 6.4).

A query is planned in one world, its cheapest plan is deployed, and the world becomes another.
Where that plan breaks and a plan that truly satisfies exists, the query is planned cold, and again
with what is known (`planner.known`). How worlds drift, and how that deviates from the paper:
`studies.planning_worlds`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from deploy.methods import DEFAULT
from deploy.planning import planner_of
from pipelines import checks
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from pipelines.query import PlanningLimits, Query
from pipelines.replay import TraceEvaluator
from pipelines.slo import Slo
from pipelines.trace import Trace, load_trace
from planner.history import QueryRecord
from planner.known import Known
from planner.result import PlanningResult
from profiler.drawing import Drawing
from studies.planning import FOR_GOOD
from studies.planning_announced import Recorder
from studies.planning_history import drawn, earlier_queries, record_of
from studies.planning_truth import Truth, check_level
from studies.planning_worlds import (
    Worlds,
    with_harder_inputs,
    with_other_inputs,
    with_thinner_link,
)
from studies.tables import written

_OURS = planner_of(DEFAULT.planning)
_FOR_GOOD = replace(_OURS, **FOR_GOOD)


class Kind(StrEnum):
    """What drifts."""

    LATENCY = "latency"
    ACCURACY = "accuracy"


class Outcome(StrEnum):
    """What a drift did to a query."""

    COUNTED = "counted"
    """The plan in force breaks, and another one would do."""
    HOLDS = "holds"
    """The plan in force still satisfies: nothing to do."""
    IMPOSSIBLE = "impossible"
    """No plan satisfies any more."""
    UNPLANNED = "unplanned"
    """No plan was found before the drift, or one that was not true then either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftStudy:
    """What to run.

    Attributes:
        traces: Folders.
        kind: What drifts.
        levels: Of SLOs: easy, medium, hard; SLOs are of the world before.
        seeds: Per SLO, `>= 1`.
        first_seed: The first of them, `>= 0`.
        infrastructure: Where plans may run; None: `WEAK_DEVICE` for latency, else one tier.
        link: The tiers whose link drifts; None: the infrastructure's first.
        left: Part of its bandwidth that is left, in (0, 1). A half: as in section 6.4.
        budget_s: Profiling seconds of a run after the drift, `> 0`.
        before_s: Most profiling seconds of planning before it, `> 0`.
        history: Earlier queries in the world before that replanning is told of, too, `>= 0`.
        after: Folder of a trace in the world after a drift of accuracy; None: inputs drift within
            a trace.
    """

    traces: tuple[Path, ...]
    kind: Kind
    levels: tuple[str, ...] = ("medium",)
    seeds: int = 3
    first_seed: int = 0
    infrastructure: Infrastructure | None = None
    link: tuple[str, str] | None = None
    left: float = 0.5
    budget_s: float = 60.0
    before_s: float = 1.0
    history: int = 0
    after: Path | None = None

    def __post_init__(self) -> None:
        checks.require(0 < self.left < 1, "drift.left", "must be in (0, 1)", self.left)
        checks.positive("drift.budget_s", self.budget_s)
        checks.positive("drift.before_s", self.before_s)
        checks.require(self.history >= 0, "drift.history", "must be >= 0", self.history)
        fits = self.after is None or (self.kind is Kind.ACCURACY and len(self.traces) == 1)
        rule = "must go with one trace and a drift of accuracy"
        checks.require(fits, "drift.after", rule, f"{self.after} ({self.kind.value})")
        for level in self.levels:
            check_level(level)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow:
    """A query that met a drift; fields are the columns of `drift.csv`.

    Seconds after the drift are there where the outcome is counted. A run that finds no true plan
    counts with its whole budget.

    Attributes:
        trace: Name of the pipeline.
        drift: What drifted.
        change: How, in words.
        slo: Its level.
        seed: Of the order of inputs and of the search.
        accuracy_slo: At least.
        latency_slo_s: At most.
        outcome: What the drift did.
        known: Configurations measured before it.
        before_seconds: Of profiling before it, until the search ended by itself.
        oracle_seconds: 20 inputs of the cheapest truly feasible configuration, after it.
        cold_seconds: Until the first true plan, planned from nothing.
        cold_found: Whether there was one.
        replanned_seconds: The same with what is known.
        replanned_found: Whether there was one.
        at_once: Whether replanning answered from measurements alone.
        first_answer_true: Whether the first plan that replanning announced was true.
    """

    trace: str
    drift: str
    change: str
    slo: str
    seed: int
    accuracy_slo: float
    latency_slo_s: float
    outcome: str
    known: int
    before_seconds: float
    oracle_seconds: float | None = None
    cold_seconds: float | None = None
    cold_found: bool | None = None
    replanned_seconds: float | None = None
    replanned_found: bool | None = None
    at_once: bool | None = None
    first_answer_true: bool | None = None


def run(study: DriftStudy, out: Path) -> list[DriftRow]:
    """Give all rows, written to `out/drift.csv` one by one.

    Raises:
        InvalidInput: If a trace, a level or the link is not there, or inputs have no features.
    """
    return written(results(study), DriftRow, out / "drift.csv")


def results(study: DriftStudy) -> Iterator[DriftRow]:
    """Give the rows of a study as runs end."""
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    for trace in [load_trace(folder) for folder in study.traces]:
        worlds = _worlds(study, trace)
        earlier = {seed: _earlier(worlds.before, study.history, seed) for seed in seeds}
        for level in study.levels:
            slos = worlds.before.slos(level)
            for seed, slo in itertools.product(seeds, slos):
                yield one_run(study, worlds, level, slo, seed, earlier[seed])


def _worlds(study: DriftStudy, trace: Trace) -> Worlds:
    if study.kind is Kind.LATENCY:
        return with_thinner_link(trace, study.infrastructure, study.link, study.left)
    if study.after is not None:
        return with_other_inputs(trace, load_trace(study.after), study.infrastructure)
    return with_harder_inputs(trace, study.infrastructure)


def one_run(
    study: DriftStudy,
    worlds: Worlds,
    level: str,
    slo: Slo,
    seed: int,
    earlier: tuple[QueryRecord, ...] = (),
) -> DriftRow:
    """Give the row of one query; `earlier` ones are what replanning is told of besides its own."""
    past = _Past.of(worlds.before, slo, seed, study.before_s, earlier)
    outcome = _outcome(worlds, past, slo, study.kind)
    row = DriftRow(
        trace=worlds.before.trace.graph.name,
        drift=study.kind.value,
        change=worlds.change,
        slo=level,
        seed=seed,
        accuracy_slo=slo.accuracy,
        latency_slo_s=slo.latency_s,
        outcome=outcome.value,
        known=len(past.result.configurations),
        before_seconds=past.result.spent_s,
    )
    if outcome is not Outcome.COUNTED:
        return row
    truth = worlds.after
    cold = _cold(truth, past.query, study.budget_s)
    again = _replanned(truth, past, study)
    cold_s, again_s = _seconds(cold), _seconds(again.recorder, again.before_s)
    return replace(
        row,
        oracle_seconds=truth.oracle_s(slo),
        cold_seconds=study.budget_s if cold_s is None else cold_s,
        cold_found=cold_s is not None,
        replanned_seconds=study.budget_s if again_s is None else again_s,
        replanned_found=again_s is not None,
        at_once=again.at_once,
        first_answer_true=again.recorder.first_answer_true,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Past:
    """A query as it was planned before the drift."""

    query: Query
    evaluator: TraceEvaluator
    result: PlanningResult
    earlier: tuple[QueryRecord, ...]

    @classmethod
    def of(
        cls,
        truth: Truth,
        slo: Slo,
        seed: int,
        budget_s: float,
        earlier: tuple[QueryRecord, ...],
    ) -> _Past:
        """Plan it as the product does, until the search ends by itself."""
        query = _within(Query(pipeline=truth.trace.graph.name, slo=slo, seed=seed), budget_s)
        drawing, evaluator = _evaluator(truth, seed)
        result = _OURS.search(query, truth.infrastructure, evaluator, drawing)
        return cls(query=query, evaluator=evaluator, result=result, earlier=earlier)

    @property
    def plan(self) -> Plan | None:
        """The plan in force: the cheapest."""
        return self.result.plans[0] if self.result.plans else None

    @property
    def history(self) -> tuple[QueryRecord, ...]:
        """What it and earlier queries leave to later ones, the newest first."""
        return (record_of("before", self.query, self.result), *self.earlier)

    def known(self, *, holds: bool) -> Known:
        """Give what it measured as far as that holds after the drift."""
        measured = self.result.configurations if holds else ()
        return Known(
            graph=self.evaluator.graph,
            # One input was met by each of them: all that is known of it comes, nothing is paid.
            profiles=[self.evaluator.measure(one.configuration, 1) for one in measured],
            population=self.evaluator.population,
            trusted={plan.configuration: self.query.slo.accuracy for plan in self.result.plans},
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Again:
    """What replanning announced, and the seconds that its evaluator had charged before."""

    recorder: Recorder
    before_s: float
    at_once: bool


def _earlier(before: Truth, count: int, seed: int) -> tuple[QueryRecord, ...]:
    if count == 0:
        return ()
    return earlier_queries(before.trace, before.infrastructure, count=count, seed=seed)


def _outcome(worlds: Worlds, past: _Past, slo: Slo, kind: Kind) -> Outcome:
    plan = past.plan
    if plan is None or not worlds.before.satisfies(plan, slo):
        return Outcome.UNPLANNED
    # Seconds that differ between halves of the inputs are no drift of accuracy.
    accuracy = kind is Kind.ACCURACY
    good = worlds.after.accurate(plan, slo) if accuracy else worlds.after.satisfies(plan, slo)
    if good:
        return Outcome.HOLDS
    return Outcome.IMPOSSIBLE if worlds.after.oracle_s(slo) is None else Outcome.COUNTED


def _cold(truth: Truth, query: Query, budget_s: float) -> Recorder:
    recorder = Recorder(truth=truth, slo=query.slo, first_only=True)
    drawing, evaluator = _evaluator(truth, query.seed)
    query = _within(query, budget_s)
    _FOR_GOOD.search(query, truth.infrastructure, evaluator, drawing, observer=recorder)
    return recorder


def _replanned(truth: Truth, past: _Past, study: DriftStudy) -> _Again:
    """Plan again as the product does; where its answer at once is untrue, the search goes on."""
    same_inputs = study.kind is Kind.LATENCY
    query = past.query
    drawing, evaluator = _evaluator(truth, query.seed)
    if same_inputs:
        evaluator = past.evaluator
    before_s = evaluator.spent_s
    now = _within(query, before_s + study.budget_s)
    recorder = Recorder(truth=truth, slo=query.slo, first_only=True)
    known = past.known(holds=same_inputs)
    plans = _OURS.answer(now, truth.infrastructure, known, drawing).plans
    if not plans or not recorder.judge(plans[0], before_s):
        _FOR_GOOD.search(
            now,
            truth.infrastructure,
            evaluator,
            drawing,
            observer=recorder,
            history=past.history,
        )
    return _Again(recorder=recorder, before_s=before_s, at_once=bool(plans))


def _seconds(recorder: Recorder, before_s: float = 0.0) -> float | None:
    first = recorder.first_true
    return None if first is None else first.spent_s - before_s


def _within(query: Query, profiling_s: float) -> Query:
    return replace(query, limits=PlanningLimits(profiling_s=profiling_s))


def _evaluator(truth: Truth, seed: int) -> tuple[Drawing, TraceEvaluator]:
    drawing = drawn(_OURS, truth.trace, seed)
    return drawing, TraceEvaluator(truth.trace, drawing.order)
