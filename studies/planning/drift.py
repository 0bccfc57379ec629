"""How many seconds of profiling does a new plan take after a drift (Circinus 4.3, 6.4)?

A query is planned, its cheapest plan is deployed, and the scenario drifts. Where that plan breaks
and another one truly satisfies, the query is planned cold, and again with what is known. After a
drift of latency what was measured still holds, as profiles are of the reference machine; after
one of accuracy it is a hint. What differs from section 6.4 is in docs/studies/planning.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from circinus.deploy.methods import DEFAULT
from circinus.deploy.planning import Planner, to_the_end
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import Trace, load_trace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.planner.answers.known import Known
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.result import PlanningResult
from circinus.studies.planning.ground_truth import GroundTruth, Recorder, level_factors
from circinus.studies.planning.methods import StudyMethod, study_method
from circinus.studies.planning.splitting import halves_by_feature, of_inputs
from circinus.studies.planning.study import (
    ONE_TIER,
    earlier_queries,
    method_for,
    record_of,
    replayed,
)
from circinus.studies.report.tables import error, mean, of_column, summarised, written

_THREE = PRESETS["three-tier"]
# deviates: weak-device
WEAK_DEVICE = replace(
    _THREE,
    name="weak-device",
    tiers=(replace(_THREE.tiers[0], speed_factor=0.03), *_THREE.tiers[1:]),
)
"""The preset `three-tier`, the device at 0.03 of the reference instead of 0.1."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DriftScenario:
    """The world before and after a drift, known completely, and the change in words."""

    before: GroundTruth
    after: GroundTruth
    change: str


def with_thinner_link(
    trace: Trace,
    infrastructure: Infrastructure | None,  # before; None: `WEAK_DEVICE`
    link: tuple[str, str] | None,  # its tiers; None: the infrastructure's first
    left: float,  # part of its bandwidth that is left, in (0, 1)
) -> DriftScenario:
    """Return the scenario of a link that loses bandwidth; InvalidInput if it is not there."""
    where = infrastructure or WEAK_DEVICE
    names = [" - ".join(link.between) for link in where.links]
    checks.require(len(names) > 0, "infrastructure.links", "must hold one to drift", names)
    wanted = link or where.links[0].between
    match = next((each for each in where.links if set(each.between) == set(wanted)), None)
    if match is None:
        raise InvalidInput.of("link", f"must be among {', '.join(names)}", " - ".join(wanted))
    thin = replace(match, bandwidth_bytes_per_s=left * match.bandwidth_bytes_per_s)
    links = tuple(thin if each is match else each for each in where.links)
    change = f"{' - '.join(match.between)} at {left:g} of its bandwidth"
    after = GroundTruth(trace, replace(where, links=links))
    return DriftScenario(before=GroundTruth(trace, where), after=after, change=change)


def with_harder_inputs(trace: Trace, infrastructure: Infrastructure | None) -> DriftScenario:
    """Return the scenario of easier, then harder inputs; InvalidInput without features."""
    where = infrastructure or ONE_TIER
    easier, harder, change = halves_by_feature(trace)
    before, after = (GroundTruth(of_inputs(trace, half), where) for half in (easier, harder))
    return DriftScenario(before=before, after=after, change=change)


def with_other_inputs(
    before: Trace, after: Trace, infrastructure: Infrastructure | None
) -> DriftScenario:
    """Return the scenario of two traces; InvalidInput if their pipelines differ."""
    where = infrastructure or ONE_TIER
    alike = before.graph == after.graph
    checks.require(alike, "after", "must be of the same pipeline", after.graph.name)
    same = np.array_equal(before.configurations, after.configurations)
    rule = "must hold the configurations of the other trace"
    checks.require(same, "after", rule, f"{len(after.configurations)} configurations")
    change = f"{len(after.input_bytes)} inputs of another trace"
    return DriftScenario(
        before=GroundTruth(before, where), after=GroundTruth(after, where), change=change
    )


class DriftKind(StrEnum):
    """What drifts."""

    LATENCY = "latency"
    ACCURACY = "accuracy"


class DriftOutcome(StrEnum):
    """What a drift did to a query."""

    COUNTED = "counted"
    """The plan in force breaks, and another one would do."""
    HOLDS = "holds"
    """The plan in force still satisfies: nothing to do."""
    IMPOSSIBLE = "impossible"
    """No plan satisfies any more."""
    UNPLANNED = "unplanned"
    """No plan before the drift, or one that was not true then either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftStudy:
    """What to run."""

    traces: tuple[Path, ...]  # folders
    kind: DriftKind  # what drifts
    methods: tuple[str, ...] = (DEFAULT.name,)  # that plan, before the drift and after it
    levels: tuple[str, ...] = ("medium",)  # of SLOs, in the world before
    seeds: int = 3  # per SLO, `>= 1`
    first_seed: int = 0  # the first of them, `>= 0`
    infrastructure: Infrastructure | None = None  # None: `WEAK_DEVICE` for latency, else one tier
    link: tuple[str, str] | None = None  # its tiers, of what drifts; None: the first
    left: float = 0.5  # part of its bandwidth that is left, in (0, 1). A half: as in section 6.4
    budget_s: float = 60.0  # profiling seconds of a run after the drift, `> 0`
    before_s: float = 1.0  # most profiling seconds of planning before it, `> 0`
    # earlier queries before the drift that replanning also learns from, `>= 0`, planned by the
    # method of the row
    history: int = 0
    after: Path | None = None  # folder of a trace after a drift of accuracy; None: halves of one

    def __post_init__(self) -> None:
        checks.require(0 < self.left < 1, "drift.left", "must be in (0, 1)", self.left)
        checks.positive("drift.budget_s", self.budget_s)
        checks.positive("drift.before_s", self.before_s)
        checks.require(self.history >= 0, "drift.history", "must be >= 0", self.history)
        fits = self.after is None or (self.kind is DriftKind.ACCURACY and len(self.traces) == 1)
        rule = "must go with one trace and a drift of accuracy"
        checks.require(fits, "drift.after", rule, f"{self.after} ({self.kind.value})")
        for level in self.levels:
            level_factors(level)
        for name in self.methods:
            study_method(name, published_inputs=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftRow:
    """A query that met a drift; fields are the columns of `drift.csv`.

    Seconds after the drift are there where the outcome is counted. A run that finds no true plan
    counts with its whole budget.
    """

    trace: str  # name of the pipeline
    drift: str  # what drifted
    change: str  # how, in words
    method: str  # that planned it
    slo: str  # its level
    seed: int  # of the order of inputs and of the search
    accuracy_slo: float  # at least
    latency_slo_s: float  # at most
    outcome: str  # what the drift did
    known: int  # configurations measured before it
    before_seconds: float  # of profiling before it, until the search ended by itself
    oracle_seconds: float | None = None  # 20 inputs of the cheapest truly feasible configuration
    cold_seconds: float | None = None  # until the first true plan, planned from nothing
    cold_found: bool | None = None  # whether there was one
    replanned_seconds: float | None = None  # the same with what is known
    replanned_found: bool | None = None  # whether there was one
    at_once: bool | None = None  # whether replanning answered from measurements alone
    first_answer_true: bool | None = None  # whether the first plan of replanning was true


def run(study: DriftStudy, out: Path) -> list[DriftRow]:
    """Return all rows, written to `out/drift.csv` one by one; InvalidInput if a part lacks."""
    return written(results(study), DriftRow, out / "drift.csv")


def results(study: DriftStudy) -> Iterator[DriftRow]:
    """Yield the rows of a study as runs end."""
    seeds = range(study.first_seed, study.first_seed + study.seeds)
    for trace in [load_trace(folder) for folder in study.traces]:
        scenario = _scenario(study, trace)
        for name in study.methods:
            earlier = {
                seed: earlier_queries(scenario.before, name, count=study.history, seed=seed)
                for seed in seeds
                if study.history
            }
            for level in study.levels:
                for seed, slo in itertools.product(seeds, scenario.before.slos(level)):
                    past = _planned(study, scenario.before, name, slo, seed)
                    yield _row(
                        study, scenario, level, past._replace(earlier=earlier.get(seed, ()))
                    )


def _planned(study: DriftStudy, before: GroundTruth, name: str, slo: Slo, seed: int) -> _Past:
    """Plan a query before the drift, as the product does it, until the search ends by itself."""
    limits = PlanningLimits(profiling_s=study.before_s, response_s=None)
    query = Query(pipeline=before.trace.graph.name, slo=slo, seed=seed, limits=limits)
    who = method_for(name, before, slo)
    drawing, evaluator = replayed(who.planner, before.trace, seed, cached=who.cached)
    result = who.planner.search(query, before.infrastructure, evaluator, drawing)
    return _Past(who, query, evaluator, result)


def _scenario(study: DriftStudy, trace: Trace) -> DriftScenario:
    if study.kind is DriftKind.LATENCY:
        return with_thinner_link(trace, study.infrastructure, study.link, study.left)
    if study.after is not None:
        return with_other_inputs(trace, load_trace(study.after), study.infrastructure)
    return with_harder_inputs(trace, study.infrastructure)


def _row(study: DriftStudy, scenario: DriftScenario, level: str, past: _Past) -> DriftRow:
    slo, outcome = past.query.slo, _outcome(scenario, past, study.kind)
    row = DriftRow(
        trace=scenario.before.trace.graph.name,
        drift=study.kind.value,
        change=scenario.change,
        method=past.who.name,
        slo=level,
        seed=past.query.seed,
        accuracy_slo=slo.accuracy,
        latency_slo_s=slo.latency_s,
        outcome=outcome.value,
        known=len(past.result.configurations),
        before_seconds=past.result.spent_s,
    )
    if outcome is not DriftOutcome.COUNTED:
        return row
    cold = _cold(scenario.after, past, study.budget_s)
    again, at_once = _replanned(scenario.after, past, study)
    return replace(
        row,
        oracle_seconds=scenario.after.oracle_s(slo),
        cold_seconds=study.budget_s if cold.seconds is None else cold.seconds,
        cold_found=cold.seconds is not None,
        replanned_seconds=study.budget_s if again.seconds is None else again.seconds,
        replanned_found=again.seconds is not None,
        at_once=at_once,
        first_answer_true=again.first_answer_true,
    )


class _Past(NamedTuple):
    """A query as it was planned before the drift; `earlier` ones are known besides its own."""

    who: StudyMethod
    query: Query
    evaluator: TraceEvaluator
    result: PlanningResult
    earlier: tuple[QueryRecord, ...] = ()

    @property
    def for_good(self) -> Planner:
        """The method's planner, which goes on after a plan that is not true."""
        planner = self.who.planner
        return replace(planner, settings=to_the_end(planner.settings))


def _outcome(scenario: DriftScenario, past: _Past, kind: DriftKind) -> DriftOutcome:
    slo, plan = past.query.slo, next(iter(past.result.plans), None)  # in force: the cheapest
    if plan is None or not scenario.before.satisfies(plan, slo):
        return DriftOutcome.UNPLANNED
    # Seconds that differ between halves of the inputs are no drift of accuracy.
    accuracy = kind is DriftKind.ACCURACY
    good = scenario.after.accurate(plan, slo) if accuracy else scenario.after.satisfies(plan, slo)
    if good:
        return DriftOutcome.HOLDS
    impossible = scenario.after.oracle_s(slo) is None
    return DriftOutcome.IMPOSSIBLE if impossible else DriftOutcome.COUNTED


def _cold(truth: GroundTruth, past: _Past, budget_s: float) -> Recorder:
    query, who = _within(past.query, budget_s), past.who
    recorder = Recorder(truth=truth, slo=query.slo, first_only=True)
    drawing, evaluator = replayed(who.planner, truth.trace, query.seed, cached=who.cached)
    past.for_good.search(query, truth.infrastructure, evaluator, drawing, observer=recorder)
    return recorder


def _replanned(truth: GroundTruth, past: _Past, study: DriftStudy) -> tuple[Recorder, bool]:
    """Plan again as the product does, on where its first answer is untrue; give if it had one."""
    slo, same_inputs = past.query.slo, study.kind is DriftKind.LATENCY
    planner = past.who.planner
    drawing, evaluator = replayed(planner, truth.trace, past.query.seed, cached=past.who.cached)
    evaluator = past.evaluator if same_inputs else evaluator
    before_s = evaluator.spent_s
    recorder = Recorder(truth=truth, slo=slo, first_only=True, before_s=before_s)
    query = _within(past.query, before_s + study.budget_s)
    measured = past.result.configurations if same_inputs else ()
    known = Known(
        graph=past.evaluator.graph,
        # One input was met by each of them: all that is known of it comes, nothing is paid.
        profiles=[past.evaluator.measure(one.configuration, 1) for one in measured],
        population=past.evaluator.population,
        trusted={plan.configuration: slo.accuracy for plan in past.result.plans},
    )
    plans = planner.answer(query, truth.infrastructure, known, drawing).plans
    if not plans or not recorder.judge(plans[0], before_s):
        past.for_good.search(
            query,
            truth.infrastructure,
            evaluator,
            drawing,
            observer=recorder,
            history=(record_of("before", past.query, past.result), *past.earlier),
        )
    return recorder, bool(plans)


def _within(query: Query, profiling_s: float) -> Query:
    return replace(query, limits=PlanningLimits(profiling_s=profiling_s, response_s=None))


def _number_of(outcome: DriftOutcome) -> Callable[[Sequence[DriftRow]], int]:
    return lambda rows: [row.outcome for row in rows].count(outcome)


def _ratio(rows: Sequence[DriftRow]) -> float | None:
    columns = ("replanned_seconds", "cold_seconds", "oracle_seconds")
    again_s, cold_s, oracle_s = (mean(getattr(row, column) for row in rows) for column in columns)
    if again_s is None or cold_s is None or oracle_s is None or cold_s <= oracle_s:
        return None
    return (again_s - oracle_s) / (cold_s - oracle_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftCell:
    """The queries of a level of SLOs of a trace that met a drift."""

    trace: str  # name of the pipeline
    drift: str  # what drifted
    change: str  # how
    method: str  # that planned them
    slo: str  # the level
    runs: Annotated[int, len]  # queries
    unplanned: Annotated[int, _number_of(DriftOutcome.UNPLANNED)]  # that had no true plan before
    holds: Annotated[int, _number_of(DriftOutcome.HOLDS)]  # whose plan still satisfies
    # that no plan satisfies any more
    impossible: Annotated[int, _number_of(DriftOutcome.IMPOSSIBLE)]
    # the others; all below are of these, means unless stated otherwise: only they have figures
    counted: Annotated[int, _number_of(DriftOutcome.COUNTED)]
    # profiling seconds of the oracle
    oracle_s: Annotated[float | None, of_column(mean, "oracle_seconds")]
    # of planning from nothing, to the first true plan
    cold_s: Annotated[float | None, of_column(mean, "cold_seconds")]
    # of planning with what is known
    replanned_s: Annotated[float | None, of_column(mean, "replanned_seconds")]
    # what replanning takes above the oracle, over what cold planning takes above it; below 0
    # where replanning takes less than the oracle; None: there is none
    ratio: Annotated[float | None, _ratio]
    # standard error of `replanned_s`
    error: Annotated[float | None, of_column(error, "replanned_seconds")]
    # part that measurements alone answered
    at_once: Annotated[float | None, of_column(mean, "at_once")]
    # part of replanning's first answers that were true
    first_true: Annotated[float | None, of_column(mean, "first_answer_true")]
    # part of cold runs that found a true plan
    cold_found: Annotated[float | None, of_column(mean, "cold_found")]
    # the same of replanned ones
    replanned_found: Annotated[float | None, of_column(mean, "replanned_found")]


def summary(rows: Iterable[DriftRow]) -> list[DriftCell]:
    """Return a cell per trace, drift, method and level, in order of first appearance."""
    return summarised(rows, DriftCell, "trace", "drift", "change", "method", "slo")
