"""Whether what is announced for future inputs holds on fresh ones.

Plans are searched for on small samples by the product's default method, real operators running,
and judged on many more inputs of the same source that no search has seen. Two shares are told,
each with its exact 95 % interval: of the plans shown as `met` for future inputs, those that meet
both objectives there; of the intervals for future inputs, those that hold the fresh mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy import stats

from circinus.deploy.methods import DEFAULT
from circinus.deploy.planning import planner_of
from circinus.pipelines import checks
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.latency import Work, request_seconds
from circinus.pipelines.pipeline import Pipeline, features_of
from circinus.pipelines.plan import Outlook, Plan
from circinus.pipelines.profile import Profile
from circinus.pipelines.query import PlanningLimits, Query
from circinus.pipelines.slo import Slo, SloState
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from circinus.studies.report.tables import grouped, written

_FRESH_SEED = 1_000_003  # of the examples that plans are judged on
_CONFIDENCE = 0.95
_TRUSTED = 0.95  # of either share


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStudy:
    """What is planned, and judged on what."""

    pipelines: Sequence[Pipeline]
    infrastructure: Infrastructure
    accuracies: Sequence[float]  # SLOs, in turn
    latency_s: float  # SLO of all
    plans: int = 100  # searches of each pipeline, `>= 1`
    sample: int = 80  # examples of each search
    fresh: int = 5000  # inputs that plans are judged on
    limits: PlanningLimits = field(default_factory=PlanningLimits)

    def __post_init__(self) -> None:
        checks.require(len(self.pipelines) > 0, "pipelines", "must be some", ())
        checks.require(len(self.accuracies) > 0, "accuracies", "must be some", ())
        for name in ("plans", "sample", "fresh"):
            checks.at_least(f"fresh.{name}", getattr(self, name), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRow:
    """One search, and the plan that it announced first; figures are none without one."""

    pipeline: str
    seed: int
    accuracy_slo: float
    outcome: str
    met: bool | None = None  # whether both objectives are shown as met for future inputs
    met_there: bool | None = None  # whether both are, on the fresh inputs
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    fresh_accuracy: float | None = None
    accuracy_held: bool | None = None
    latency_low_s: float | None = None
    latency_high_s: float | None = None
    fresh_latency_s: float | None = None
    latency_held: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshCell:
    """A share of the plans of one pipeline, or of all."""

    pipeline: str
    share: str  # of what
    count: int
    value: float | None  # none: of nothing
    low: float | None
    high: float | None
    trusted: bool  # whether 95 % are within its interval, or it is above


def run(
    study: FreshStudy, out: Path, observer: Callable[[FreshRow], None] = lambda row: None
) -> list[FreshRow]:
    """Give the rows, each written to `fresh.csv` as soon as it is there."""
    return written(_rows(study), FreshRow, out / "fresh.csv", observer=observer)


def summary(rows: Sequence[FreshRow]) -> list[FreshCell]:
    """Give the shares, of every pipeline and of all together."""
    cells = []
    named = [(str(name[0]), found) for name, found in grouped(rows, "pipeline").items()]
    for name, found in [*named, ("all", list(rows))]:
        held = [row.accuracy_held for row in found]
        in_time = [row.latency_held for row in found]
        cells += [
            _cell(name, "met of those shown as met", [r.met_there for r in found if r.met]),
            _cell(name, "accuracy intervals that hold", held),
            _cell(name, "latency intervals that hold", in_time),
        ]
    return cells


def _cell(pipeline: str, share: str, values: Iterable[bool | None]) -> FreshCell:
    told = [value for value in values if value is not None]
    if not told:
        return FreshCell(
            pipeline=pipeline, share=share, count=0, value=None, low=None, high=None, trusted=False
        )
    exact = stats.binomtest(sum(told), len(told)).proportion_ci(_CONFIDENCE, method="exact")
    return FreshCell(
        pipeline=pipeline,
        share=share,
        count=len(told),
        value=sum(told) / len(told),
        low=float(exact.low),
        high=float(exact.high),
        trusted=bool(exact.high >= _TRUSTED),
    )


def _rows(study: FreshStudy) -> Iterator[FreshRow]:
    for pipeline in study.pipelines:
        if pipeline.prepare is not None:
            pipeline.prepare()
        judge = _Judge(study, pipeline)
        for seed in range(1, study.plans + 1):
            bound = study.accuracies[(seed - 1) % len(study.accuracies)]
            yield judge.row(seed, Slo(accuracy=bound, latency_s=study.latency_s))


class _Judge:
    """Plans on samples of one pipeline, and knows what its configurations do on fresh inputs."""

    def __init__(self, study: FreshStudy, pipeline: Pipeline) -> None:
        self._study, self._pipeline, self._clock = study, pipeline, SystemClock()
        self._executor = InProcess(self._clock)
        order = np.arange(study.fresh)
        self._fresh = Profiler(
            pipeline=pipeline,
            dataset=self._examples(study.fresh, _FRESH_SEED),
            order=order,
            executor=self._executor,
            journal=MemoryJournal(),
        )
        self._known: dict[Configuration, Profile] = {}

    def row(self, seed: int, slo: Slo) -> FreshRow:
        """Give what a search on one sample announced, and what it is on fresh inputs."""
        study, pipeline = self._study, self._pipeline
        planner = planner_of(DEFAULT.planning)
        dataset = self._examples(study.sample, seed)
        inputs = (example.input for example in dataset.examples)
        drawing = planner.drawing(lambda: features_of(pipeline, inputs), len(dataset), seed)
        evaluator = Profiler(
            pipeline=pipeline,
            dataset=dataset,
            order=drawing.order,
            executor=self._executor,
            journal=MemoryJournal(),
            cache=PrefixCache(),
        )
        query = Query(pipeline=pipeline.name, slo=slo, seed=seed, limits=study.limits)
        result = planner.search(query, study.infrastructure, evaluator, drawing, clock=self._clock)
        row = FreshRow(
            pipeline=pipeline.name,
            seed=seed,
            accuracy_slo=slo.accuracy,
            outcome=result.outcome.value,
        )
        if not result.plans or (ahead := result.plans[0].future) is None:
            return row
        return self._judged(row, result.plans[0], ahead, slo)

    def _judged(self, row: FreshRow, plan: Plan, ahead: Outlook, slo: Slo) -> FreshRow:
        profile = self._profile(plan.configuration)
        good = profile.succeeded
        accuracy = float(np.where(good, profile.score, 0.0).mean())
        work = Work(
            operator_s=profile.operator_s[:, good],
            output_bytes=profile.output_bytes[:, good],
            input_bytes=profile.input_bytes[good],
        )
        pipeline, tiers = self._pipeline.graph, self._study.infrastructure
        seconds = float(request_seconds(pipeline, tiers, work, plan.deployment).mean())
        states = {ahead.accuracy.at_least(slo.accuracy), ahead.latency_s.at_most(slo.latency_s)}
        return replace(
            row,
            met=states == {SloState.MET},
            met_there=accuracy >= slo.accuracy and seconds <= slo.latency_s,
            accuracy=ahead.accuracy.value,
            accuracy_low=ahead.accuracy.low,
            accuracy_high=ahead.accuracy.high,
            fresh_accuracy=accuracy,
            accuracy_held=ahead.accuracy.low <= accuracy <= ahead.accuracy.high,
            latency_low_s=ahead.latency_s.low,
            latency_high_s=ahead.latency_s.high,
            fresh_latency_s=seconds,
            latency_held=ahead.latency_s.low <= seconds <= ahead.latency_s.high,
        )

    def _profile(self, configuration: Configuration) -> Profile:
        if configuration not in self._known:
            self._known[configuration] = self._fresh.measure(configuration, self._study.fresh)
        return self._known[configuration]

    def _examples(self, count: int, seed: int) -> Dataset:
        if self._pipeline.examples is None:
            rule = "must bring examples, as many as are asked for"
            raise InvalidInput.of("pipeline", rule, self._pipeline.name)
        return self._pipeline.examples(count, seed)
