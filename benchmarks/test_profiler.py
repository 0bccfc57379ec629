"""What the profiler adds to a call of an operator, beside calling the function itself.

Three operators that do next to nothing on 200 inputs of 64 numbers, so that a round is 600 calls;
`us_per_call` in the extra information is the median round over 600.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.pipelines.clock import SystemClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import IntArray
from circinus.profiler.drawing import stratified_drawing
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from circinus.profiler.stopping import Betting, TTest

INPUTS = 200
OPERATORS = 3
ROUNDS = 20

BY = Knob(name="by", values=(1.0, 2.0))


def scale(inputs: Payload, settings: Settings) -> Payload:
    assert isinstance(inputs, np.ndarray)
    return np.multiply(inputs.astype(np.float64, copy=False), float(settings["by"]))


def operator(position: int) -> Operator:
    after = (f"op{position - 1}",) if position else ()
    return Operator(spec=OperatorSpec(name=f"op{position}", after=after, knobs=(BY,)), run=scale)


PIPELINE = Pipeline(
    name="scales",
    operators=tuple(operator(position) for position in range(OPERATORS)),
    score=lambda output, expected: 1.0,
)
FIRST, SECOND = (ConfigurationSpace(PIPELINE.graph).configuration(number) for number in (0, 1))
INPUT_ROWS = np.random.default_rng(0).random((INPUTS, 64))
DATA = Dataset(
    name="rows", examples=tuple(Example(input=row, expected=None) for row in INPUT_ROWS)
)


def fresh(limit_bytes: int) -> Profiler:
    return Profiler(
        PIPELINE,
        DATA,
        order=np.arange(INPUTS),
        executor=InProcess(SystemClock()),
        journal=MemoryJournal(),
        cache=PrefixCache(limit_bytes),
    )


def directly() -> None:
    for example in DATA.examples:
        output = example.input
        for _ in range(OPERATORS):
            output = scale(output, {"by": 1.0})


def at_once(profiler: Profiler) -> None:
    profiler.measure(FIRST, INPUTS)


def input_by_input(profiler: Profiler) -> None:
    for inputs in range(1, INPUTS + 1):
        profiler.measure(FIRST, inputs)


def last_operator_only(profiler: Profiler) -> None:
    for inputs in range(1, INPUTS + 1):
        profiler.measure(SECOND, inputs)


def report(benchmark: BenchmarkFixture) -> None:
    """Say what a call took."""
    stats = benchmark.stats
    assert stats is not None
    benchmark.extra_info["us_per_call"] = 1e6 * stats.stats.median / (INPUTS * OPERATORS)


def test_calling_the_functions_directly(benchmark: BenchmarkFixture) -> None:
    benchmark(directly)
    report(benchmark)


@pytest.mark.parametrize("run", [at_once, input_by_input])
@pytest.mark.parametrize("limit_bytes", [2**28, 10_000], ids=["all held", "most evicted"])
def test_a_first_profile(
    benchmark: BenchmarkFixture, run: Callable[[Profiler], None], limit_bytes: int
) -> None:
    benchmark.pedantic(  # type: ignore[no-untyped-call]  # pytest-benchmark leaves it untyped
        run,
        setup=lambda: ((fresh(limit_bytes),), {}),
        rounds=ROUNDS,
        warmup_rounds=1,
    )
    report(benchmark)


def test_a_second_profile_that_shares_all_but_the_last_operator(
    benchmark: BenchmarkFixture,
) -> None:
    def setup() -> tuple[tuple[Profiler], dict[str, object]]:
        profiler = fresh(2**28)
        at_once(profiler)
        return (profiler,), {}

    benchmark.pedantic(  # type: ignore[no-untyped-call]  # pytest-benchmark leaves it untyped
        last_operator_only, setup=setup, rounds=ROUNDS, warmup_rounds=1
    )
    report(benchmark)


def test_a_verdict_of_the_t_test(benchmark: BenchmarkFixture) -> None:
    scores = np.random.default_rng(0).random(INPUTS)
    benchmark(TTest().judge, scores, bound=0.5, population=1000)


@pytest.mark.parametrize("groups", [None, np.arange(1000) % 10], ids=["alone", "groups"])
def test_a_verdict_by_betting(benchmark: BenchmarkFixture, groups: IntArray | None) -> None:
    scores = np.random.default_rng(0).random(INPUTS)
    benchmark(Betting(groups=groups).judge, scores, bound=0.5, population=1000)


def test_the_order_of_1000_inputs(benchmark: BenchmarkFixture) -> None:
    features = np.random.default_rng(0).random((1000, 16))
    benchmark(lambda: stratified_drawing(features, 1000, np.random.default_rng(0)).order)
