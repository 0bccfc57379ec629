"""Whether what planning a query would call is there, and bounded where money is capped."""

from __future__ import annotations

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query, fitted
from circinus.profiler.spending import require_bounded


def require_affordable(query: Query, infrastructure: Infrastructure, pipeline: Pipeline) -> None:
    """Raise InvalidInput where calls that planning may make are to unknown or unbounded endpoints.

    Those without a bound are refused where `limits.profiling_usd` caps what they cost. Else as
    `fitted`.
    """
    operators = list(fitted(query, pipeline.graph, infrastructure).graph.operators)
    if pipeline.judge is not None:
        operators.append(pipeline.judge.operator.spec)
    require_bounded(operators, infrastructure.endpoints, query.limits.profiling_usd)
