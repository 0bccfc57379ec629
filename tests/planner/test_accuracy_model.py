"""What is said of accuracies, and how often it is so."""

import numpy as np
import pytest

from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.planner.models.accuracy import Accuracies, AccuracyModel
from circinus.planner.models.history import ConfigurationRecord
from circinus.planner.strategy.space import indices_of
from tests.oracles.synthetic import chain

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
