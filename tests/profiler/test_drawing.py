from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, means_of_inputs
from circinus.pipelines.model.operators import Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import FloatArray
from circinus.profiler.drawing import equal_strata, random_drawing, round_robin, stratified_drawing
from circinus.profiler.journal import MemoryJournal, profiles_of
from circinus.profiler.prefix_cache import PrefixCache, fingerprints
from tests.profiler.synthetic import Bench


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize(
    ("shape", "count", "strata", "message"),
    [
        ((3, 1), 0, 2, "inputs must be >= 1, got 0."),
        ((3, 1), 3, 0, "strata must be >= 1, got 0."),
        ((3, 1), 4, 2, "features must have shape (4, features), got (3, 1)."),
        ((4,), 4, 2, "features must have shape (4, features), got (4,)."),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    shape: tuple[int, ...], count: int, strata: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        random_drawing(np.zeros(shape), count, rng(), strata=strata)


@pytest.mark.parametrize("features", [None, np.zeros((20, 0)), np.zeros((20, 2))])
def test_every_input_comes_once_in_an_order_of_the_generator_alone(
    features: np.ndarray[tuple[int, int], np.dtype[np.float64]] | None,
) -> None:
    drawing = random_drawing(features, 20, rng())
    assert sorted(drawing.order.tolist()) == list(range(20))
    assert np.array_equal(drawing.order, random_drawing(None, 20, rng()).order)
    assert not np.array_equal(drawing.order, random_drawing(features, 20, rng(1)).order)


def test_without_features_or_with_few_inputs_nothing_is_known_of_them() -> None:
    assert random_drawing(None, 20, rng()).groups is None
    assert random_drawing(np.zeros((20, 0)), 20, rng()).groups is None
    assert random_drawing(np.zeros((5, 2)), 5, rng(), strata=6).groups is None


def test_groups_are_the_strata_in_the_order_drawn() -> None:
    features = rng(1).random((40, 2))
    generator = rng()
    order = generator.permutation(40)
    drawing = random_drawing(features, 40, rng(), strata=4)
    assert drawing.groups is not None
    assert drawing.groups.tolist() == equal_strata(features, generator, strata=4)[order].tolist()


@pytest.mark.parametrize(
    ("features", "count", "strata", "message"),
    [
        (None, 0, 3, "inputs must be >= 1, got 0."),
        (None, 5, 0, "strata must be >= 1, got 0."),
        (np.zeros(5), 5, 3, "features must have shape (5, features), got (5,)."),
        (np.zeros((4, 2)), 5, 3, "features must have shape (5, features), got (4, 2)."),
        (np.full((5, 1), np.nan), 5, 3, "features must be finite, got [nan]."),
        (np.full((5, 1), np.inf), 5, 3, "features must be finite, got [inf]."),
    ],
)
def test_what_cannot_be_stratified_is_refused(
    features: FloatArray | None, count: int, strata: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        stratified_drawing(features, count, rng(), strata=strata)


def test_more_strata_than_inputs_are_refused() -> None:
    with pytest.raises(InvalidInput, match="strata must be at most the number of inputs, 2"):
        equal_strata(np.zeros((2, 1)), rng(), strata=3)


@pytest.mark.parametrize("count", [1, 2, 9])
def test_without_features_or_with_fewer_inputs_than_strata_the_order_is_random(
    count: int,
) -> None:
    features = np.arange(count, dtype=float)[:, None]
    for given_features in (None, features):
        order = stratified_drawing(given_features, count, rng(), strata=10).order
        assert sorted(order) == list(range(count))


def test_features_without_columns_still_give_every_input_once() -> None:
    assert sorted(stratified_drawing(np.zeros((20, 0)), 20, rng()).order) == list(range(20))


@settings(max_examples=60, deadline=None)
@given(
    features=arrays(
        np.float64,
        st.tuples(st.integers(1, 40), st.integers(1, 3)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    ),
    strata=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_every_input_comes_once_whatever_the_features(
    features: FloatArray, strata: int, seed: int
) -> None:
    count = len(features)
    order = stratified_drawing(features, count, rng(seed), strata=strata).order
    assert sorted(order) == list(range(count))
    assert order.dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(
    features=arrays(
        np.float64,
        st.tuples(st.integers(12, 40), st.just(2)),
        elements=st.floats(-1e3, 1e3),
    ),
    strata=st.integers(1, 12),
)
def test_strata_are_of_equal_size_and_a_round_visits_each_once(
    features: FloatArray, strata: int
) -> None:
    count = len(features)
    labels = equal_strata(features, rng(), strata=strata)
    sizes = np.bincount(labels, minlength=strata)
    assert sizes.max() - sizes.min() <= 1
    assert sizes.sum() == count
    drawn = labels[round_robin(labels, rng())]
    for start in range(0, count - strata + 1, strata):
        assert sorted(drawn[start : start + strata]) == list(range(strata))


def test_clearly_separate_groups_become_the_strata() -> None:
    groups = np.repeat([0, 1, 2], 10)
    features = groups[:, None] * 100.0 + rng(1).random((30, 1))
    labels = equal_strata(features, rng(), strata=3)
    assert len({(int(a), int(b)) for a, b in zip(groups, labels, strict=True)}) == 3


def test_a_feature_in_large_units_does_not_drown_the_others() -> None:
    # The second feature tells the groups apart, the first is noise of a thousand times its size.
    groups = np.repeat([0.0, 1.0], 20)
    noise = rng(1).random(40) * 1000
    alike = equal_strata(np.stack([noise * 0 + 7, groups], axis=1), rng(), strata=2)
    assert len(set(alike[:20])) == len(set(alike[20:])) == 1
    doubled = np.stack([noise, groups, groups, groups], axis=1)
    labels = equal_strata(doubled, rng(), strata=2)
    assert len(set(labels[:20])) == len(set(labels[20:])) == 1


def test_features_of_any_size_are_standardised_without_overflow() -> None:
    features = np.repeat([[1e300], [-1e300]], 5, axis=0)
    labels = equal_strata(features, rng(), strata=2)
    assert len(set(labels[:5])) == len(set(labels[5:])) == 1


def test_the_same_seed_gives_the_same_order_and_another_one_another() -> None:
    features = rng(3).random((60, 4))
    first = stratified_drawing(features, 60, rng(5)).order
    assert np.array_equal(first, stratified_drawing(features, 60, rng(5)).order)
    assert not np.array_equal(first, stratified_drawing(features, 60, rng(6)).order)


def test_a_stop_within_a_round_favours_no_input() -> None:
    # Two strata of two: after one draw each of the four inputs is first equally often.
    # Chi-square over 4,000 orders, 3 degrees of freedom: above 16.3 in 0.1 % of seeds.
    labels = np.array([0, 0, 1, 1])
    generator = rng(11)
    first = [int(round_robin(labels, generator)[0]) for _ in range(4000)]
    observed = np.bincount(first, minlength=4)
    assert ((observed - 1000) ** 2 / 1000).sum() < 16.3


def test_the_order_has_less_variance_than_a_random_one_where_features_tell_the_score() -> None:
    # Scores rise with the feature, so strata explain most of their variance: over 300 orders
    # each the ratio of variances is far below one half in practice, 0.5 never by chance.
    scores = np.linspace(0, 1, 100)
    features = scores[:, None]
    generator = rng(4)
    stratified = [
        scores[stratified_drawing(features, 100, generator).order[:20]].mean() for _ in range(300)
    ]
    random = [
        scores[stratified_drawing(None, 100, generator).order[:20]].mean() for _ in range(300)
    ]
    assert np.var(stratified) < 0.5 * np.var(random)
    assert np.mean(stratified) == pytest.approx(0.5, abs=0.01)


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
