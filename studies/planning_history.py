"""Earlier queries for the planning study: same pipeline, other inputs, other SLOs.

The inputs of a trace are split at random. Earlier queries are planned on one half, each for
a Pareto point and a level drawn at random; what the study looks at is planned on the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from deploy.planning import Planner, planner_of
from pipelines.configuration import IndexArray
from pipelines.infrastructure import Infrastructure
from pipelines.query import PlanningLimits, Query
from pipelines.replay import TraceEvaluator
from pipelines.trace import Trace
from planner.history import QueryRecord
from planner.result import PlanningResult
from profiler.drawing import Drawing
from studies.planning_truth import LEVELS, Truth

_STREAM = 2  # of a run's seed
_BUDGET_S = 2.0  # of an earlier query


def halves(trace: Trace, seed: int) -> tuple[Trace, Trace]:
    """Give the trace of one half of the inputs, drawn at random, and that of the other."""
    inputs = np.random.default_rng([seed, _STREAM]).permutation(len(trace.input_bytes))
    middle = len(inputs) // 2
    return of_inputs(trace, inputs[:middle]), of_inputs(trace, inputs[middle:])


def earlier_queries(
    trace: Trace, infrastructure: Infrastructure, *, count: int, seed: int
) -> tuple[QueryRecord, ...]:
    """Give what `count` queries measured, planned as the product plans them, the newest first."""
    truth = Truth(trace, infrastructure)
    rng = np.random.default_rng([seed, _STREAM])
    slos = [slo for level in LEVELS for slo in truth.slos(level)]
    records = []
    for i in range(count):
        slo = slos[int(rng.integers(len(slos)))]
        query = Query(
            pipeline=trace.graph.name,
            slo=slo,
            seed=int(rng.integers(2**31)),
            limits=PlanningLimits(profiling_s=_BUDGET_S),
        )
        records.append(record_of(f"earlier-{i}", query, _planned(query, trace, infrastructure)))
    return tuple(records[::-1])


def _planned(query: Query, trace: Trace, infrastructure: Infrastructure) -> PlanningResult:
    planner = planner_of(query.planning)
    drawing = drawn(planner, trace, query.seed)
    return planner.search(query, infrastructure, TraceEvaluator(trace, drawing.order), drawing)


def drawn(planner: Planner, trace: Trace, seed: int) -> Drawing:
    """Give the order in which a planner draws the inputs of a trace."""
    return planner.drawing(lambda: trace.features.astype(float), len(trace.input_bytes), seed)


def record_of(name: str, query: Query, result: PlanningResult) -> QueryRecord:
    """Give what a planned query leaves to later ones."""
    return QueryRecord(
        query=name, fingerprint="study", slo=query.slo, configurations=result.configurations
    )


def of_inputs(trace: Trace, inputs: IndexArray) -> Trace:
    """Give the trace of some of the inputs."""
    return replace(
        trace,
        score=trace.score[:, inputs],
        latency_s=trace.latency_s[:, :, inputs],
        output_bytes=trace.output_bytes[:, :, inputs],
        input_bytes=trace.input_bytes[inputs],
        features=trace.features[inputs],
    )
