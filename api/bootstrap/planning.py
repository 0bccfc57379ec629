"""Planning in this process: the profiler, the search and what they keep."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.clock import SystemClock
from pipelines.dataset import Dataset
from pipelines.infrastructure import Infrastructure
from pipelines.pipeline import Pipeline, features_of
from pipelines.profile import FloatArray
from pipelines.query import Query
from planner.bill import Cost
from planner.history import QueryRecord
from planner.result import Observer, PlanningResult, Unobserved
from profiler.execution import Executor, InProcess
from profiler.journal import Journal, MemoryJournal
from profiler.measure import Profiler
from profiler.prefix_cache import EntryStore, PrefixCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What earlier planning left.

    Attributes:
        journal: Of earlier measurements of the same query; None: there are none, and what is
            measured is forgotten.
        outputs: Of operators, shared by queries; None: none, and they are forgotten.
        bills: Of earlier queries of the same pipeline.
        history: What earlier queries on the same pipeline measured, the newest first.
    """

    journal: Journal | None = None
    outputs: EntryStore | None = None
    bills: tuple[Cost, ...] = ()
    history: tuple[QueryRecord, ...] = ()


def plan_offline(  # noqa: PLR0913 - a query's four parts, and two that have a default
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    observer: Observer | None = None,
    *,
    kept: Kept | None = None,
    executor: Executor | None = None,
) -> PlanningResult:
    """Give the plans of a query, searched for in this process.

    Args:
        query: What to plan.
        infrastructure: Where it may run.
        pipeline: Of the query; what it needs once is prepared first.
        dataset: To profile on.
        observer: Hears of progress and may cancel; None: nobody.
        kept: Of earlier planning; None: nothing.
        executor: Runs operators; None: this process does.
    """
    # scipy's parts take long to import: the service's process spares them
    from deploy.planning import planner_of
    from planner.forecasting import Probes, from_earlier
    from planner.limits import Budget

    if pipeline.prepare is not None:
        pipeline.prepare()
    kept = kept or Kept()
    clock = SystemClock()
    planner = planner_of(query.planning)
    drawing = planner.drawing(lambda: inputs_of(pipeline, dataset), len(dataset), query.seed)
    evaluator = Profiler(
        pipeline=pipeline,
        dataset=dataset,
        order=drawing.order,
        executor=executor or InProcess(clock),
        journal=kept.journal or MemoryJournal(),
        cache=PrefixCache(store=kept.outputs),
    )
    return planner.search(
        query,
        infrastructure,
        evaluator,
        drawing,
        forecast=from_earlier(kept.bills, Budget.of(query.limits, infrastructure)) or Probes(),
        observer=Unobserved() if observer is None else observer,
        clock=clock,
        history=kept.history,
    )


def inputs_of(pipeline: Pipeline, dataset: Dataset) -> FloatArray | None:
    """Give the features of a dataset's inputs, shape (n, F); None when the pipeline has none."""
    return features_of(pipeline, (example.input for example in dataset.examples))
