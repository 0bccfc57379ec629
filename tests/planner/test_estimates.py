import numpy as np
import pytest

from circinus.pipelines.model.slo import LatencyStatistic
from circinus.planner.models.estimates import accuracy_estimate, latency_at_least, latency_estimate

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
