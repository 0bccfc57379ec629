from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf

import numpy as np
import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.infrastructure import Infrastructure, Link
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.bill import Cost, Forecast, Tally
from circinus.planner.search.budget import Budget
from circinus.planner.search.forecasting import (
    SPAN,
    TO_THE_LIMIT,
    Probes,
    from_earlier,
    from_probes,
    probed,
)
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
)
from circinus.planner.strategy.in_order import random_search
from circinus.profiler.stopping import Betting
from circinus.studies.data import TRACES
from tests.oracles.synthetic import SyntheticEvaluator, chain

GRAPH = chain(2, 2)  # o0 before o1, two values each
SPACE = ConfigurationSpace(GRAPH)


def profile(
    configuration: Configuration, *, runs: int = 0, saved_runs: int = 0, saved_s: float = 0.0
) -> Profile:
    return Profile(
        configuration=configuration,
        inputs=np.arange(1),
        score=np.ones(1),
        operator_s=np.ones((2, 1)),
        output_bytes=np.ones((2, 1)),
        input_bytes=np.ones(1),
        runs=runs,
        saved_runs=saved_runs,
        saved_s=saved_s,
    )


@pytest.mark.parametrize("field", ["runs", "seconds", "usd"])
def test_a_negative_cost_is_refused(field: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(f"cost.{field} must be ")):
        Cost(**{field: -1})  # type: ignore[arg-type]  # one of the numbers


def test_a_forecast_whose_ends_are_swapped_is_refused() -> None:
    one, two = Cost(seconds=1.0), Cost(seconds=2.0)
    with pytest.raises(InvalidInput, match="must have low <= expected <= high"):
        Forecast(low=two, expected=one, high=two, confidence=0.9, source="here")


def test_dollars_are_seconds_at_the_price_of_an_hour() -> None:
    assert Cost.of(10, 1800.0, 2.0) == Cost(runs=10, seconds=1800.0, usd=1.0)


def test_what_is_known_of_a_configuration_is_counted_once() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=3600.0)
    first, second = SPACE.configuration(0), SPACE.configuration(1)
    tally.pay(profile(first, runs=2))
    tally.pay(profile(first, runs=6))
    tally.pay(profile(second, runs=3, saved_runs=3, saved_s=0.5))
    bill = tally.bill(4.0, None)
    assert bill.paid == Cost(runs=9, seconds=4.0, usd=4.0)
    assert bill.cache == Cost(runs=3, seconds=0.5, usd=0.5)
    assert bill.early_stopping == Cost()


def test_stopping_early_saves_what_each_lineage_would_still_have_run() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=0.0)
    # o0=0, o1=0 on 4 inputs, then o0=0, o1=1 on 7: o0 met 7 of 10 inputs, o1 4 and 7.
    tally.end_early(SPACE.configuration(0), np.array([[1.0] * 4, [2.0] * 4]))
    tally.end_early(SPACE.configuration(1), np.array([[1.0] * 7, [5.0] * 7]))
    # Not run: 3 of o0, 6 and 3 of o1; seconds 3 * 1 + 6 * 2 + 3 * 5.
    saved = tally.bill(0.0, None).early_stopping
    assert saved.runs == 12
    assert saved.seconds == pytest.approx(30.0)


def test_a_configuration_that_met_every_input_saved_nothing() -> None:
    tally = Tally(GRAPH, population=3, price_usd_per_hour=0.0)
    tally.end_early(SPACE.configuration(0), np.ones((2, 1)))
    tally.end_early(SPACE.configuration(0), np.ones((2, 3)))
    saved = tally.bill(0.0, None).early_stopping
    assert saved.runs == 0
    assert saved.seconds == pytest.approx(0.0)


def test_what_was_run_after_all_leaves_no_rest_of_rounding() -> None:
    tally = Tally(GRAPH, population=10, price_usd_per_hour=3600.0)
    configurations = [SPACE.configuration(number) for number in (0, 3)]
    for n in (3, 10):  # three inputs first, then all
        for each, seconds in zip(configurations, (0.1, 0.7), strict=True):
            tally.end_early(each, np.full((2, n), seconds))
    assert tally.bill(1.0, None).early_stopping == Cost()


def test_waits_count_for_the_time_until_the_answer_alone() -> None:
    limits = PlanningLimits(profiling_s=5.0, own_s=5.0, response_s=60.0)
    budget = Budget(limits, 1.0)

    def reached(waited_s: float, elapsed_s: float) -> str | None:
        return budget.reached(
            spent_s=1.0, waited_s=waited_s, elapsed_s=elapsed_s, configurations=0
        )

    assert reached(waited_s=40.0, elapsed_s=45.0) is None
    assert reached(waited_s=0.0, elapsed_s=45.0) == "5 s went into other work than operators"
    assert reached(waited_s=58.0, elapsed_s=60.0) == "limit response_s reached"
    assert budget.own_left_s(spent_s=1.0, waited_s=40.0, elapsed_s=45.0) == 1.0


DEAR = Tier(name="cloud", price_usd_per_hour=3.6, speed_factor=0.5)  # 0.001 USD a second


def budget(price_usd_per_hour: float = 3.6, **limits: float | None) -> Budget:
    return Budget(PlanningLimits(**{"response_s": None, **limits}), price_usd_per_hour)  # type: ignore[arg-type]  # by name


def reached(
    of: Budget, spent_s: float, calls_s: float, calls_usd: float, elapsed_s: float = 0.0
) -> str | None:
    return of.reached(
        spent_s=spent_s,
        calls_s=calls_s,
        calls_usd=calls_usd,
        elapsed_s=elapsed_s,
        configurations=0,
    )


def test_a_remote_tier_is_not_what_profiling_is_billed_as() -> None:
    remote = Tier(name="hosted", endpoints=(Endpoint(name="small"),))
    link = Link(between=("cloud", "hosted"), bandwidth_bytes_per_s=1e6)
    where = Infrastructure(name="two", tiers=(DEAR, remote), links=(link,))
    assert Budget.of(PlanningLimits(), where).price_usd_per_hour == 3.6


@pytest.mark.parametrize(
    ("spent_s", "calls_s", "ended"), [(109.9, 100.0, False), (110.0, 100.0, True), (10.0, 0, True)]
)
def test_seconds_that_an_endpoint_is_waited_for_are_none_of_a_machine(
    spent_s: float, calls_s: float, ended: bool
) -> None:
    found = reached(budget(profiling_s=10.0), spent_s, calls_s, 0.0)
    assert found == ("limit profiling_s reached" if ended else None)


@pytest.mark.parametrize(
    ("machine_s", "calls_usd", "ended"),
    [
        (999.0, 0.0, False),  # of a dollar: 0.999
        (1000.0, 0.0, True),
        (499.0, 0.5, False),
        (500.0, 0.5, True),
        (0.0, 0.999, False),
        (0.0, 1.0, True),
    ],
)
def test_dollars_of_machines_and_calls_add_up(
    machine_s: float, calls_usd: float, ended: bool
) -> None:
    found = reached(budget(profiling_s=1e6, profiling_usd=1.0), machine_s + 7, 7.0, calls_usd)
    assert found == ("limit profiling_usd reached" if ended else None)


def test_where_machines_are_free_calls_alone_use_the_dollars() -> None:
    free = budget(0.0, profiling_s=1e6, profiling_usd=1.0)
    assert reached(free, 1e5, 0.0, 0.999) is None
    assert reached(free, 1e5, 0.0, 1.0) == "limit profiling_usd reached"
    nothing = budget(0.0, profiling_s=1e6, profiling_usd=0.0)  # only what costs is out of reach
    assert reached(nothing, 1e5, 0.0, 0.0) is None
    assert reached(nothing, 1e5, 0.0, 1e-9) == "limit profiling_usd reached"


def test_what_is_left_is_the_less_of_both_limits_and_never_negative() -> None:
    both = budget(profiling_s=600.0, profiling_usd=1.0)
    assert both.profiling_s == 600.0
    assert both.left_s(machine_s=100.0, calls_usd=0.2) == pytest.approx(500.0)
    assert both.left_s(machine_s=100.0, calls_usd=0.6) == pytest.approx(300.0)
    assert both.left_s(machine_s=100.0, calls_usd=5.0) == 0.0
    assert budget(profiling_s=1e6).left_s(machine_s=1.0, calls_usd=inf) == 1e6 - 1


def test_own_time_is_neither_of_machines_nor_of_endpoints() -> None:
    own = budget(profiling_s=1e6, own_s=5.0)
    assert reached(own, 100.0, 90.0, 0.0, elapsed_s=104.9) is None
    assert reached(own, 100.0, 90.0, 0.0, elapsed_s=105.0) is not None


ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
_TRACE = TRACES["digits"]
_EACH_S = 0.125  # exact in binary: sums of it are


def evaluator(population: int = 60, **more: object) -> SyntheticEvaluator:
    return SyntheticEvaluator(
        chain(3, 4),
        lambda _: 0.5,
        lambda _: _EACH_S,
        population=population,
        **more,  # type: ignore[arg-type]  # whichever the test varies
    )


def forecasting_budget(**limits: float) -> Budget:
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
    assert from_probes(profiles, space, measuring, forecasting_budget()) is None


def test_a_limit_that_comes_while_probes_fail_is_a_failure() -> None:
    result = planned(evaluator(1, fails=lambda _: True), profiling_s=_EACH_S)

    assert result.outcome is PlanningOutcome.FAILED
    assert "o0 failed on input 0: made to fail" in result.stopped_because


def test_a_forecast_is_what_the_expected_settings_of_each_lineage_take() -> None:
    measuring = evaluator()
    space = ConfigurationSpace(measuring.graph)
    rng = np.random.default_rng(2)
    profiles = probed(Probes(), space, measuring, rng, lambda: False)
    forecast = from_probes(profiles, space, measuring, forecasting_budget())
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
    forecast = from_probes(profiles, space, measuring, forecasting_budget(profiling_usd=0.002))
    assert forecast is not None
    assert forecast.high.seconds == pytest.approx(2.0)  # 0.1 cents a second
    assert forecast.high.usd == pytest.approx(0.002)
    assert forecast.low.seconds >= measuring.spent_s


def test_to_the_limit_everything_on_all_inputs_is_forecast_as_far_as_there_is_time() -> None:
    measuring = evaluator()
    space = ConfigurationSpace(measuring.graph)
    rng = np.random.default_rng(2)
    profiles = probed(Probes(), space, measuring, rng, lambda: False)
    forecast = from_probes(profiles, space, measuring, forecasting_budget(), TO_THE_LIMIT)
    assert forecast is not None
    # o0 has 3 settings, o1 with those of o0 12, each on 60 inputs.
    every_s = (3 + 12) * 60 * _EACH_S / 2
    assert forecast.low.seconds == pytest.approx(measuring.spent_s)
    assert forecast.expected.seconds == pytest.approx(every_s)
    assert forecast.high.seconds == pytest.approx(every_s)
    half = forecasting_budget(response_s=every_s / 2)
    timed = from_probes(profiles, space, measuring, half, TO_THE_LIMIT)
    assert timed is not None
    assert timed.high.seconds == pytest.approx(every_s / 2)


def test_few_earlier_bills_forecast_nothing_and_more_forecast_their_range() -> None:
    bills = [Cost(runs=10 * i, seconds=float(i), usd=0.0) for i in (5, 3, 4, 2)]
    assert from_earlier(bills[:3], forecasting_budget()) is None
    forecast = from_earlier(bills, forecasting_budget())
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
        forecast = from_earlier([Cost(seconds=float(s)) for s in drawn[:8]], forecasting_budget())
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
