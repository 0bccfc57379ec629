from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.drawn import dags, integers, same
from tests.profiler.synthetic import Bench, add, chain, chosen, closeness, numbers


@settings(max_examples=60, deadline=None)
@given(
    drawn=dags(),
    limit=st.sampled_from([0, 800, 2000, 4000, 100_000]),
    asked=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 4)), min_size=1, max_size=8),
)
def test_profiles_are_those_of_running_everything_whatever_the_cache_evicts(
    drawn: tuple[Bench, Pipeline], limit: int, asked: list[tuple[int, int]]
) -> None:
    bench, pipeline = drawn
    data = integers(4)
    space = ConfigurationSpace(pipeline.graph)
    cached = bench.profiler(pipeline, data, cache=PrefixCache(limit))
    plain = bench.profiler(pipeline, data)
    for number, inputs in asked:
        configuration = space.configuration(number % space.size)
        profile = cached.measure(configuration, inputs)
        assert same(profile, plain.measure(configuration, inputs))
        for column, index in enumerate(profile.inputs.tolist()):
            example = data.examples[index]
            by_hand = pipeline.score_of(
                pipeline.run(example.input, configuration), example.expected
            )
            assert profile.score[column] == by_hand
    assert cached.spent_s <= plain.spent_s
    assert plain.saved_s == 0


def test_a_shared_prefix_is_run_once() -> None:
    bench = Bench()
    pipeline = chain(bench)
    profiler = bench.profiler(pipeline, numbers(5), cache=PrefixCache())
    for by in (0, 1, 2):
        profiler.measure(chosen(pipeline, first=1, second=by), 5)
    # One warm-up per operator and settings, and one run per input (and setting of the second).
    assert bench.calls == {"first": 1 + 5, "second": 3 * (1 + 5)}
    assert profiler.spent_s == 24 * 0.25
    assert profiler.saved_s == 2 * 5 * 0.25


def test_seconds_of_a_shared_prefix_are_equal_even_when_it_had_to_be_run_again() -> None:
    bench = Bench()
    pipeline = chain(bench, seconds=lambda call: call / 8)  # every call takes longer
    for cache in (PrefixCache(), PrefixCache(0), None):
        profiler = bench.profiler(pipeline, numbers(3), cache=cache)
        one = profiler.measure(chosen(pipeline, first=1, second=0), 3)
        other = profiler.measure(chosen(pipeline, first=1, second=2), 3)
        assert one.operator_s[0].tolist() == other.operator_s[0].tolist()


def test_what_was_really_run_is_spent_though_the_first_seconds_are_reported() -> None:
    bench = Bench()
    pipeline = chain(bench, seconds=lambda call: 1.0 if call <= 2 else 4.0)
    profiler = bench.profiler(pipeline, numbers(1))
    profiler.measure(chosen(pipeline, first=1, second=0), 1)
    assert profiler.spent_s == 4  # both warmed up and timed
    other = profiler.measure(chosen(pipeline, first=1, second=1), 1)
    assert other.operator_s[:, 0].tolist() == [1, 4]
    assert other.spent_s == 12  # first again; second warmed up and timed
    assert other.saved_s == 0


def test_an_ancestor_is_not_run_for_an_output_that_is_cached() -> None:
    # `middle` hands on so little that it stays, `wide` so much that it is never held.
    bench = Bench()
    by = Knob(name="by", values=(0, 1))
    pipeline = Pipeline(
        name="funnel",
        operators=(
            bench.operator("wide", lambda inputs, settings: np.zeros(10_000)),
            bench.operator("middle", lambda inputs, settings: 1.0, after=("wide",)),
            bench.operator("last", add, after=("middle",), knobs=(by,)),
        ),
        score=closeness,
    )
    profiler = bench.profiler(pipeline, numbers(2), cache=PrefixCache(20_000))
    profiler.measure(chosen(pipeline, last=0), 2)
    profile = profiler.measure(chosen(pipeline, last=1), 2)
    assert bench.calls == {"wide": 3, "middle": 3, "last": 6}
    assert profile.operator_s.tolist() == [[0.25, 0.25]] * 3
    assert profile.output_bytes[0].tolist() == [80_000, 80_000]
    assert profile.saved_s == 4 * 0.25


def test_a_failing_operator_ends_the_input_and_what_ran_before_it_is_kept() -> None:
    bench = Bench()

    def pick(inputs: Payload, settings: Settings) -> Payload:
        if inputs == settings["by"]:
            raise RuntimeError("broke")
        return 1.0

    by = Knob(name="by", values=(0, 1))
    pipeline = Pipeline(
        name="breaks",
        operators=(
            bench.operator("first", lambda inputs, settings: inputs),
            bench.operator("second", pick, after=("first",), knobs=(by,)),
            bench.operator("third", lambda inputs, settings: inputs, after=("second",)),
        ),
        score=closeness,
    )
    profiler = bench.profiler(pipeline, numbers(2), cache=PrefixCache())
    profile = profiler.measure(chosen(pipeline, second=0), 2)
    assert isnan(profile.score[0])
    assert profile.succeeded.tolist() == [False, True]
    failure = profile.failures[0]
    assert (failure.input, failure.operator) == (0, "second")
    assert failure.cause == "RuntimeError: broke"
    assert bench.calls["third"] == 2  # warm-up and input 1 only
    profiler.measure(chosen(pipeline, second=1), 2)
    assert bench.calls["first"] == 3  # its output on both inputs was cached


def test_a_metric_that_changes_an_output_changes_only_its_own() -> None:
    def greedy(output: Payload, expected: Payload) -> float:
        assert isinstance(output, list)
        output.append(1)
        return 1 / len(output)

    bench = Bench()
    operator = bench.operator("op", lambda inputs, settings: [0])
    pipeline = Pipeline(name="p", operators=(operator,), score=greedy)
    alike = Dataset(name="alike", examples=(Example(input=1, expected=1),) * 2)
    profiler = bench.profiler(pipeline, alike, cache=PrefixCache())
    configuration = ConfigurationSpace(pipeline.graph).configuration(0)
    assert profiler.measure(configuration, 2).score.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("cache", [None, PrefixCache()])
def test_several_sinks_are_scored_together(cache: PrefixCache | None) -> None:
    bench = Bench()
    pipeline = Pipeline(
        name="fork",
        operators=(
            bench.operator("left", lambda inputs, settings: 1),
            bench.operator("right", lambda inputs, settings: 2),
        ),
        score=lambda output, expected: float(output == {"left": 1, "right": 2}),
    )
    profile = bench.profiler(pipeline, numbers(2), cache=cache).measure(
        ConfigurationSpace(pipeline.graph).configuration(0), 2
    )
    assert profile.score.tolist() == [1, 1]


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
