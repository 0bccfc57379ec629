"""What examples say of future inputs, against exact arithmetic and draws."""

import numpy as np
import pytest
from scipy import stats

from circinus.pipelines.model.slo import SURE, Estimate
from circinus.planner.models.ahead import (
    accuracy_ahead,
    accuracy_needed,
    examples_needed,
    latency_served,
    too_few,
)
from circinus.planner.models.estimates import accuracy_estimate

TAIL = (1 - SURE) / 4  # of each side, shared by two configurations


def _ahead(scores: list[float]) -> Estimate:
    given = np.array(scores)
    known = accuracy_estimate(given, population=len(given))
    return accuracy_ahead(given, known, examples=len(given))


def test_where_served_requests_are_off_besides_the_interval_grows_by_both() -> None:
    known = Estimate(value=2.0, low=1.0, high=2.0 * np.exp(0.3), confidence=SURE, inputs=20)
    assert latency_served(known, 1.0) == known

    served = latency_served(known, float(np.exp(0.4)))

    assert served.value == 2.0
    assert served.high == pytest.approx(2.0 * np.exp(0.5))  # sqrt(0.3^2 + 0.4^2)
    assert served.low == pytest.approx(2.0 * np.exp(-np.hypot(np.log(2), 0.4)))


def test_one_row_shows_nothing_of_future_inputs() -> None:
    for score in (0.0, 0.7, 1.0):
        ahead = _ahead([score])
        assert ahead.low < 0.05 or ahead.high > 0.95
        assert ahead.high - ahead.low > 0.9


def test_all_examples_right_is_the_exact_binomial_bound() -> None:
    # The least p with Pr[80 of 80 right] = p^80 = TAIL.
    assert _ahead([1.0] * 80).low == pytest.approx(TAIL ** (1 / 80))


def test_scores_of_0_and_1_have_the_interval_of_clopper_and_pearson() -> None:
    ahead = _ahead([1.0] * 34 + [0.0] * 6)
    exact = stats.binomtest(34, 40).proportion_ci(1 - 2 * TAIL, method="exact")

    assert ahead.low == pytest.approx(exact.low)
    assert ahead.high >= exact.high


def test_scores_that_do_not_vary_are_not_taken_for_certain() -> None:
    ahead = _ahead([0.5] * 50)

    assert ahead.low < 0.5 < ahead.high
    assert ahead.high - ahead.low < 0.1


def test_what_the_search_knows_better_is_part_of_it() -> None:
    known = Estimate(value=0.8, low=0.7, high=0.9, confidence=SURE, inputs=20)
    ahead = accuracy_ahead(np.ones(20), known, examples=1000)

    assert ahead.value == 0.8
    assert ahead.low <= 0.7
    assert ahead.high == 1.0


def test_the_accuracy_needed_is_the_least_that_shows_the_bound() -> None:
    needed = accuracy_needed(0.8, 80)
    assert needed is not None
    right = round(needed * 80)
    assert _ahead([1.0] * right + [0.0] * (80 - right)).low >= 0.8
    assert _ahead([1.0] * (right - 1) + [0.0] * (81 - right)).low < 0.8


def test_too_few_examples_are_told_with_the_number_that_would_do() -> None:
    # p^n = TAIL at p = 0.99: n = log(0.0125) / log(0.99) = 436.01.
    assert accuracy_needed(0.99, 436) is None
    assert accuracy_needed(0.99, 437) == 1.0
    assert examples_needed(0.99, 1.0) == 437
    assert too_few(0.99, 80).endswith("future inputs: 437 would do, were all of them right")


def test_no_number_of_examples_shows_what_does_not_hold() -> None:
    assert examples_needed(0.8, 0.79) is None
    assert examples_needed(0.8, 0.9) is not None


@pytest.mark.parametrize("accuracy", [0.6, 0.9, 0.98])
def test_the_interval_holds_the_mean_of_the_source(accuracy: float) -> None:
    # At most 2.5 % miss by theory; 1000 draws miss above 5 % with a chance below 1e-5.
    rng = np.random.default_rng(7)
    missed = 0
    for _ in range(1000):
        scores = (rng.random(80) < accuracy).astype(float)
        ahead = _ahead(scores.tolist())
        missed += not ahead.low <= accuracy <= ahead.high
    assert missed <= 50
