from __future__ import annotations

import json
from math import inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circinus.pipelines.errors import InvalidInput
from circinus.scheduler.dispatch.learnt_latency import LatencyLine, LearntLatency, TableSettings


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


def learnt(*, noise: float = 0.0, count: int = 400, seed: int = 3) -> LearntLatency:
    """Seconds are 0.01 + 0.001 size, with a step up beyond size 100."""
    rng = np.random.default_rng(seed)
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for size in rng.integers(1, 200, count).tolist():
        known.observe(truth(size) * float(np.exp(noise * rng.standard_normal())), size)
    return known


def truth(size: float) -> float:
    return 0.01 + 0.001 * size + (0.05 if size > 100 else 0.0)


@pytest.mark.parametrize("seconds", [-1.0, nan])
def test_what_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="seconds must be"):
        LearntLatency(LatencyLine(prior_s=1.0)).observe(seconds)


@pytest.mark.parametrize("level", [0.0, 1.0, nan])
def test_a_level_outside_its_range_is_refused(level: float) -> None:
    with pytest.raises(InvalidInput, match=r"level must be in \(0, 1\)"):
        LearntLatency(LatencyLine(prior_s=1.0)).quantile(level)


@pytest.mark.parametrize("dumped", [{}, {"line": 3}, {"line": {"prior_s": -1}, "drifts": 0}])
def test_what_was_not_dumped_is_refused(dumped: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        LearntLatency.load(dumped)


def test_before_anything_was_seen_the_prior_speaks() -> None:
    assert LearntLatency(LatencyLine(prior_s=0.3)).predict(5) == 0.3


def test_a_handful_of_requests_makes_a_line() -> None:
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for size in (10, 40, 70, 100, 20):
        known.observe(truth(size), size)
    assert known.predict(85) == pytest.approx(truth(85), rel=0.35)


def test_the_table_knows_what_a_line_cannot() -> None:
    known = learnt()
    assert known.predict(95) == pytest.approx(truth(95), rel=0.06)  # a bucket is 7 % wide
    assert known.predict(106) == pytest.approx(truth(106), rel=0.06)


def test_quantiles_cover_at_their_level() -> None:
    # 2,000 fresh runs: the standard error of a share of 0.9 is 0.7 %, of the learnt spread more
    known = learnt(noise=0.2, count=3000)
    rng = np.random.default_rng(4)
    sizes = rng.integers(1, 200, 2000).tolist()
    runs = [truth(size) * float(np.exp(0.2 * rng.standard_normal())) for size in sizes]
    covered = np.mean([r <= known.quantile(0.9, s) for r, s in zip(runs, sizes, strict=True)])
    assert covered == pytest.approx(0.9, abs=0.04)


def test_what_was_learnt_survives_a_restart() -> None:
    known = learnt(noise=0.1)
    again = LearntLatency.load(json.loads(json.dumps(known.dump())))
    for size in (1, 50, 150, 500):
        assert again.quantile(0.9, size) == known.quantile(0.9, size)


@pytest.mark.parametrize("factor", [0.6, 1.6])
def test_drift_is_told_and_learnt_anew(factor: float) -> None:
    known = learnt(noise=0.1, count=1000)
    assert known.drifts == 0
    rng = np.random.default_rng(5)
    for size in rng.integers(1, 200, 200).tolist():
        known.observe(factor * truth(size) * float(np.exp(0.1 * rng.standard_normal())), size)
    assert known.drifts >= 1
    assert known.predict(50) == pytest.approx(factor * truth(50), rel=0.15)


def test_one_stall_of_a_machine_is_no_drift() -> None:
    known = learnt(noise=0.1, count=1000)
    for _ in range(13):  # all that was in hand
        known.observe(3 * truth(50), 50)
    assert known.drifts == 0


@pytest.mark.parametrize("unit", [0.001, 1.0, 1000.0])
def test_sizes_are_told_apart_in_any_unit(unit: float) -> None:
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for _ in range(10):
        known.observe(0.04, 1 * unit)
        known.observe(0.2, 8 * unit)
        known.observe(0.9, 16 * unit)  # no line goes through all three
    for seconds, size in ((0.04, 1), (0.2, 8), (0.9, 16)):
        assert known.predict(size * unit) == pytest.approx(seconds, rel=0.01)


def test_a_size_unlike_those_seen_is_no_slow_run() -> None:
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for _ in range(30):
        known.observe(0.04, 1)
    for _ in range(3):
        known.observe(0.32, 8)  # predicted as 0.04 s at first
    assert known.quantile(0.9, 8) == pytest.approx(0.32, rel=0.01)
    assert known.quantile(0.9, 1) == pytest.approx(0.04, rel=0.01)


def test_a_drift_told_by_small_requests_leaves_what_is_known_of_large_ones() -> None:
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for _ in range(50):
        known.observe(0.01, 1)
        known.observe(0.08, 8)
    for _ in range(60):
        known.observe(0.02, 1)
    assert known.drifts == 1
    assert 0.08 < known.predict(8) < 0.16  # as much longer as the small ones were at last


def test_a_size_is_taken_for_the_best_that_another_one_allows() -> None:
    known = LearntLatency(LatencyLine(prior_s=0.1))
    for _ in range(400):  # the prior is forgotten
        known.observe(0.32, 8)
    assert known.predict(1) == pytest.approx(0.04, rel=0.01)  # none takes less than in proportion
    assert known.predict(16) == pytest.approx(0.32, rel=0.01)  # nor less than a smaller one


def test_what_an_older_version_knew_of_buckets_is_left_out() -> None:
    known = learnt()
    dumped = json.loads(json.dumps(known.dump()))
    dumped["buckets"] = {"3": [5, 4.0, 9.9]}
    del dumped["by_size"]
    assert LearntLatency.load(dumped).predict(25) == pytest.approx(known.line.predict(25))


def test_settings_have_bounds() -> None:
    with pytest.raises(InvalidInput, match="steps must be >= 1"):
        TableSettings(steps=0)
    with pytest.raises(InvalidInput, match="enough must be >= 1"):
        TableSettings(enough=0)
