from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray, StoppingRule, Verdict
from circinus.profiler.stopping import TTest

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
