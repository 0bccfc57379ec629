"""What a search will cost, and that its limits hold to within one input."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.bill import Cost
from circinus.planner.search.budget import Budget
from circinus.planner.search.forecasting import SPAN, Probes, from_earlier, from_probes, probed
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
)
from circinus.planner.strategy.in_order import random_search
from circinus.profiler.stopping import Betting
from tests.oracles.synthetic import SyntheticEvaluator, chain

ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
_TRACE = Path(__file__).parents[2].parent / "shared/data/traces/digits_clip"
_EACH_S = 0.125  # exact in binary: sums of it are


def evaluator(population: int = 60, **more: object) -> SyntheticEvaluator:
    return SyntheticEvaluator(
        chain(3, 4),
        lambda _: 0.5,
        lambda _: _EACH_S,
        population=population,
        **more,  # type: ignore[arg-type]  # whichever the test varies
    )


def budget(**limits: float) -> Budget:
    return Budget.of(PlanningLimits(**{"profiling_s": 1e6, **limits}), ONE)  # type: ignore[arg-type]  # as above


@dataclass
class Watching:
    """An observer that cancels as soon as it is told the forecast, when asked to."""

    cancel: bool = False
    seen: list[PlanningProgress] = field(default_factory=list)

    def progress(self, progress: PlanningProgress) -> None:
        self.seen.append(progress)

    def cancelled(self) -> bool:
        return self.cancel and bool(self.seen)


def planned(
    measuring: SyntheticEvaluator, observer: Watching | None = None, **limits: float
) -> PlanningResult:
    query = Query(
        pipeline="synthetic",
        slo=Slo(accuracy=0.4999, latency_s=10.0),
        limits=PlanningLimits(**{"profiling_s": 1e6, **limits}),  # type: ignore[arg-type]  # as above
    )
    settings = SearchSettings(strategy=random_search, forecast=Probes())
    return search(query, ONE, measuring, Betting(), settings=settings, observer=observer)


@pytest.mark.parametrize("name", ["configurations", "inputs"])
def test_probes_below_one_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"probes.{name} must be >= 1, got 0"):
        Probes(**{name: 0})  # type: ignore[arg-type]  # what is tested


def test_probes_are_different_configurations_and_all_of_a_small_space() -> None:
    rng = np.random.default_rng(1)
    space = ConfigurationSpace(chain(3, 4))
    assert Probes(configurations=20).numbers(space, rng) == list(range(12))
    drawn = Probes(configurations=11).numbers(space, rng)
    assert len(set(drawn)) == 11


def test_failed_probes_forecast_nothing() -> None:
    measuring = evaluator(fails=lambda number: True)
    space = ConfigurationSpace(measuring.graph)
    rng = np.random.default_rng(1)
    profiles = probed(Probes(), space, measuring, rng, lambda: False)
    assert len(profiles) == 4
    assert from_probes(profiles, space, measuring, budget()) is None


def test_a_limit_that_comes_while_probes_fail_is_a_failure() -> None:
    result = planned(evaluator(1, fails=lambda _: True), profiling_s=_EACH_S)

    assert result.outcome is PlanningOutcome.FAILED
    assert "o0 failed on input 0: made to fail" in result.stopped_because


def test_a_forecast_is_what_the_expected_settings_of_each_lineage_take() -> None:
    measuring = evaluator()
    space = ConfigurationSpace(measuring.graph)
    rng = np.random.default_rng(2)
    profiles = probed(Probes(), space, measuring, rng, lambda: False)
    forecast = from_probes(profiles, space, measuring, budget())
    assert forecast is not None
    # 12 configurations at most, so every end of the span above that is 12 of them:
    # o0 is met in 3 (1 - (2/3)^12) settings, o1 in 12 (1 - (11/12)^12).
    settings = 3 * (1 - (2 / 3) ** 12) + 12 * (1 - (11 / 12) ** 12)
    inputs = SPAN.inputs[1] * 60**0.5
    assert forecast.expected.runs == round(inputs * settings)
    assert forecast.expected.seconds == pytest.approx(inputs * settings * _EACH_S / 2)
    assert forecast.expected.usd == pytest.approx(forecast.expected.seconds * 0.001)
    assert forecast.low.seconds < forecast.expected.seconds < forecast.high.seconds
    assert "8 probes on 4 configurations" in forecast.source


def test_a_forecast_stays_within_the_limits() -> None:
    measuring = evaluator()
    space = ConfigurationSpace(measuring.graph)
    rng = np.random.default_rng(2)
    profiles = probed(Probes(), space, measuring, rng, lambda: False)
    forecast = from_probes(profiles, space, measuring, budget(profiling_usd=0.002))
    assert forecast is not None
    assert forecast.high.seconds == pytest.approx(2.0)  # 0.1 cents a second
    assert forecast.high.usd == pytest.approx(0.002)
    assert forecast.low.seconds >= measuring.spent_s


def test_few_earlier_bills_forecast_nothing_and_more_forecast_their_range() -> None:
    bills = [Cost(runs=10 * i, seconds=float(i), usd=0.0) for i in (5, 3, 4, 2)]
    assert from_earlier(bills[:3], budget()) is None
    forecast = from_earlier(bills, budget())
    assert forecast is not None
    assert (forecast.low.seconds, forecast.high.seconds) == (2.0, 5.0)
    assert (forecast.low.runs, forecast.high.runs) == (20, 50)
    assert forecast.confidence == pytest.approx(3 / 5)
    assert "4 earlier queries" in forecast.source


def test_the_range_of_earlier_bills_holds_the_next_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    held = 0
    for _ in range(2000):
        drawn = rng.lognormal(size=9)
        forecast = from_earlier([Cost(seconds=float(s)) for s in drawn[:8]], budget())
        assert forecast is not None
        held += forecast.low.seconds <= drawn[8] <= forecast.high.seconds
    # 7/9; the standard deviation over 2,000 cases is 0.0093: five of them.
    assert held / 2000 == pytest.approx(7 / 9, abs=0.047)


def test_the_forecast_is_told_before_anything_is_searched_and_is_paid_for() -> None:
    watching = Watching(cancel=True)
    measuring = evaluator()
    result = planned(measuring, watching)
    assert [progress.phase for progress in watching.seen] == [
        PlanningPhase.PROBING,
        PlanningPhase.FINISHED,
    ]
    assert result.bill.forecast is not None
    assert result.measured == 0
    assert result.spent_s == 8 * _EACH_S == result.bill.paid.seconds


def test_probes_change_nothing_about_what_is_found() -> None:
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.4, latency_s=0.2))
    results = [
        search(
            query,
            ONE,
            evaluator(),
            Betting(),
            settings=SearchSettings(strategy=random_search, forecast=forecast),
        )
        for forecast in (None, Probes())
    ]
    assert results[0].plans == results[1].plans
    assert results[0].measured == results[1].measured


# A limit is reached while a configuration is measured on hundreds of inputs; 0.1 cents a second.
@pytest.mark.parametrize("population", [60, 4000])
@pytest.mark.parametrize("limit_s", [0.1, 0.5, 7.3, 199.9, 301.01])
@pytest.mark.parametrize("in_dollars", [False, True])
def test_limits_hold_to_within_one_input(
    population: int, limit_s: float, in_dollars: bool
) -> None:
    limits = {"profiling_usd": limit_s / 1000} if in_dollars else {"profiling_s": limit_s}
    result = planned(evaluator(population), None, **limits)
    assert result.spent_s < limit_s + _EACH_S
    if "limit" in result.stopped_because:
        assert result.spent_s >= limit_s
        name = "profiling_usd" if in_dollars else "profiling_s"
        assert result.stopped_because == f"limit {name} reached"
    assert population == 60 or "limit" in result.stopped_because


@pytest.mark.slow
@pytest.mark.skipif(not _TRACE.exists(), reason="no trace here")
def test_what_searches_on_a_trace_cost_lies_within_the_forecast() -> None:
    trace = load_trace(_TRACE)
    accuracy = np.nanmean(trace.score, axis=1)
    seconds = np.nansum(np.nanmean(trace.latency_s, axis=2), axis=1)
    held = 0
    for seed in range(12):
        rng = np.random.default_rng([seed, 78])
        slo = Slo(
            accuracy=float(np.quantile(accuracy, rng.uniform(0.3, 0.97))),
            latency_s=0.02 + float(np.quantile(seconds, rng.uniform(0.1, 0.9))) * 2,
        )
        limits = PlanningLimits(profiling_s=1000.0)
        result = search(
            Query(pipeline=trace.graph.name, slo=slo, seed=seed, limits=limits),
            PRESETS["local"],
            TraceEvaluator(trace, rng.permutation(len(trace.input_bytes))),
            Betting(),
            settings=SearchSettings(patience=25, forecast=Probes()),
        )
        forecast, paid = result.bill.forecast, result.bill.paid
        assert forecast is not None
        held += forecast.low.seconds <= paid.seconds <= forecast.high.seconds
    # At 80 % fewer than 7 of 12 happen once in 50 times.
    assert held >= 7
