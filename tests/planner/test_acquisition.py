"""What measuring is worth per second."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import Slo
from circinus.planner.models.accuracy import Accuracies
from circinus.planner.models.operator_seconds import Seconds
from circinus.planner.strategy.acquisition import (
    Acquisition,
    MultiFidelitySettings,
    Predictions,
    log_confirmed,
    targets,
)

POPULATION = 160
SLO = Slo(accuracy=0.7, latency_s=0.1)


def _ahead(**settings: object) -> Acquisition:
    given = MultiFidelitySettings(**settings)  # type: ignore[arg-type]
    return Acquisition(slo=SLO, population=POPULATION, settings=given)


def _predicted(
    mean: FloatArray,
    *,
    deviation: float = 0.05,
    ratio: float = 0.1,
    log_deviation: float = 0.01,
    spread2: float = 0.1,
) -> Predictions:
    """Return one operator of a second per input; latencies are `ratio` of the SLO."""
    m = len(mean)
    return Predictions(
        met=np.zeros(m, dtype=np.int64),
        accuracies=Accuracies(mean=mean, variance=np.full(m, deviation**2), part=0.4),
        seconds=Seconds(
            hoped_s=np.ones((m, 1)),
            log_latency=np.full(m, np.log(ratio * SLO.latency_s)),
            log_variance=np.full(m, log_deviation**2),
            paid=np.zeros((m, 1), dtype=np.int64),
            share_cost=np.ones(m),
        ),
        spread2=spread2,
    )


def _all(known: Predictions) -> np.ndarray:
    return np.arange(len(known.met))


def test_what_may_not_be_measured_is_worth_nothing() -> None:
    known = _predicted(np.array([0.9, 0.9, 0.9]))
    value, inputs = _ahead().valued(known, np.array([1]), np.zeros(3))
    assert np.isfinite(value[1])
    assert list(value[[0, 2]]) == [-np.inf, -np.inf]
    assert list(inputs[[0, 2]]) == [0, 0]


def test_what_saves_nothing_is_worth_nothing() -> None:
    known = _predicted(np.array([0.9, 0.9]))
    value, _ = _ahead().valued(known, _all(known), np.array([-np.inf, 0.0]))
    assert value[0] == -np.inf
    assert np.isfinite(value[1])


def test_dear_candidates_do_not_keep_cheap_ones_from_a_longer_look() -> None:
    # 800 that known accurate and save nothing, 10 that only many inputs can show.
    known = _predicted(np.r_[np.full(800, 0.9), np.full(10, 0.62)])
    cheap = np.arange(800, 810)
    weight = np.r_[np.full(800, -np.inf), np.zeros(10)]
    among_all, inputs = _ahead().valued(known, _all(known), weight)
    alone, wanted = _ahead().valued(known, cheap, weight)
    np.testing.assert_array_equal(among_all[cheap], alone[cheap])
    np.testing.assert_array_equal(inputs[cheap], wanted[cheap])
    assert (wanted[cheap] > MultiFidelitySettings().minimum).all()


def test_a_weight_counts_as_so_many_times_the_chance() -> None:
    known = _predicted(np.array([0.72, 0.72]))
    value, inputs = _ahead().valued(known, _all(known), np.log([1.0, 3.0]))
    assert value[1] - value[0] == pytest.approx(np.log(3.0))
    assert inputs[0] == inputs[1]


def test_latency_that_varies_is_known_once_all_inputs_are_met() -> None:
    # 16 inputs of such a spread tell nothing beyond what is known; all of them tell everything.
    mean = np.array([0.95])
    near = _predicted(mean, ratio=0.98, log_deviation=0.2, spread2=30.0)
    value, inputs = _ahead().valued(near, _all(near), np.zeros(1))
    # Phi(0) at best: the mean of log latency is just below its bound.
    assert -np.log(POPULATION) - 2.0 < value[0] < 0.0
    assert inputs[0] == POPULATION


def test_the_chance_is_that_of_a_normal_mean_crossing_what_announces() -> None:
    # Closed form at one target: latency certain, seconds 16.
    settings = MultiFidelitySettings(fidelities=False)
    ahead = Acquisition(slo=SLO, population=POPULATION, settings=settings)
    known = _predicted(np.array([0.68]), deviation=0.1, ratio=1e-9)
    value, inputs = ahead.valued(known, _all(known), np.zeros(1))
    assert inputs[0] == settings.minimum
    draws = np.random.default_rng(0).standard_normal(400_000)
    noise = 0.4 * 0.68 * 0.32
    told = 16 * POPULATION / (POPULATION - 16 + 0.25) / noise
    then = 1 / (1 / 0.1**2 + told)
    moved = 0.68 + np.sqrt(0.1**2 - then) * draws
    chance = (moved - 2.0537489 * np.sqrt(then) >= SLO.accuracy).mean()
    assert np.exp(value[0]) * 16 == pytest.approx(chance, rel=0.02)


def test_inputs_that_a_cache_holds_cost_nothing() -> None:
    known = _predicted(np.array([0.72, 0.72]))
    held = replace(known.seconds, paid=np.array([[0], [POPULATION]]))
    value, _ = _ahead().valued(replace(known, seconds=held), _all(known), np.zeros(2))
    assert value[1] > value[0] + np.log(100)
    whole, _ = _ahead(unpaid=False).valued(replace(known, seconds=held), _all(known), np.zeros(2))
    assert whole[0] == whole[1]


def _one(value: float) -> np.ndarray:
    return np.array([value])


def test_what_is_known_already_is_shown_or_not() -> None:
    still = _one(0.01)
    assert log_confirmed(_one(0.5), still, still, 2.0)[0] == pytest.approx(0.0)
    assert log_confirmed(_one(0.1), still, still, 2.0)[0] < -1e6


def test_the_chance_to_be_shown_is_that_of_a_normal_step() -> None:
    rng = np.random.default_rng(0)
    ahead, now, then, z = 0.05, 0.04, 0.01, 2.0
    moved = ahead + rng.normal(0, np.sqrt(now - then), 200_000)
    simulated = (moved >= z * np.sqrt(then)).mean()
    chance = np.exp(log_confirmed(_one(ahead), _one(now), _one(then), z)[0])
    assert chance == pytest.approx(simulated, abs=0.005)


def test_one_looks_ahead_from_the_fewest_inputs_to_all_that_there_are() -> None:
    assert targets(16, 100).tolist() == [16, 26, 42, 68, 100]
    assert targets(16, 10).tolist() == [10]


@pytest.mark.parametrize(
    ("field", "bad"),
    [("candidates", 0), ("first", 0), ("step", 0), ("minimum", 1), ("confidence", 0.5)],
)
def test_a_setting_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    with pytest.raises(InvalidInput, match=rf"multi_fidelity\.{field} must be"):
        MultiFidelitySettings(**{field: bad})  # type: ignore[arg-type]  # one bad field
