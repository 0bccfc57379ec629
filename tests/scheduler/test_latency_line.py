from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.learnt_latency import LatencyLine


def trained(line: LatencyLine, *, intercept: float, slope: float, count: int) -> LatencyLine:
    rng = np.random.default_rng(1)
    for size in rng.uniform(1, 1000, count).tolist():
        line = line.observed(intercept + slope * size, size)
    return line


@pytest.mark.parametrize("seconds", [-1.0, nan, inf])
def test_seconds_that_make_no_sense_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="seconds must be finite and >= 0"):
        LatencyLine(prior_s=1.0).observed(seconds)


@pytest.mark.parametrize("size", [nan, inf])
def test_sizes_that_make_no_sense_are_refused(size: float) -> None:
    with pytest.raises(InvalidInput, match="size must be finite"):
        LatencyLine(prior_s=1.0).observed(1.0, size)


@pytest.mark.parametrize(
    ("prior_s", "prior_weight", "memory", "message"),
    [
        (-1.0, 2.0, 0.98, "prior_s must be"),
        (nan, 2.0, 0.98, "prior_s must be"),
        (1.0, 0.0, 0.98, "prior_weight must be"),
        (1.0, 2.0, 0.0, "memory must be"),
        (1.0, 2.0, 1.01, "memory must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    prior_s: float, prior_weight: float, memory: float, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        LatencyLine(prior_s=prior_s, prior_weight=prior_weight, memory=memory)


def test_before_any_request_the_plan_is_believed() -> None:
    assert LatencyLine(prior_s=0.7).predict(123.0) == 0.7


def test_two_requests_weigh_as_much_as_the_plan() -> None:
    line = LatencyLine(prior_s=1.0, memory=1.0).observed(3.0).observed(3.0)
    assert line.predict() == pytest.approx(2.0)


@pytest.mark.parametrize(("intercept", "slope"), [(0.02, 0.001), (0.5, 0.0), (0.0, 0.3)])
def test_a_linear_latency_is_learnt_exactly(intercept: float, slope: float) -> None:
    line = trained(LatencyLine(prior_s=50.0), intercept=intercept, slope=slope, count=600)
    for size in (1, 10, 500, 1000, 2000):
        assert line.predict(size) == pytest.approx(intercept + slope * size, rel=1e-3, abs=1e-3)


def test_a_handful_of_requests_shows_the_slope() -> None:
    line = trained(LatencyLine(prior_s=0.3), intercept=0.1, slope=0.001, count=10)
    assert line.predict(1000) == pytest.approx(1.1, rel=0.25)
    assert line.predict(1000) > 2 * line.predict(100)


def test_a_machine_that_became_slower_is_noticed() -> None:
    line = LatencyLine(prior_s=1.0)
    for seconds in [1.0] * 300 + [2.0] * 150:
        line = line.observed(seconds)
    assert line.predict() == pytest.approx(2.0, rel=0.05)


def test_a_larger_request_is_never_predicted_to_take_less() -> None:
    line = LatencyLine(prior_s=1.0).observed(2.0, 10.0).observed(1.0, 20.0).observed(0.5, 30.0)
    assert line.predict(30.0) >= line.predict(10.0)


def test_the_mean_of_noisy_requests_is_learnt() -> None:
    rng = np.random.default_rng(2)
    line = LatencyLine(prior_s=9.0, memory=1.0)
    for noise in rng.normal(0.0, 0.1, 1000).tolist():
        line = line.observed(1.0 + noise)
    # sd of the mean is 0.1 / sqrt(1000) = 0.003, the plan adds 2 x 8 / 1002 = 0.016
    assert line.predict() == pytest.approx(1.016, abs=5 * 0.0032)


@given(
    observations=st.lists(
        st.tuples(st.floats(0, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=30
    ),
    size=st.floats(-1e7, 1e7),
)
def test_predictions_are_finite_and_not_negative(
    observations: list[tuple[float, float]], size: float
) -> None:
    line = LatencyLine(prior_s=1.0)
    for seconds, observed_size in observations:
        line = line.observed(seconds, observed_size)
    assert 0 <= line.predict(size) < inf


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=12))
def test_the_sums_are_those_of_weighted_least_squares(
    observations: list[tuple[float, float]],
) -> None:
    memory = 0.9
    line = LatencyLine(prior_s=1.0, memory=memory)
    for seconds, size in observations:
        line = line.observed(seconds, size)
    y, x = np.array(observations).T
    w = memory ** np.arange(len(x))[::-1]
    mx, my = (w @ x) / w.sum(), (w @ y) / w.sum()
    assert (line.n, line.mx, line.my) == pytest.approx((w.sum(), mx, my))
    assert line.sxx == pytest.approx(w @ (x - mx) ** 2, abs=1e-6)
    assert line.sxy == pytest.approx(w @ ((x - mx) * (y - my)), abs=1e-6)
