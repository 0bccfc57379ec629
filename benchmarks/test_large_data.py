"""What a step of a search costs on 100,000 examples, beside 25,000: its own computing alone."""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.presets import PRESETS
from circinus.pipelines.query import PlanningLimits, Query
from circinus.pipelines.slo import Slo
from circinus.planner.search.loop import search
from tests.oracles.synthetic import SyntheticEvaluator, chain

GRAPH = chain(8, 4)
BASELINE, LARGE = 25_000, 100_000
STEPS = 12  # configurations


def _step_s(examples: int) -> float:
    """Give the seconds of one step of a search near its bound, operators taking none."""
    evaluator = SyntheticEvaluator(
        GRAPH, lambda k: 0.5 + 0.05 * k[0], lambda k: 1e-4, examples, noise=0.3
    )
    limits = PlanningLimits(profiling_s=1e9, response_s=None, configurations=STEPS)
    slo = Slo(accuracy=0.8499, latency_s=1.0)
    query = Query(pipeline=GRAPH.name, slo=slo, limits=limits)
    start = time.perf_counter()
    result = search(query, PRESETS["three-tier"], evaluator, clock=ManualClock())
    return (time.perf_counter() - start) / max(result.measured, 1)


@pytest.mark.parametrize("examples", [LARGE])
def test_a_step_on_many_examples(benchmark: BenchmarkFixture, examples: int) -> None:
    baseline_s = _step_s(BASELINE)
    large_s = benchmark(_step_s, examples)
    ratio = large_s / baseline_s
    benchmark.extra_info["times the step on 25,000"] = round(ratio, 2)
