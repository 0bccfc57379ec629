"""Operators that draw without saying so are noticed, at no cost or at that of one run each."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, drawing_as
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import Completed, FailedRun, run_once
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.synthetic import Bench

DATA = Dataset(name="numbers", examples=tuple(Example(input=i, expected=i) for i in range(5)))
TWENTY = Dataset(name="more", examples=tuple(Example(input=i, expected=i) for i in range(20)))


class NeverWarm:
    """An executor that runs everything once, as calls are run."""

    width = 1

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        return run_once(self._bench.clock, operator, inputs, configuration)


def pipeline_of(bench: Bench, *, varies: bool, declared: bool = False) -> Pipeline:
    """Return `read` before `answer`; the answers of the latter are numbered if they vary."""

    def read(inputs: Payload, settings: Settings) -> Payload:
        return inputs

    def answer(inputs: Payload, settings: Settings) -> Payload:
        assert isinstance(inputs, int)
        return [inputs, bench.calls["answer"] if varies else 0]

    def score(output: Payload, expected: Payload) -> float:
        return 1.0

    answering = bench.operator("answer", answer, after=("read",))
    answering = replace(answering, spec=replace(answering.spec, draws=declared))
    return Pipeline(name="p", operators=(bench.operator("read", read), answering), score=score)


def only(pipeline: Pipeline) -> Configuration:
    return ConfigurationSpace(pipeline.graph).configuration(0)


def test_one_that_fails_the_second_time_is_not_asked_again() -> None:
    bench = Bench()
    calls = 0

    def fail_once(inputs: Payload, settings: Settings) -> Payload:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise RuntimeError("busy")
        return inputs

    pipeline = Pipeline(
        name="p", operators=(bench.operator("one", fail_once),), score=lambda output, expected: 1.0
    )
    profiler = bench.profiler(pipeline, DATA, executor=NeverWarm(bench))
    profile = profiler.measure(only(pipeline), 3)
    assert not profile.failures
    assert not profiler.graph.draws
    assert bench.calls == {"one": 1 + 3}


def test_warm_ups_tell_it_without_any_further_run() -> None:
    for varies in (False, True):
        bench = Bench()
        pipeline = pipeline_of(bench, varies=varies)
        profiler = bench.profiler(pipeline, DATA, cache=PrefixCache())
        profiler.measure(only(pipeline), 1)
        assert bench.calls == {"read": 2, "answer": 2}  # as ever: a warm-up and a run
        assert [operator.draws for operator in profiler.graph.operators] == [False, varies]


def test_what_is_no_part_of_the_answer_is_not_compared() -> None:
    bench = Bench()
    pipeline = pipeline_of(bench, varies=True)
    operators = tuple(replace(o, comparable=lambda output: "same") for o in pipeline.operators)
    profiler = bench.profiler(replace(pipeline, operators=operators), DATA, cache=PrefixCache())
    profiler.measure(only(pipeline), 1)
    assert not profiler.graph.draws


def test_what_does_not_draw_costs_one_run_more_of_an_operator_where_nothing_is_warmed_up() -> None:
    bench = Bench()
    pipeline = pipeline_of(bench, varies=False)
    profiler = bench.profiler(pipeline, DATA, executor=NeverWarm(bench))
    profile = profiler.measure(only(pipeline), 5)
    assert bench.calls == {"read": 1 + 5, "answer": 1 + 5}
    assert (profile.runs, profile.spent_s) == (12, 12 * 0.25)
    assert not profiler.graph.draws


def test_what_is_known_to_draw_does_from_the_start_and_is_not_compared() -> None:
    bench, known = Bench(), Comparisons(unlike={"answer"})
    pipeline = pipeline_of(bench, varies=True)
    profiler = bench.profiler(pipeline, DATA, executor=NeverWarm(bench), comparisons=known)
    assert [operator.draws for operator in profiler.graph.operators] == [False, True]
    profiler.measure(only(pipeline), 5)
    assert bench.calls == {"read": 1 + 5, "answer": 5}


def test_what_was_seen_to_draw_before_a_restart_draws_after_it() -> None:
    bench, journal = Bench(), MemoryJournal()
    pipeline = pipeline_of(bench, varies=True)
    bench.profiler(pipeline, DATA, journal=journal).measure(only(pipeline), 3)
    restarted = bench.profiler(pipeline, DATA, journal=journal)
    restarted.measure(only(pipeline), 3)  # all of it is in the journal
    assert [operator.draws for operator in restarted.graph.operators] == [False, True]


def test_what_is_declared_is_not_compared() -> None:
    bench = Bench()
    pipeline = pipeline_of(bench, varies=True, declared=True)
    bench.profiler(pipeline, DATA, executor=NeverWarm(bench)).measure(only(pipeline), 5)
    assert bench.calls == {"read": 1 + 5, "answer": 5}


def test_once_it_is_noticed_inputs_are_drawn_again() -> None:
    bench = Bench()
    pipeline = pipeline_of(bench, varies=True)
    profiler = bench.profiler(pipeline, DATA, cache=PrefixCache())
    with pytest.raises(ValueError, match=r"must be in \[1, 5\], got 6"):
        profiler.measure(only(pipeline), 6)
    first = profiler.measure(only(pipeline), 2)
    profile = profiler.measure(only(pipeline), 5 * MOST_DRAWS)
    assert first.inputs.tolist() == [0, 1]
    assert profile.inputs[:7].tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert bench.calls == {"read": 1 + 5, "answer": 1 + 5 * MOST_DRAWS}


def test_of_the_first_150_measurements_a_fifth_is_compared_and_of_later_ones_none() -> None:
    bench, many = Bench(), Dataset(name="many", examples=[*DATA.examples] * 40)
    pipeline = pipeline_of(bench, varies=False)
    bench.profiler(pipeline, many, executor=NeverWarm(bench)).measure(only(pipeline), 200)
    assert bench.calls == {"read": 200 + 30, "answer": 200 + 30}


def test_what_is_paid_by_the_call_is_compared_once() -> None:
    def run(inputs: Payload, settings: Settings) -> Payload:
        return inputs

    known, done = Comparisons(), Completed(output=1, output_bytes=1, seconds=0.1, spent_s=0.1)
    paid = Operator(spec=OperatorSpec(name="paid", calls=("m",)), run=run)
    free = Operator(spec=OperatorSpec(name="free"), run=run)
    assert [known.needs_another(paid, done) for _ in range(3)] == [True, False, False]
    assert [known.needs_another(free, done) for _ in range(3)] == [True, True, True]


# Of the first measurements, of three inputs a version, every fifth is compared: the sixth, third
# input of version 1, and the eleventh, second input of version 3. First inputs are warmed up.
@pytest.mark.parametrize(
    ("warmed", "versions", "others"),
    [(False, 1, 0), (True, 1, 0), (True, 2, 1), (True, 6, 2)],
)
def test_one_of_ten_inputs_answered_by_chance_is_noticed_as_often_as_chance_has_it(
    warmed: bool, versions: int, others: int
) -> None:
    replays, noticed = 500, 0
    for seed in range(replays):
        bench, rng = Bench(), np.random.Generator(np.random.PCG64(seed))
        profiler = bench.profiler(
            by_chance(bench, rng, versions),
            TWENTY,
            order=rng.permutation(20).tolist(),
            cache=PrefixCache(),
            executor=None if warmed else NeverWarm(bench),
        )
        space = ConfigurationSpace(profiler.graph)
        for number in range(versions):
            profiler.measure(space.configuration(number), 3)
        noticed += profiler.graph.draws
    # Two of the twenty flip every other time: one input does with 1 / 10, two with 1 / 190.
    seen = [1 - 0.5**versions, *[0.5] * others]
    both = sum(a * b for a, b in itertools.combinations(seen, 2))
    expected = 0.1 * sum(seen) - both / 190
    slack = 4 * np.sqrt(expected * (1 - expected) / replays)
    assert noticed / replays == pytest.approx(expected, abs=slack)


def by_chance(bench: Bench, rng: np.random.Generator, versions: int) -> Pipeline:
    """Return one operator with so many settings, which answers two of twenty inputs by chance."""

    def answer(inputs: Payload, settings: Settings) -> Payload:
        assert isinstance(inputs, int)
        return [inputs, bool(rng.integers(2)) if inputs < 2 else True]

    knob = Knob(name="version", values=tuple(range(versions)))
    operator = bench.operator("answer", answer, knobs=(knob,))
    return Pipeline(name="p", operators=(operator,), score=lambda output, expected: 1.0)


def test_a_graph_without_such_operators_is_the_same() -> None:
    graph = pipeline_of(Bench(), varies=False).graph
    assert drawing_as(graph, set()) is graph
    drawing = drawing_as(graph, {"answer"})
    assert drawing.drawing == (False, True)
    assert drawing_as(drawing, {"answer"}) is drawing
