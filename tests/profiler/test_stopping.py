from __future__ import annotations

import re
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, IntArray, StoppingRule, Verdict
from circinus.profiler.stopping import Betting, TTest, capital

MANY = 1_000_000
RULE: StoppingRule = TTest()


def scores(*parts: tuple[float, int]) -> FloatArray:
    return np.concatenate([np.full(count, score) for score, count in parts])


@pytest.mark.parametrize(
    ("confidence", "minimum", "message"),
    [
        (0.0, 50, "confidence must be in (0, 1), got 0.0."),
        (1.0, 50, "confidence must be in (0, 1), got 1.0."),
        (float("nan"), 50, "confidence must be in (0, 1), got nan."),
        (0.99, 1, "minimum must be >= 2, got 1."),
    ],
)
def test_a_rule_out_of_range_is_refused(confidence: float, minimum: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        TTest(confidence=confidence, minimum=minimum)


@pytest.mark.parametrize(
    ("given_scores", "bound", "population", "message"),
    [
        ([0.5, 1.1], 0.5, 9, "scores must be in [0, 1] or NaN, got [1.1]."),
        ([0.5, -0.1], 0.5, 9, "scores must be in [0, 1] or NaN, got [-0.1]."),
        ([0.5], 1.1, 9, "bound must be in [0, 1], got 1.1."),
        ([0.5], float("nan"), 9, "bound must be in [0, 1], got nan."),
        ([0.5, 0.5], 0.5, 1, "population must be at least the number of scores, 2, got 1."),
        ([], 0.5, 0, "population must be at least the number of scores, 0, got 0."),
    ],
)
def test_what_cannot_be_judged_is_refused(
    given_scores: list[float], bound: float, population: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        RULE.judge(np.array(given_scores), bound=bound, population=population)


def test_nothing_measured_decides_nothing() -> None:
    assert RULE.judge(np.array([]), bound=0.0, population=1) is Verdict.UNDECIDED


def test_below_the_minimum_nothing_is_decided_however_clear() -> None:
    clear = scores((1.0, 25), (0.9, 25))
    assert RULE.judge(clear[:49], bound=0.1, population=MANY) is Verdict.UNDECIDED
    assert RULE.judge(clear, bound=0.1, population=MANY) is Verdict.ABOVE


@pytest.mark.parametrize(
    ("bound", "verdict"), [(0.6, Verdict.ABOVE), (np.nextafter(0.6, 1), Verdict.BELOW)]
)
def test_at_the_whole_population_the_verdict_is_exact(bound: float, verdict: Verdict) -> None:
    # Mean of three ones and two zeros: 0.6 exactly; a mean equal to the bound is above.
    assert RULE.judge(scores((1, 3), (0, 2)), bound=bound, population=5) is verdict


@pytest.mark.parametrize("score", [0.1, 0.3, 0.7])
def test_the_mean_of_equal_scores_is_the_score_in_spite_of_rounding(score: float) -> None:
    for count in (5, 10, 64):
        whole = scores((score, count))
        assert RULE.judge(whole, bound=score, population=count) is Verdict.ABOVE


def test_a_population_below_the_minimum_is_measured_whole() -> None:
    assert RULE.judge(scores((1, 9)), bound=0.5, population=10) is Verdict.UNDECIDED
    assert RULE.judge(scores((1, 10)), bound=0.5, population=10) is Verdict.ABOVE


def test_a_single_input_is_a_population() -> None:
    assert RULE.judge(np.array([0.4]), bound=0.5, population=1) is Verdict.BELOW


@pytest.mark.parametrize(
    ("ones", "verdict"),
    [
        (30, Verdict.ABOVE),  # 30 of 60 even if the rest scores 0: mean >= 0.5
        (29, Verdict.UNDECIDED),
        (20, Verdict.BELOW),  # 29 of 60 even if the other 9 score 1, wherever the t-test stands
    ],
)
def test_a_verdict_no_unseen_score_can_change_is_given(ones: int, verdict: Verdict) -> None:
    seen = scores((1, ones), (0, 51 - ones))
    never = TTest(confidence=1 - 1e-12)  # so that only the bounds on the rest decide
    assert never.judge(seen, bound=0.5, population=60) is verdict


@pytest.mark.parametrize("score", [0.0, 1.0])
@pytest.mark.parametrize("count", [50, 100, 458])
def test_constant_scores_are_decided_by_the_interval_of_clopper_and_pearson(
    score: float, count: int
) -> None:
    exact = stats.binomtest(int(score) * count, count).proportion_ci(0.99, method="exact")
    limit = exact.low if score == 1 else exact.high
    seen = scores((score, count))
    good, bad = (limit - 1e-6, limit + 1e-6) if score == 1 else (limit + 1e-6, limit - 1e-6)
    decided = Verdict.ABOVE if score == 1 else Verdict.BELOW
    assert RULE.judge(seen, bound=good, population=MANY) is decided
    assert RULE.judge(seen, bound=bad, population=MANY) is Verdict.UNDECIDED


def test_constant_scores_between_the_ends_leave_room_on_both_sides() -> None:
    # At most 1 - 0.005^(1/50) = 0.1005 of the inputs score otherwise: mean in [0.630, 0.730].
    seen = scores((0.7, 50))
    for bound, verdict in (
        (0.62, Verdict.ABOVE),
        (0.64, Verdict.UNDECIDED),
        (0.72, Verdict.UNDECIDED),
        (0.74, Verdict.BELOW),
    ):
        assert RULE.judge(seen, bound=bound, population=MANY) is verdict


def test_rounding_does_not_pass_for_variance() -> None:
    seen = scores((0.7, 25), (float(np.nextafter(0.7, 1)), 25))
    assert RULE.judge(seen, bound=0.69, population=MANY) is Verdict.UNDECIDED


def test_constant_scores_stop_too_soon_at_most_as_often_as_promised() -> None:
    # 4 % of the inputs score 0, so the mean, 0.96, is below the bound 0.965. All of the first 50
    # score 1 in 0.96^50 = 13 % of the profiles; a rule that trusted them would err as often.
    generator = np.random.default_rng(0)
    verdicts = [
        RULE.judge((generator.random(50) < 0.96).astype(float), bound=0.965, population=MANY)
        for _ in range(2000)
    ]
    assert Verdict.ABOVE not in verdicts


@settings(max_examples=200, deadline=None)
@given(
    seen=arrays(np.float64, st.integers(50, 90), elements=st.sampled_from([0, 0.2, 0.5, 0.9, 1])),
    bound=st.floats(0.01, 0.99),
)
def test_the_verdict_is_that_of_a_two_sided_t_test(seen: FloatArray, bound: float) -> None:
    if np.ptp(seen) == 0:
        return
    p_value = float(np.asarray(stats.ttest_1samp(seen, bound).pvalue))
    if abs(p_value - 0.01) < 1e-9:
        return
    expected = Verdict.UNDECIDED
    if p_value < 0.01:
        expected = Verdict.ABOVE if seen.mean() >= bound else Verdict.BELOW
    assert RULE.judge(seen, bound=bound, population=MANY) is expected


def test_the_t_test_divides_by_n_minus_one() -> None:
    # 25 times 0.4 and 0.6: standard error 0.1 / sqrt(49) = 0.014286, and the 99.5 % point of t
    # with 49 degrees of freedom is 2.680, so a mean of 0.5 is clear of bounds below 0.4617.
    seen = scores((0.4, 25), (0.6, 25))
    assert RULE.judge(seen, bound=0.4616, population=MANY) is Verdict.ABOVE
    assert RULE.judge(seen, bound=0.4619, population=MANY) is Verdict.UNDECIDED


def test_one_look_errs_as_often_as_promised_and_no_more() -> None:
    # Uniform scores, 50 of them, bound at the true mean 0.5: any verdict is an error, at a rate
    # of 1 %. 4,000 profiles: 40 expected, more than 62 or fewer than 20 in 0.1 % of seeds each.
    generator = np.random.default_rng(1)
    wrong = sum(
        RULE.judge(generator.random(50), bound=0.5, population=MANY) is not Verdict.UNDECIDED
        for _ in range(4000)
    )
    assert 20 <= wrong <= 62


BETTING_MANY = 1_000_000
BETTING_RULE: StoppingRule = Betting()
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
def test_what_betting_cannot_judge_is_refused(
    scores: list[float], bound: float, population: int, message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        BETTING_RULE.judge(np.array(scores), bound=bound, population=population)


def test_nothing_measured_decides_no_bet() -> None:
    assert BETTING_RULE.judge(np.array([]), bound=0.0, population=1) is Verdict.UNDECIDED


def test_failures_alone_decide_nothing() -> None:
    for count in (3, 4):
        failed = np.full(count, np.nan)
        assert BETTING_RULE.judge(failed, bound=0.5, population=4) is Verdict.UNDECIDED


@pytest.mark.parametrize("bound", [0.6, float(np.nextafter(0.6, 1))])
def test_at_the_whole_population_the_verdict_of_betting_is_exact(bound: float) -> None:
    scores = np.array([1.0, 0.0, 1.0, 0.0, 1.0])
    verdict = Verdict.ABOVE if bound == 0.6 else Verdict.BELOW
    assert BETTING_RULE.judge(scores, bound=bound, population=5) is verdict


def test_a_failed_input_is_no_part_of_the_mean() -> None:
    scores = np.array([1.0, np.nan, 0.0, 1.0, np.nan])  # mean 2/3 of three
    assert BETTING_RULE.judge(scores, bound=0.66, population=5) is Verdict.ABOVE
    assert BETTING_RULE.judge(scores, bound=0.67, population=5) is Verdict.BELOW


def test_a_clear_case_needs_no_fifty_inputs() -> None:
    assert BETTING_RULE.judge(np.ones(12), bound=0.5, population=BETTING_MANY) is Verdict.ABOVE
    assert BETTING_RULE.judge(np.zeros(12), bound=0.5, population=BETTING_MANY) is Verdict.BELOW


def test_constant_scores_do_not_prove_a_bound_they_could_miss() -> None:
    # Had 5 % of the inputs scored 0, 50 ones in a row would still be seen in 8 % of profiles.
    assert (
        BETTING_RULE.judge(np.ones(50), bound=0.95, population=BETTING_MANY) is Verdict.UNDECIDED
    )


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
