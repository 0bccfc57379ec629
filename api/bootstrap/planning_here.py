"""Planning a pipeline that is at hand, whose operators run in processes of their own."""

from __future__ import annotations

from dataclasses import replace

from circinus.api.bootstrap.execution import opened_executor
from circinus.api.bootstrap.planning import Kept, plan_query
from circinus.api.bootstrap.spending import planning_gate
from circinus.api.settings import ExecutorChoice, Settings
from circinus.deploy.profiling.checking import checked
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.query import Query
from circinus.planner.search.result import Observer, PlanningResult


def plan_here(  # noqa: PLR0913 - a query's four parts, and four that have a default
    query: Query,
    infrastructure: Infrastructure,
    pipeline: Pipeline,
    dataset: Dataset,
    *,
    observer: Observer | None = None,
    reference: str = "",
    executor: ExecutorChoice | None = None,
    kept: Kept | None = None,
) -> PlanningResult:
    """Return the plans of a query on a pipeline, or why there are none.

    Operators run in a process of their own, which is ended when they hang or eat memory: a fresh
    one that loads `reference` (`module:attribute`, or a registered name), or a copy of this one
    where there is none, so that a pipeline made in a notebook or a shell can be planned. The
    executor is as `Settings` say when it is left out. The observer hears of progress and may
    cancel; `kept` is of earlier planning. InvalidInput if the parts do not fit together, or a
    pipeline that was read off a chain does not give what the chain gives.
    """
    settings = Settings()
    cancelled = (lambda: False) if observer is None else observer.cancelled
    shown = checked(reference, pipeline, dataset.examples, cancelled=cancelled)
    kept = replace(kept or Kept(), draws=shown.draws)
    choice = executor or settings.executor_choice
    logs = settings.worker_logs
    with (
        planning_gate(query, infrastructure, pipeline, kept.ledger) as gate,
        opened_executor(choice, reference, pipeline, infrastructure, logs, gate.leave) as runs,
    ):
        result = plan_query(
            query,
            infrastructure,
            pipeline,
            dataset,
            observer,
            kept=kept,
            executor=runs,
            gate=gate,
        )
    return replace(result, remarks=tuple(dict.fromkeys((*shown.remarks, *result.remarks))))
