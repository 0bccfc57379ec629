"""Planning in this process: the profiler, the search, and what they know of earlier queries."""

from __future__ import annotations

from dataclasses import dataclass

from circinus.api.bootstrap.fingerprints import pipeline_fingerprint
from circinus.api.store.history import SqlHistory, open_history
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.query import Query
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.bill import Cost
from circinus.planner.search.result import Observer, PlanningResult
from circinus.profiler.execution import Executor, InProcess
from circinus.profiler.journal import Journal, MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import EntryStore, PrefixCache

MOST_EARLIER = 10
"""Earlier queries that a search is told of (Circinus 4.2: the ten most similar)."""


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


def plan_query(  # noqa: PLR0913 - a query's four parts, and two that have a default
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
    from circinus.api.use_cases.knowledge import drawn
    from circinus.deploy.planning import planner_of
    from circinus.planner.search.bill import Budget
    from circinus.planner.search.forecasting import Probes, from_earlier

    if pipeline.prepare is not None:
        pipeline.prepare()
    kept = kept or Kept()
    clock = SystemClock()
    planner = planner_of(query.planning)
    drawing = drawn(planner, pipeline, dataset, query.seed)
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
        observer=observer,
        clock=clock,
        history=kept.history,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What the version of a pipeline with that fingerprint was found to do in earlier queries."""

    store: SqlHistory
    fingerprint: str

    def earlier(self, most: int = MOST_EARLIER) -> tuple[QueryRecord, ...]:
        """Give what the newest queries measured, the newest first."""
        return tuple(self.store.earlier(self.fingerprint, most))

    def remember(self, query_id: str, query: Query, result: PlanningResult) -> None:
        """Keep what a query measured and how it was planned; nothing when it measured nothing."""
        if result.configurations:
            self.store.record(
                QueryRecord(
                    query=query_id,
                    fingerprint=self.fingerprint,
                    slo=query.slo,
                    configurations=result.configurations,
                ),
                query.planning,
            )


def remembered(pipeline: Pipeline, database_url: str) -> Remembered:
    """Give what a database remembers of a pipeline; its tables are brought up to date.

    Raises:
        InvalidInput: If it is no database URL.
        Unavailable: If the database cannot be opened.
    """
    return Remembered(store=open_history(database_url), fingerprint=pipeline_fingerprint(pipeline))
