"""Earlier queries for the planning study: same pipeline, other inputs, other SLOs.

The inputs of a trace are split at random. Earlier queries are planned on one half, each for
a Pareto point and a level drawn at random; what the study looks at is planned on the other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circinus.deploy.planning import Planner, planner_of
from circinus.pipelines.clock import Clock
from circinus.pipelines.configuration import IndexArray
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.query import PlanningLimits, Query
from circinus.pipelines.replay import TraceEvaluator
from circinus.pipelines.trace import Trace
from circinus.planner.models.history import QueryRecord
from circinus.planner.search.result import PlanningResult
from circinus.profiler.drawing import Drawing
from circinus.studies.planning.truth import LEVELS, Truth

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
    if not count:
        return ()  # a truth takes its time
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
        planner = planner_of(query.planning)
        drawing, evaluator = replayed(planner, trace, query.seed)
        result = planner.search(query, infrastructure, evaluator, drawing)
        records.append(record_of(f"earlier-{i}", query, result))
    return tuple(records[::-1])


def replayed(
    planner: Planner,
    trace: Trace,
    seed: int,
    *,
    cached: bool = True,
    width: int = 1,
    clock: Clock | None = None,
) -> tuple[Drawing, TraceEvaluator]:
    """Give the order in which a planner draws the inputs of a trace, and what replays it so."""
    count = len(trace.input_bytes)
    drawing = planner.drawing(lambda: trace.features.astype(float), count, seed)
    return drawing, TraceEvaluator(trace, drawing.order, cached=cached, width=width, clock=clock)


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
