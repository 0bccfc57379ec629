"""Operators that remember what they have met: the first run on each input counts."""

from __future__ import annotations

import pytest

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.profiler.measure import Profiler
from tests.profiler.synthetic import Bench

DATA = Dataset(name="numbers", examples=tuple(Example(input=i, expected=i) for i in range(5)))
LOADS_S, FIRST_S, AGAIN_S = 3.0, 0.06, 0.0001


def remembering(bench: Bench, *, by_knob: bool = False, remembers: bool = True) -> Pipeline:
    """Load a model per setting, then take long on each new input; knob 1 adds 10 ms always."""
    met: set[object] = set()

    def look(inputs: Payload, settings: Settings) -> Payload:
        knob = settings["k"]
        if ("loaded", knob) not in met:
            met.add(("loaded", knob))
            bench.clock.sleep(LOADS_S)
        key = (inputs, knob if by_knob else None)
        bench.clock.sleep(AGAIN_S if key in met and remembers else FIRST_S)
        bench.clock.sleep(0.01 if knob == 1 else 0.0)
        met.add(key)
        bench.calls["look"] += 1
        return inputs

    spec = OperatorSpec(name="look", knobs=(Knob(name="k", values=(0, 1)),))
    return Pipeline(name="p", operators=(Operator(spec=spec, run=look),), score=_same)


def _same(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def seconds_of(profiler: Profiler, knob: int, inputs: int = 5) -> list[float]:
    configuration = ConfigurationSpace(profiler.graph).configuration(knob)
    profile = profiler.measure(configuration, 1)  # one first, as a search looks
    profile = profiler.measure(configuration, inputs)
    return profile.operator_s[0].tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("by_knob", [False, True])
def test_the_first_run_on_each_input_counts_under_all_settings(by_knob: bool) -> None:
    bench = Bench()
    profiler = bench.profiler(remembering(bench, by_knob=by_knob), DATA)
    assert seconds_of(profiler, 0) == pytest.approx([FIRST_S] * 5, rel=0.01)
    assert seconds_of(profiler, 1) == pytest.approx([FIRST_S + 0.01] * 5, rel=0.01)
    (remark,) = profiler.remarks
    assert remark.startswith("look answers inputs that it has met before more quickly")


def test_an_operator_that_remembers_nothing_is_run_no_more_than_before() -> None:
    bench = Bench()
    profiler = bench.profiler(remembering(bench, remembers=False), DATA)
    assert seconds_of(profiler, 0) == pytest.approx([FIRST_S] * 5)
    assert bench.calls["look"] == 6  # once to be warm
    assert profiler.remarks == ()


def test_one_slow_moment_of_the_machine_is_no_remembering() -> None:
    bench = Bench()
    slow = {3: 0.5}  # the second input: two runs of the first come before
    operator = bench.operator("op", lambda given, _: given, seconds=lambda n: slow.get(n, 0.01))
    profiler = bench.profiler(Pipeline(name="p", operators=(operator,), score=_same), DATA)
    only = ConfigurationSpace(profiler.graph).configuration(0)
    found = profiler.measure(only, 5).operator_s[0].tolist()
    assert found == pytest.approx([0.01, 0.5, 0.01, 0.01, 0.01])
    assert profiler.remarks == ()
    assert bench.calls["op"] == 7  # the slow one is run once more


def test_some_slow_moments_are_no_remembering_either() -> None:
    bench = Bench()
    slow = {5: 0.5, 7: 0.5, 10: 0.5, 13: 0.5}  # run once more, each is quick
    operator = bench.operator("op", lambda given, _: given, seconds=lambda n: slow.get(n, 0.01))
    data = Dataset(name="many", examples=tuple(Example(input=i, expected=i) for i in range(40)))
    profiler = bench.profiler(Pipeline(name="p", operators=(operator,), score=_same), data)
    profiler.measure(ConfigurationSpace(profiler.graph).configuration(0), 40)
    assert profiler.remarks == ()
    assert bench.calls["op"] <= 41 + 40 // 5 + len(slow)  # a fifth is compared


def test_inputs_that_take_unlike_long_are_looked_at_once() -> None:
    bench = Bench()
    operator = bench.operator(
        "op", lambda given, _: given, seconds=lambda n: 0.01 if n <= 2 else 0.5
    )
    profiler = bench.profiler(Pipeline(name="p", operators=(operator,), score=_same), DATA)
    only = ConfigurationSpace(profiler.graph).configuration(0)
    profiler.measure(only, 5)
    assert profiler.remarks == ()
    assert bench.calls["op"] == 7
