"""Planning again with what is known: when links, inputs or objectives change.

Circinus 4.3. What was measured of the same data holds whatever happens to links, prices and
objectives, so the first answer is looked for there and costs nothing. Only where no measured
configuration will do the search goes on; the evaluator pays for nothing that it measured
before. When the data changed, earlier figures are history: a hint, no answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.clock import Clock
from pipelines.evaluation import Evaluator, StoppingRule
from pipelines.infrastructure import Infrastructure
from pipelines.query import Query
from planner.history import ConfigurationRecord, QueryRecord
from planner.known import Answer, Known, answer
from planner.result import Observer, Outcome, PlanningResult
from planner.search import SearchSettings, search


def replan(  # noqa: PLR0913 - the arguments of `search`, and what is known
    query: Query,
    infrastructure: Infrastructure,
    evaluator: Evaluator,
    rule: StoppingRule,
    known: Known,
    *,
    settings: SearchSettings | None = None,
    observer: Observer | None = None,
    clock: Clock | None = None,
    history: Sequence[QueryRecord] = (),
) -> PlanningResult:
    """Give the plans of a query under new circumstances.

    Args:
        query: As it is now.
        infrastructure: As it is now.
        evaluator: That measured what is known of this data, or would.
        rule: Decides from scores whether a configuration is accurate enough.
        known: What was measured of this very data; no profiles when the data changed.
        settings: How to search, where nothing known will do.
        observer: Is told of progress and may cancel.
        clock: Measures the response time.
        history: What earlier queries measured, the newest first; of the same query on other data
            too.

    Raises:
        InvalidInput: As `search` does.
    """
    at_once = answer(query, infrastructure, known, rule)
    if at_once.plans:
        return result_of(at_once)
    return search(
        query,
        infrastructure,
        evaluator,
        rule,
        settings=settings,
        observer=observer,
        clock=clock,
        history=history,
    )


def result_of(found: Answer) -> PlanningResult:
    """Give plans that follow from measurements as the result of planning that paid nothing."""
    count = len(found.measured) + len(found.failed)
    return PlanningResult(
        outcome=Outcome.FEASIBLE if found.plans else Outcome.INFEASIBLE,
        plans=found.plans,
        measured=count,
        failed=len(found.failed),
        inputs=sum(one.inputs for one in found.measured) + sum(one.inputs for one in found.failed),
        spent_s=0.0,
        saved_s=0.0,
        stopped_because=f"{count} configurations measured earlier were enough",
        shortfall=found.shortfall,
        configurations=tuple(
            ConfigurationRecord.of(m.configuration, m.scores, m.work) for m in found.measured
        ),
    )
