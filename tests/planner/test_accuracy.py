import numpy as np
import pytest
from scipy import stats

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.slo import SURE, Estimate, LatencyStatistic
from circinus.planner.models.accuracy import Accuracies, AccuracyModel
from circinus.planner.models.ahead import (
    accuracy_ahead,
    accuracy_needed,
    examples_needed,
    latency_served,
    too_few,
)
from circinus.planner.models.estimates import accuracy_estimate, latency_at_least, latency_estimate
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.strategy.space import indices_of
from tests.oracles.synthetic import chain

MEAN, P90, P99 = LatencyStatistic.MEAN, LatencyStatistic.P90, LatencyStatistic.P99


@pytest.mark.parametrize("scores", [[1.0] * 20, [0.0] * 20, [0.5] * 20, [1.0]])
def test_scores_without_variance_are_not_certain(scores: list[float]) -> None:
    estimate = accuracy_estimate(np.array(scores), population=1000)
    assert 0 <= estimate.low <= estimate.value <= estimate.high <= 1
    assert estimate.high - estimate.low > 0.05


def test_the_whole_population_is_known_exactly() -> None:
    values = np.array([0.1, 0.9, 0.4])
    accuracy = accuracy_estimate(values, population=3)
    assert accuracy.low == accuracy.value == accuracy.high
    for statistic in LatencyStatistic:
        latency = latency_estimate(values, statistic=statistic, population=3)
        assert latency.low == latency.value == latency.high
        assert latency.confidence == 0.95


def test_the_t_interval_is_the_textbook_one() -> None:
    # Mean 2.5, s = 1.2910, t(3, 97.5 %) = 3.1824, so half of 2.0543; N is too large to matter.
    estimate = latency_estimate(np.array([1.0, 2, 3, 4]), statistic=MEAN, population=10**9)
    assert estimate.high - estimate.value == pytest.approx(2.0543, abs=1e-4)


def test_too_few_inputs_for_a_percentile_say_so_in_the_confidence() -> None:
    estimate = latency_estimate(np.arange(1.0, 51), statistic=P99, population=10**6)
    assert estimate.high == 50
    assert estimate.confidence == pytest.approx(1 - 0.99**50, abs=0.03)


@pytest.mark.parametrize("statistic", [MEAN, P90])
def test_intervals_hold_the_truth_as_often_as_they_say(statistic: LatencyStatistic) -> None:
    # 400 draws of 60 out of 200: a true rate of 95 % gives fewer than 92 % with p < 0.5 %.
    rng = np.random.default_rng(0)
    population = rng.gamma(4.0, size=200)
    truth = float(statistic.of(population))
    held = 0
    for _ in range(400):
        drawn = rng.choice(population, 60, replace=False)
        estimate = latency_estimate(drawn, statistic=statistic, population=200)
        held += estimate.low <= truth <= estimate.high
    assert held >= 0.92 * 400


@pytest.mark.parametrize("statistic", [MEAN, P90, P99])
def test_lower_ends_of_many_plans_are_those_of_each(statistic: LatencyStatistic) -> None:
    latencies = np.random.default_rng(0).random((3, 30))
    lows = latency_at_least(latencies, statistic=statistic, population=100, confidence=0.95)
    each = [
        latency_estimate(row, statistic=statistic, population=100, confidence=0.95).low
        for row in latencies
    ]
    np.testing.assert_allclose(lows, each)


GRAPH = chain(10, 11)
SPACE = ConfigurationSpace(GRAPH)
KNOBS = indices_of(SPACE, range(SPACE.size))
POPULATION = 100


def _model(*, paired: bool = True) -> AccuracyModel:
    return AccuracyModel(SPACE, POPULATION, KNOBS, paired=paired)


def _accuracies(mean: float, deviation: float) -> Accuracies:
    return Accuracies(mean=np.array([mean]), variance=np.array([deviation**2]), part=1.0)


def test_a_mean_beyond_what_accuracies_can_be_is_shown_at_the_end() -> None:
    estimate = _accuracies(1.02, 0.05).estimate(0, np.ones(5), POPULATION)
    assert (estimate.value, estimate.high) == (1.0, 1.0)
    assert estimate.low == pytest.approx(1.0 - 1.96 * 0.05, abs=1e-3)


def test_an_accuracy_on_all_inputs_is_exact_whatever_the_models_say() -> None:
    scores = np.tile([0.0, 1.0], POPULATION // 2)
    estimate = _accuracies(0.9, 0.01).estimate(0, scores, POPULATION)
    assert (estimate.low, estimate.value, estimate.high) == (0.5, 0.5, 0.5)


def test_what_is_sure_is_the_less_of_models_and_own_scores() -> None:
    doubted, trusted = _accuracies(0.6, 0.05), _accuracies(0.95, 0.001)
    scores = np.tile([1.0, 1.0, 1.0, 0.0], 5)  # 0.75, of few
    assert doubted.sure_of(0, scores, POPULATION, 2.0) == pytest.approx(0.5)
    own = trusted.sure_of(0, scores, POPULATION, 2.0)
    assert 0.75 - 2.0 * 0.1 < own < 0.75


def test_scores_known_already_tell_nothing_anew() -> None:
    model = _model()
    model.observe(3, np.array([0.4, 0.6]))
    before = model.predict().mean.copy()
    model.observe(3, np.array([0.4, 0.6]))
    assert model.observations == 1
    assert np.array_equal(model.predict().mean, before)


def test_luck_on_shared_inputs_is_no_difference_where_noise_is_paired() -> None:
    # Both met the same two inputs and scored alike: what one got wrong the other did, too.
    lucky = np.array([1.0, 1.0])
    found = {}
    for paired in (True, False):
        model = _model(paired=paired)
        for row in (0, 1, 2, 3):
            model.observe(row, lucky)
        found[paired] = model.predict().mean[0]
    assert found[True] < found[False]


def test_hyper_parameters_count_as_learnt_from_a_hundred_earlier_configurations_on() -> None:
    variances = {}
    for known in (98, 99, 100, 101):
        model = _model()
        rows = list(range(known))
        model.recall(rows, [_recalled(row) for row in rows])
        variances[known] = model.predict().variance[-1]
    # One more of so many tells next to nothing; but then they are no guesses.
    assert min(variances[98], variances[99]) > 1.25 * max(variances[100], variances[101])


def test_intervals_hold_the_truth_of_the_configuration_that_looks_best() -> None:
    # Accuracies add up over knobs; of 110 configurations 30 are met, and the one with the best
    # scores is asked about: its own t-interval would sit too high.
    rng = np.random.default_rng(0)
    held, high = [], []
    for _ in range(150):
        effects = [rng.normal(0, 0.1, 10), rng.normal(0, 0.1, 11)]
        truth = np.clip(0.6 + effects[0][KNOBS[:, 0]] + effects[1][KNOBS[:, 1]], 0.05, 0.95)
        luck = rng.normal(0, 1, POPULATION)  # how hard inputs are for all
        own = rng.normal(0, 1, (SPACE.size, POPULATION))
        drawn = 0.4 * luck + np.sqrt(1 - 0.16) * own
        # The best `truth` part of the inputs is answered: means over all inputs are the truth.
        rank = drawn.argsort(axis=1).argsort(axis=1)
        scores = (rank < np.round(truth * POPULATION)[:, None]).astype(float)
        model = _model()
        met = rng.choice(SPACE.size, 30, replace=False)
        for row in met:
            model.observe(int(row), scores[row, :16])
        model.refit()
        best = int(met[np.argmax(scores[met, :16].mean(axis=1))])
        estimate = model.predict().estimate(best, scores[best, :16], POPULATION)
        mean = scores[best].mean()
        held.append(estimate.low <= mean <= estimate.high)
        high.append((estimate.value - mean, scores[best, :16].mean() - mean))
    assert np.mean(held) >= 0.9  # 0.95 less three standard errors
    shown, raw = np.mean(high, axis=0)
    assert abs(shown) < 0.4 * raw  # own scores are 0.05 too high


def _recalled(row: int) -> ConfigurationRecord:
    return ConfigurationRecord(
        configuration=SPACE.configuration(row),
        inputs=40,
        accuracy=0.5 + 0.002 * row,
        deviation=0.0,
        operator_s=(1.0, 1.0),
        operator_deviation_s=(0.0, 0.0),
        output_bytes=(1.0, 1.0),
        input_bytes=1.0,
    )


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
