"""What a step of planning costs with many examples, beside running operators.

The same few configurations are measured of data of two sizes, with features, so that strata are
made; a step is all of it over the inputs measured. `ratio` in the extra information is the larger
data's step over the smaller one's, in the same run.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.api.bootstrap.planning import data_fingerprint, plan_query
from circinus.deploy.methods import method_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo

FEW, MANY = 25_000, 100_000
MOST_RATIO = 5.0
CONFIGURATIONS = 8


def _features(given: Payload) -> FloatArray:
    assert isinstance(given, int)
    return np.array([given % 7, given % 11], dtype=np.float64)


PIPELINE = Pipeline(
    name="numbers",
    operators=(
        Operator(
            spec=OperatorSpec(name="same", knobs=(Knob(name="k", values=(*range(32),)),)),
            run=lambda given, settings: given,
        ),
    ),
    score=lambda output, expected: float(output == expected),
    features=_features,
)


def _data(count: int) -> Dataset:
    examples = tuple(Example(input=i, expected=i if i % 5 else -1) for i in range(count))
    return Dataset(name="numbers", examples=examples)


def _step_s(data: Dataset, method: str) -> float:
    query = Query(
        pipeline=PIPELINE.name,
        slo=Slo(accuracy=0.9, latency_s=1.0),
        limits=PlanningLimits(response_s=None, own_s=600.0, configurations=CONFIGURATIONS),
        planning=method_of(method, "method").planning,
    )
    start = time.perf_counter()
    data_fingerprint(data)
    result = plan_query(query, PRESETS["one-tier"], PIPELINE, data)
    return (time.perf_counter() - start) / result.inputs


@pytest.mark.parametrize("method", ["default", "published"])
def test_a_step_on_many_examples(benchmark: BenchmarkFixture, method: str) -> None:
    few, many = _data(FEW), _data(MANY)
    _step_s(_data(100), method)  # what the first query of a process loads
    least_s = min(_step_s(few, method) for _ in range(3))
    step_s = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: _step_s(many, method), rounds=3
    )
    ratio = step_s / least_s
    benchmark.extra_info["ratio"] = ratio
    assert ratio <= MOST_RATIO
