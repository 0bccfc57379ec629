"""Whether what is announced for future inputs holds on fresh ones.

Plans are searched for on small samples by the product's default method, real operators running,
and judged on many more inputs of the same source that no search used. Shares are listed, each
with its exact 95 % interval: of the plans shown as `met` for future inputs, those that are
accurate enough there, and those that are in time, too; of the intervals for future inputs, those
that hold the fresh mean. Latency on fresh inputs is that of the machine as it is while they run:
whoever gives it other work measures that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
from scipy import stats

from circinus.deploy.methods import DEFAULT
from circinus.deploy.planning import planner_of
from circinus.pipelines import checks
from circinus.pipelines.catalog.material import PARTS
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.features import features_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.infrastructure import Infrastructure, with_device
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import IntArray, Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import HoldsFor, Slo, SloState
from circinus.profiler.execution import Executor
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from circinus.studies.report.tables import grouped, written

_FRESH_SEED = 333_334 * PARTS
"""Of the examples that plans are judged on. A seed modulo `PARTS` is a source of its own in the
catalogue, so that all seeds are multiples of it."""
_CONFIDENCE = 0.95
_TRUSTED = 0.95  # of either share
_AT_ONCE = 10  # fresh inputs: their outputs must fit the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshStudy:
    """What is planned, and judged on what."""

    pipelines: Mapping[str, Pipeline]  # by reference, see `load_pipeline`
    opened: Callable[[str, Pipeline], AbstractContextManager[Executor]]  # what runs operators
    infrastructure: Infrastructure
    accuracies: Sequence[float]  # SLOs, in turn
    latency_s: float  # SLO of all
    holds_for: Sequence[HoldsFor] = (HoldsFor.EXAMPLES,)  # what they bind, in turn with accuracies
    plans: int = 100  # searches of each pipeline, `>= 1`
    sample: int = 80  # examples of each search
    fresh: int = 5000  # inputs that plans are judged on
    judging_s: float = inf  # most seconds to run them, of a pipeline: then they are fewer
    limits: PlanningLimits = field(default_factory=PlanningLimits)

    def __post_init__(self) -> None:
        checks.require(len(self.pipelines) > 0, "pipelines", "must be some", ())
        checks.require(len(self.accuracies) > 0, "accuracies", "must be some", ())
        checks.require(len(self.holds_for) > 0, "holds_for", "must be some", ())
        for name in ("plans", "sample", "fresh"):
            checks.at_least(f"fresh.{name}", getattr(self, name), 1)
        checks.require(self.judging_s > 0, "fresh.judging_s", "must be > 0", self.judging_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshRow:
    """One search, and the plan that it announced first; figures are none without one."""

    pipeline: str
    seed: int
    accuracy_slo: float
    holds_for: str
    outcome: str
    met: bool | None = None  # whether both objectives are shown as met for future inputs
    accurate_there: bool | None = None  # whether accuracy is, on the fresh inputs
    met_there: bool | None = None  # whether both are
    accuracy: float | None = None
    accuracy_low: float | None = None
    accuracy_high: float | None = None
    fresh_accuracy: float | None = None
    accuracy_held: bool | None = None
    latency_low_s: float | None = None
    latency_high_s: float | None = None
    fresh_latency_s: float | None = None
    latency_held: bool | None = None
    fresh_inputs: int | None = None


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
    study: FreshStudy, out: Path, observer: Callable[[str, str], None] = lambda name, text: None
) -> list[FreshRow]:
    """Return the rows, those of a pipeline written to `fresh.csv` once all of them are judged.

    The observer gets the progress of a pipeline, by name and in words.
    """
    return written(_rows(study, observer), FreshRow, out / "fresh.csv")


def summary(rows: Sequence[FreshRow]) -> list[FreshCell]:
    """Return the shares, of every pipeline and of all together."""
    cells = []
    named = [(str(name[0]), group) for name, group in grouped(rows, "pipeline").items()]
    for name, group in [*named, ("all", list(rows))]:
        held = [row.accuracy_held for row in group]
        in_time = [row.latency_held for row in group]
        cells += [
            _cell(
                name, "accurate of those shown as met", [r.accurate_there for r in group if r.met]
            ),
            _cell(name, "met of those shown as met", [r.met_there for r in group if r.met]),
            _cell(name, "accuracy intervals that hold", held),
            _cell(name, "latency intervals that hold", in_time),
        ]
    return cells


def _cell(pipeline: str, share: str, values: Iterable[bool | None]) -> FreshCell:
    known = [value for value in values if value is not None]
    if not known:
        return FreshCell(
            pipeline=pipeline, share=share, count=0, value=None, low=None, high=None, trusted=False
        )
    exact = stats.binomtest(sum(known), len(known)).proportion_ci(_CONFIDENCE, method="exact")
    return FreshCell(
        pipeline=pipeline,
        share=share,
        count=len(known),
        value=sum(known) / len(known),
        low=float(exact.low),
        high=float(exact.high),
        trusted=bool(exact.high >= _TRUSTED),
    )


def _rows(study: FreshStudy, observer: Callable[[str, str], None]) -> Iterator[FreshRow]:
    for reference, pipeline in study.pipelines.items():
        pipeline.make_ready()
        with study.opened(reference, pipeline) as executor:
            yield from _Bench(study, pipeline, executor, observer).rows()


@dataclass(frozen=True, slots=True)
class _Bench:
    """Searches plans on samples of one pipeline, and runs what they announce on fresh inputs."""

    study: FreshStudy
    pipeline: Pipeline
    executor: Executor
    observer: Callable[[str, str], None]

    def rows(self) -> Iterator[FreshRow]:
        """Yield all searches, each judged."""
        searched = [self._searched(number) for number in range(self.study.plans)]
        plans = [plan for _, plan in searched if plan is not None]
        known = self._on_fresh_inputs(list(dict.fromkeys(plan.configuration for plan in plans)))
        for row, plan in searched:
            yield row if plan is None else self._judged(row, plan, known[plan.configuration])

    def _searched(self, number: int) -> tuple[FreshRow, Plan | None]:
        """Return how a search on one sample ended, and its first plan."""
        study, pipeline, clock = self.study, self.pipeline, SystemClock()
        objectives = list(product(study.accuracies, study.holds_for))
        bound, holds_for = objectives[number % len(objectives)]
        seed = number * PARTS
        planner = planner_of(DEFAULT.planning)
        dataset = self._examples(study.sample, seed)
        inputs = (example.input for example in dataset.examples)
        drawing = planner.drawing(lambda: features_of(pipeline, inputs), len(dataset), seed)
        evaluator = self._profiler(dataset, drawing.order)
        slo = Slo(accuracy=bound, latency_s=study.latency_s, holds_for=holds_for)
        query = Query(
            pipeline=pipeline.name,
            slo=slo,
            seed=seed,
            limits=study.limits,
            device=study.infrastructure.device_of(number),
        )
        result = planner.search(query, study.infrastructure, evaluator, drawing, clock=clock)
        self.observer(pipeline.name, f"{number + 1} of {study.plans} searches")
        row = FreshRow(
            pipeline=pipeline.name,
            seed=seed,
            accuracy_slo=bound,
            holds_for=holds_for.value,
            outcome=result.outcome.value,
        )
        return row, result.plans[0] if result.plans else None

    def _on_fresh_inputs(
        self, configurations: Sequence[Configuration]
    ) -> dict[Configuration, Profile]:
        """Measure configurations side by side: what they share is run once for each input."""
        fresh = self.study.fresh
        profiler = self._profiler(self._examples(fresh, _FRESH_SEED), np.arange(fresh))
        profiles: tuple[Profile, ...] = ()
        end = SystemClock().now() + self.study.judging_s
        for inputs in [*range(_AT_ONCE, fresh, _AT_ONCE), fresh]:
            profiles = profiler.measure_each([(each, inputs) for each in configurations])
            message = f"{inputs} of {fresh} fresh inputs on {len(configurations)} configurations"
            self.observer(self.pipeline.name, message)
            if SystemClock().now() > end:
                break
        return dict(zip(configurations, profiles, strict=True))

    def _judged(self, row: FreshRow, plan: Plan, profile: Profile) -> FreshRow:
        if (ahead := plan.future) is None:
            return row
        good = profile.succeeded
        accuracy = float(np.where(good, profile.score, 0.0).mean())
        work = Work.of(profile)
        tiers, bound_s = self.study.infrastructure, self.study.latency_s
        tiers = with_device(tiers, tiers.device_of(row.seed // PARTS))
        seconds = request_seconds(self.pipeline.graph, tiers, work, plan.deployment)
        fresh_s = float(seconds.mean())
        states = {ahead.accuracy.at_least(row.accuracy_slo), ahead.latency_s.at_most(bound_s)}
        return replace(
            row,
            met=states == {SloState.MET},
            accurate_there=accuracy >= row.accuracy_slo,
            met_there=accuracy >= row.accuracy_slo and fresh_s <= bound_s,
            accuracy=ahead.accuracy.value,
            accuracy_low=ahead.accuracy.low,
            accuracy_high=ahead.accuracy.high,
            fresh_accuracy=accuracy,
            accuracy_held=ahead.accuracy.low <= accuracy <= ahead.accuracy.high,
            latency_low_s=ahead.latency_s.low,
            latency_high_s=ahead.latency_s.high,
            fresh_latency_s=fresh_s,
            latency_held=ahead.latency_s.low <= fresh_s <= ahead.latency_s.high,
            fresh_inputs=len(profile.inputs),
        )

    def _profiler(self, dataset: Dataset, order: IntArray) -> Profiler:
        return Profiler(
            pipeline=self.pipeline,
            dataset=dataset,
            order=order,
            executor=self.executor,
            journal=MemoryJournal(),
            cache=PrefixCache(),
        )

    def _examples(self, count: int, seed: int) -> Dataset:
        if self.pipeline.examples is None:
            rule = "must bring examples, as many as are asked for"
            raise InvalidInput.of("pipeline", rule, self.pipeline.name)
        return self.pipeline.examples(count, seed)
