import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Estimate, LatencyStatistic, Slo, SloState


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("accuracy", -0.1),
        ("accuracy", 1.1),
        ("accuracy", float("nan")),
        ("latency_s", 0.0),
        ("latency_s", float("inf")),
        ("cost_usd_per_hour", -1.0),
    ],
)
def test_an_slo_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    fields = {"accuracy": 0.5, "latency_s": 1.0} | {field: bad}
    with pytest.raises(InvalidInput, match=rf"slo.{field} must be .*, got {bad}"):
        Slo(**fields)  # type: ignore[arg-type]  # floats for floats


def test_the_bounds_of_an_slo_are_inside() -> None:
    assert Slo(accuracy=0.0, latency_s=1e-9, cost_usd_per_hour=0.0).accuracy == 0
    assert Slo(accuracy=1.0, latency_s=1.0).cost_usd_per_hour is None


@pytest.mark.parametrize(
    ("field", "bad"),
    [("weight", 0.0), ("request_rate_per_s", 0.0), ("duration_s", -1.0), ("seed", -1)],
)
def test_a_query_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    slo = Slo(accuracy=0.5, latency_s=1.0)
    with pytest.raises(InvalidInput, match=f"{field} must be"):
        Query(pipeline="p", slo=slo, **{field: bad})  # type: ignore[arg-type]  # one bad field


@pytest.mark.parametrize(
    ("field", "bad"),
    [("profiling_s", 0.0), ("profiling_usd", -1.0), ("response_s", 0.0), ("configurations", 0)],
)
def test_a_limit_outside_its_bounds_is_refused(field: str, bad: float) -> None:
    with pytest.raises(InvalidInput, match=rf"limits.{field} must be"):
        PlanningLimits(**{field: bad})  # type: ignore[arg-type]  # one bad field


def _estimate(low: float, value: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.99, inputs=50)


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.5, 0.6, 0.7), SloState.MET),  # the bound itself is good
        ((0.4, 0.5, 0.6), SloState.LIKELY),
        ((0.3, 0.4, 0.5), SloState.UNPROVEN),
        ((0.3, 0.4, 0.49), SloState.VIOLATED),
    ],
)
def test_an_estimate_says_what_is_known_of_at_least(
    interval: tuple[float, float, float], state: SloState
) -> None:
    assert _estimate(*interval).at_least(0.5) is state


@pytest.mark.parametrize(
    ("interval", "state"),
    [
        ((0.3, 0.4, 0.5), SloState.MET),
        ((0.4, 0.5, 0.6), SloState.LIKELY),
        ((0.5, 0.6, 0.7), SloState.UNPROVEN),
        ((0.51, 0.6, 0.7), SloState.VIOLATED),
    ],
)
def test_an_estimate_says_what_is_known_of_at_most(
    interval: tuple[float, float, float], state: SloState
) -> None:
    assert _estimate(*interval).at_most(0.5) is state


@pytest.mark.parametrize(
    ("confidence", "states"),
    [
        (0.949, (SloState.LIKELY, SloState.UNPROVEN)),
        (0.95, (SloState.MET, SloState.VIOLATED)),
    ],
)
def test_an_interval_of_less_than_95_percent_says_nothing_for_certain(
    confidence: float, states: tuple[SloState, SloState]
) -> None:
    estimate = Estimate(value=0.4, low=0.3, high=0.5, confidence=confidence, inputs=9)
    assert (estimate.at_least(0.2), estimate.at_least(0.6)) == states
    assert (estimate.at_most(0.6), estimate.at_most(0.2)) == states


def test_an_estimate_outside_its_own_interval_is_refused() -> None:
    with pytest.raises(InvalidInput, match="must lie within its interval"):
        _estimate(0.5, 0.4, 0.6)


def test_a_percentile_is_an_observed_value_that_enough_inputs_do_not_exceed() -> None:
    latencies = np.arange(1.0, 11.0)  # 1 .. 10

    assert LatencyStatistic.P50.of(latencies) == 5
    assert LatencyStatistic.P90.of(latencies) == 9
    assert LatencyStatistic.P99.of(latencies) == 10
    assert LatencyStatistic.MEAN.of(latencies) == 5.5
