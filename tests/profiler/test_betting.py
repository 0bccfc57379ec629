from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray, StoppingRule, Verdict
from circinus.profiler.stopping import Betting, capital

MANY = 1_000_000
RULE: StoppingRule = Betting()
POPULATIONS = (
    [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0],
    [0.0, 1 / 3, 1 / 3, 2 / 3, 1.0, 1.0, 0.25],
    [0.1, 0.2, 0.9, 0.95, 0.5, 0.5, 0.5],
    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0],
)


@pytest.mark.parametrize("confidence", [0.0, 1.0, float("nan")])
def test_a_confidence_out_of_range_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidInput, match=r"confidence must be in \(0, 1\), got"):
        Betting(confidence=confidence)


@pytest.mark.parametrize("groups", [[], [0, -1], [0, 2], [[0], [1]]])
def test_groups_that_are_no_numbers_of_inputs_are_refused(groups: list[int]) -> None:
    with pytest.raises(InvalidInput, match="groups must be numbers in"):
        Betting(groups=np.array(groups, dtype=np.int64))


def test_groups_of_other_inputs_are_refused() -> None:
    rule = Betting(groups=np.zeros(3, dtype=np.int64))
    with pytest.raises(InvalidInput, match=re.escape("groups must be of the 4 inputs, got 3.")):
        rule.judge(np.array([0.5]), bound=0.5, population=4)


@pytest.mark.parametrize(
    ("scores", "bound", "population", "message"),
    [
        ([0.5, 1.1], 0.5, 9, "scores must be in [0, 1] or NaN, got [1.1]."),
        ([0.5], float("nan"), 9, "bound must be in [0, 1], got nan."),
        ([0.5, 0.5], 0.5, 1, "population must be at least the number of scores, 2, got 1."),
    ],
)
def test_what_cannot_be_judged_is_refused(
    scores: list[float], bound: float, population: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        RULE.judge(np.array(scores), bound=bound, population=population)


def test_nothing_measured_decides_nothing() -> None:
    assert RULE.judge(np.array([]), bound=0.0, population=1) is Verdict.UNDECIDED


def test_failures_alone_decide_nothing() -> None:
    for count in (3, 4):
        failed = np.full(count, np.nan)
        assert RULE.judge(failed, bound=0.5, population=4) is Verdict.UNDECIDED


@pytest.mark.parametrize("bound", [0.6, float(np.nextafter(0.6, 1))])
def test_at_the_whole_population_the_verdict_is_exact(bound: float) -> None:
    scores = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    verdict = Verdict.ABOVE if bound == 0.6 else Verdict.BELOW
    assert RULE.judge(scores, bound=bound, population=5) is verdict


def test_a_failed_input_is_no_part_of_the_mean() -> None:
    scores = np.array([1.0, np.nan, 0.0, 1.0, np.nan])  # mean 2/3 of three
    assert RULE.judge(scores, bound=0.66, population=5) is Verdict.ABOVE
    assert RULE.judge(scores, bound=0.67, population=5) is Verdict.BELOW


def test_a_clear_case_needs_no_fifty_inputs() -> None:
    assert RULE.judge(np.ones(12), bound=0.5, population=MANY) is Verdict.ABOVE
    assert RULE.judge(np.zeros(12), bound=0.5, population=MANY) is Verdict.BELOW


def test_constant_scores_do_not_prove_a_bound_they_could_miss() -> None:
    # Had 5 % of the inputs scored 0, 50 ones in a row would still be seen in 8 % of profiles.
    assert RULE.judge(np.ones(50), bound=0.95, population=MANY) is Verdict.UNDECIDED


def every_order(count: int) -> IntArray:
    return np.array(list(permutations(range(count))), dtype=np.int64)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("labels", [None, [0, 0, 0, 1, 1, 1, 2], [0, 1, 0, 1, 0, 1, 0]])
def test_the_capital_is_a_martingale_over_all_orders(
    population: list[float], labels: list[int] | None
) -> None:
    scores = np.array(population)
    order = every_order(len(scores))
    bounds = np.full(len(order), scores.mean())
    groups = None if labels is None else np.array(labels)[order]
    for x, bound in ((scores[order], bounds), (1 - scores[order], 1 - bounds)):
        means = capital(x, bound, len(scores), groups).mean(axis=0)
        assert np.allclose(means, 1.0, atol=1e-9)


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("labels", [None, [0, 0, 0, 1, 1, 1, 2]])
@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("distance", [-0.05, -0.002, 0.002, 0.05])
def test_over_all_orders_it_errs_at_most_as_often_as_promised(
    population: list[float], labels: list[int] | None, confidence: float, distance: float
) -> None:
    scores = np.array(population)
    order = every_order(len(scores))
    bounds = np.full(len(order), scores.mean() + distance)
    if not 0 <= bounds[0] <= 1:
        return
    groups = None if labels is None else np.array(labels)[order]
    signs = Betting(confidence=confidence).path(scores[order], bounds, len(scores), groups)
    first = signs[np.arange(len(order)), np.argmax(signs != 0, axis=1)]
    assert (first == np.sign(distance)).mean() <= 1 - confidence


def test_looked_at_after_every_draw_it_keeps_its_promise_on_a_thousand_inputs() -> None:
    generator = np.random.default_rng(0)
    ones = (np.arange(1000) < 500).astype(float)
    scores = generator.permuted(np.tile(ones, (1000, 1)), axis=1)
    signs = Betting().path(scores[:, :400], np.full(1000, 0.502), 1000)
    # At most 10 of 1,000 are expected; 21 or more would be seen in 0.2 % of seeds.
    assert (signs > 0).any(axis=1).sum() <= 20


def test_groups_that_tell_the_score_save_inputs() -> None:
    generator = np.random.default_rng(0)
    labels = np.arange(1000) % 10
    scores = np.clip(labels / 10 + generator.normal(0, 0.05, 1000), 0, 1)
    order = generator.permuted(np.tile(np.arange(1000), (100, 1)), axis=1)
    bounds = np.full(100, scores.mean() - 0.03)
    plain = Betting().path(scores[order], bounds, 1000)
    grouped = Betting().path(scores[order], bounds, 1000, labels[order])
    inputs = [np.argmax(signs != 0, axis=1).mean() for signs in (plain, grouped)]
    assert inputs[1] < 0.7 * inputs[0]


@settings(max_examples=50, deadline=None)
@given(
    scores=arrays(np.float64, st.integers(1, 60), elements=st.sampled_from([0, 0.3, 1.0])),
    bound=st.floats(0.05, 0.95),
    labelled=st.booleans(),
)
def test_a_verdict_stays_whatever_comes_after(
    scores: FloatArray, bound: float, labelled: bool
) -> None:
    groups = np.arange(60, dtype=np.int64) % 3 if labelled else None
    rule = Betting(confidence=0.8, groups=groups)
    verdicts = [
        rule.judge(scores[: n + 1], bound=bound, population=60) for n in range(len(scores))
    ]
    decided = [verdict for verdict in verdicts if verdict is not Verdict.UNDECIDED]
    assert len(set(decided)) <= 1
    assert verdicts[len(verdicts) - len(decided) :] == decided
