"""Profiles of pipelines that answer differently each time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, means_of_inputs
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload
from circinus.profiler.journal import MemoryJournal, profiles_of
from circinus.profiler.prefix_cache import PrefixCache, fingerprints
from tests.profiler.synthetic import Bench

DATA = Dataset(name="numbers", examples=tuple(Example(input=i, expected=i) for i in range(5)))


def flipping(
    bench: Bench, *, shared_s: float = 0.25, fails: Callable[[int], bool] = lambda call: False
) -> Pipeline:
    """Return `read` before `answer`, whose every other call is right, the first one too."""

    def read(inputs: Payload, settings: Settings) -> Payload:
        return inputs

    def answer(inputs: Payload, settings: Settings) -> Payload:
        call = bench.calls["answer"]
        if fails(call):
            raise RuntimeError("lost")
        assert isinstance(inputs, int)
        return inputs if call % 2 else -1

    def score(output: Payload, expected: Payload) -> float:
        return float(output == expected)

    reader = bench.operator("read", read, seconds=lambda call: shared_s)
    drawn = bench.operator("answer", answer, after=("read",))
    drawn = replace(drawn, spec=replace(drawn.spec, draws=True))
    return Pipeline(name="flipping", operators=(reader, drawn), score=score)


def only(pipeline: Pipeline) -> Configuration:
    return ConfigurationSpace(pipeline.graph).configuration(0)


def test_more_draws_than_are_measured_at_most_are_refused() -> None:
    bench = Bench()
    pipeline = flipping(bench)
    profiler = bench.profiler(pipeline, DATA)
    with pytest.raises(ValueError, match=r"must be in \[1, 40\], got 41"):
        profiler.measure(only(pipeline), 5 * MOST_DRAWS + 1)


def test_a_draw_that_fails_leaves_the_other_draws_of_its_input() -> None:
    bench = Bench()
    pipeline = flipping(bench, fails=lambda call: call == 3)  # a warm-up, input 0, and input 1
    profile = bench.profiler(pipeline, DATA, cache=PrefixCache()).measure(only(pipeline), 10)
    assert [(f.input, f.draw) for f in profile.failures] == [(1, 0)]
    assert np.flatnonzero(np.isnan(profile.score)).tolist() == [1]


def test_all_inputs_are_met_once_before_any_is_drawn_again() -> None:
    bench = Bench()
    pipeline = flipping(bench)
    profile = bench.profiler(pipeline, DATA, cache=PrefixCache()).measure(only(pipeline), 12)
    assert profile.inputs.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]
    assert bench.calls == {"read": 1 + 5, "answer": 1 + 12}  # what does not draw is run once
    assert profile.saved_runs == 7
    # Calls 2, 3, 4, ... of `answer`, of which the odd ones are right.
    assert profile.score.tolist() == [0, 1] * 6
    means = means_of_inputs(profile.inputs, profile.score)
    assert means.tolist() == [1 / 3, 2 / 3, 0.5, 0.5, 0.5]


def test_what_all_draws_share_and_is_dear_is_used_for_several_draws_at_once() -> None:
    bench = Bench()
    pipeline = flipping(bench, shared_s=25.0)  # a hundred times the seconds of a draw
    profiler = bench.profiler(pipeline, DATA, cache=PrefixCache())
    for inputs in range(1, 8):
        profile = profiler.measure(only(pipeline), inputs)
    # Two inputs tell how scores vary; then draws are worth sqrt(100 x 1 / 1) = 10 of an input.
    assert profile.inputs.tolist() == [0, 1, 2, 2, 2, 2, 2]
    assert bench.calls["read"] == 1 + 3


def test_a_search_that_is_started_again_pays_for_no_draw_twice() -> None:
    bench, journal = Bench(), MemoryJournal()
    pipeline = flipping(bench, shared_s=25.0)
    profiler = bench.profiler(pipeline, DATA, journal=journal)
    first = [profiler.measure(only(pipeline), inputs) for inputs in range(1, 31)][-1]
    calls = dict(bench.calls)
    profiler = bench.profiler(pipeline, DATA, journal=journal)
    again = [profiler.measure(only(pipeline), inputs) for inputs in range(1, 31)][-1]
    assert bench.calls == calls
    assert again.inputs.tolist() == first.inputs.tolist()
    assert again.score.tolist() == first.score.tolist()
    assert again.spent_s == first.spent_s


def test_profiles_from_a_journal_have_the_draws_of_each_input() -> None:
    bench, journal = Bench(), MemoryJournal()
    pipeline = flipping(bench)
    configuration = only(pipeline)
    profile = bench.profiler(pipeline, DATA, journal=journal).measure(configuration, 12)
    kept = [(configuration, one) for one in reversed(journal.recall(configuration))]
    (found,) = profiles_of(kept, np.arange(5), 2)
    assert found.inputs.tolist() == profile.inputs.tolist()
    assert found.score.tolist() == profile.score.tolist()


def test_the_first_draw_has_the_keys_of_a_pipeline_that_does_not_draw() -> None:
    pipeline = flipping(Bench())
    configuration, drawing = only(pipeline), pipeline.graph.drawing
    plain = fingerprints(pipeline, configuration)
    assert drawing == (False, True)
    assert fingerprints(pipeline, configuration, 0, drawing) == plain
    second, third = (fingerprints(pipeline, configuration, d, drawing) for d in (1, 2))
    assert second[0] == third[0] == plain[0]
    assert len({plain[1], second[1], third[1]}) == 3
