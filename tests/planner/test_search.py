import gc
import re
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import ref

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.io.replay import TraceEvaluator
from circinus.pipelines.io.trace import load_trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.profile import Profile
from circinus.pipelines.model.query import PlanningLimits, Query
from circinus.pipelines.model.slo import HoldsFor, Slo, SloState
from circinus.pipelines.model.tiers import Calibration, ClassSpeed, Tier
from circinus.planner.search.forecasting import Probes
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.result import (
    PlanningOutcome,
    PlanningPhase,
    PlanningProgress,
    PlanningResult,
    TrialState,
)
from circinus.planner.strategy.cmbo import Cmbo, CmboSettings
from circinus.planner.strategy.in_order import exhaustive_search, random_search
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import SearchSetting, Strategy
from circinus.profiler.stopping import TTest
from circinus.studies.data import TRACES
from tests.oracles.synthetic import SyntheticEvaluator, additive, chain

ONE = Infrastructure(name="one", tiers=(Tier(name="t", price_usd_per_hour=3.6),))
_TRACE = TRACES["digits"]

# Accuracy grows with both knobs, seconds too; 12 configurations.
_ACCURACY = additive([[0.3, 0.5, 0.6], [0.0, 0.1, 0.2, 0.3]])
_SECONDS = additive([[0.01, 0.02, 0.04], [0.0, 0.01, 0.02, 0.04]])


_ROOMY = Slo(accuracy=0.55, latency_s=0.119)


def _evaluator() -> SyntheticEvaluator:
    return SyntheticEvaluator(chain(3, 4), _ACCURACY, _SECONDS)


def _query(accuracy: float = 0.55, latency_s: float = 0.1, **more: object) -> Query:
    query = Query(pipeline="synthetic", slo=Slo(accuracy=accuracy, latency_s=latency_s))
    return replace(query, **more)  # type: ignore[arg-type]  # whichever the test varies


def _search(query: Query, evaluator: SyntheticEvaluator, **more: object) -> PlanningResult:
    return search(query, ONE, evaluator, TTest(), **more)  # type: ignore[arg-type]


def test_an_evaluator_of_another_pipeline_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"query\.pipeline must be the evaluator's, synthetic"):
        _search(replace(_query(), pipeline="other"), _evaluator())


@pytest.mark.parametrize("name", ["patience", "minimum", "most_plans", "most_placements"])
def test_settings_below_one_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"search.{name} must be >= 1, got 0"):
        SearchSettings(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", [Cmbo, random_search, MultiFidelity])
def test_the_optimum_of_a_small_space_is_found(seed: int, strategy: object) -> None:
    settings = SearchSettings(strategy=strategy, patience=12)  # type: ignore[arg-type]
    result = _search(_query(seed=seed, slo=_ROOMY), _evaluator(), settings=settings)
    assert result.outcome is PlanningOutcome.FEASIBLE
    # Fastest with accuracy >= 0.55: knobs (1, 1), 0.6 in 0.03 s; so is (0, 3), 0.6 in 0.05 s.
    best = result.plans[0]
    assert [value for _, _, value in best.configuration.values] == [1, 1]
    # Least share in steps of 0.05 with 0.03 / r <= 0.119: 0.3, at 3.6 USD per hour, and what few
    # inputs cannot rule out fits in as well.
    assert best.cost_usd_per_hour == pytest.approx(0.3 * 3.6)
    assert best.latency_s.value <= 0.1


def test_the_same_seed_gives_the_same_result() -> None:
    first, second = (_search(_query(seed=7), _evaluator()) for _ in range(2))
    assert first == second


def test_bounds_are_inclusive() -> None:
    evaluator = SyntheticEvaluator(chain(1), lambda _: 0.5, lambda _: 0.25, noise=0.0)
    query = replace(
        _query(0.5, 0.25), slo=Slo(accuracy=0.5, latency_s=0.25, cost_usd_per_hour=3.6)
    )
    assert _search(query, evaluator).outcome is PlanningOutcome.FEASIBLE


@pytest.mark.parametrize(
    ("slo", "binding", "relaxed"),
    [
        (Slo(accuracy=0.95, latency_s=1.0), ("accuracy",), {"accuracy": 0.9}),
        (Slo(accuracy=0.2, latency_s=0.001), ("latency",), {"latency": 0.01}),
        # 0.7 is first reached in 0.04 s by (1, 2); within 0.03 s no more than 0.6 is.
        (Slo(accuracy=0.7, latency_s=0.031), ("accuracy", "latency"), {"accuracy": 0.6}),
        (Slo(accuracy=0.55, latency_s=0.1, cost_usd_per_hour=1.0), ("cost",), {"cost": 1.08}),
    ],
)
def test_an_infeasible_query_is_told_what_binds(
    slo: Slo, binding: tuple[str, ...], relaxed: dict[str, float]
) -> None:
    result = _search(replace(_query(), slo=slo), _evaluator())
    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert result.shortfall is not None
    assert result.shortfall.binding == binding
    assert result.shortfall.closest is not None
    assert "all 12 configurations measured" in result.shortfall.evidence
    for name, value in relaxed.items():
        assert result.shortfall.relaxations[name] == pytest.approx(value)


@pytest.mark.parametrize("name", ["latency", "cost"])
def test_a_relaxed_slo_is_feasible(name: str) -> None:
    slo = Slo(accuracy=0.7, latency_s=0.03, cost_usd_per_hour=1.0)
    if name == "cost":
        slo = replace(slo, latency_s=0.1)
    why = _search(replace(_query(), slo=slo), _evaluator()).shortfall
    assert why is not None
    value = why.relaxations[name]
    field_name = {"latency": "latency_s", "cost": "cost_usd_per_hour"}.get(name, name)
    eased = value * (1 + 1e-9)  # means of 50 and of 60 equal values may differ in the last bit
    relaxed = replace(slo, **{field_name: eased})  # type: ignore[arg-type]  # a float field
    assert (
        _search(replace(_query(), slo=relaxed), _evaluator()).outcome is PlanningOutcome.FEASIBLE
    )


def test_a_hopeless_query_ends_within_a_few_dozen_configurations() -> None:
    weights = [[0.01, 0.02, 0.04, 0.05]] * 5  # 1,024 configurations
    evaluator = SyntheticEvaluator(chain(*[4] * 5), lambda _: 0.5, additive(weights))
    query = _query(0.4, 0.0005, limits=PlanningLimits(profiling_s=1000.0))
    result = _search(query, evaluator)
    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert result.measured <= 48
    assert result.shortfall is not None
    assert result.shortfall.binding == ("latency",)
    # A few inputs each are enough to see that, long before accuracy is decided.
    assert result.inputs <= 4 * result.measured


def test_the_budget_is_exceeded_by_one_input_at_most() -> None:
    for budget in (0.001, 0.5, 3.0):
        evaluator = _evaluator()
        query = _query(0.95, limits=PlanningLimits(profiling_s=budget))
        result = _search(query, evaluator)
        assert result.outcome is PlanningOutcome.EXHAUSTED
        assert budget <= evaluator.spent_s <= budget + 0.08 + 1e-9
        assert result.shortfall is not None
        assert result.stopped_because == "limit profiling_s reached"


def test_dollars_are_a_limit_at_the_price_of_the_reference_tier() -> None:
    evaluator = _evaluator()  # 3.6 USD per hour: 0.001 USD a second
    query = _query(0.95, limits=PlanningLimits(profiling_usd=0.0005))
    assert _search(query, evaluator).stopped_because == "limit profiling_usd reached"
    assert 0.5 <= evaluator.spent_s <= 0.58 + 1e-9


def test_no_dollars_measure_nothing() -> None:
    evaluator = _evaluator()
    result = _search(_query(limits=PlanningLimits(profiling_usd=0.0)), evaluator)
    assert (result.outcome, result.measured) == (PlanningOutcome.EXHAUSTED, 0)
    assert result.shortfall is not None
    assert result.shortfall.closest is None


def test_the_number_of_configurations_is_a_limit() -> None:
    result = _search(_query(0.95, limits=PlanningLimits(configurations=3)), _evaluator())
    assert (result.outcome, result.measured) == (PlanningOutcome.EXHAUSTED, 3)


@pytest.mark.parametrize("seed", range(4))
def test_a_limit_on_configurations_does_not_make_a_query_infeasible(seed: int) -> None:
    """The models speak of what may no longer be measured, too."""
    seconds = additive([[0.001, 0.002, 0.004, 0.005]] * 5)  # 1,024 configurations
    accuracy = additive([[0.1, 0.12, 0.14, 0.19]] * 5)
    evaluator = SyntheticEvaluator(chain(*[4] * 5), accuracy, seconds, noise=0.2)
    slo = Slo(accuracy=0.9, latency_s=0.026)  # the last values of nearly all knobs
    limits = PlanningLimits(profiling_s=1000.0, configurations=32)
    query = Query(pipeline="synthetic", slo=slo, limits=limits, seed=seed)
    settings = SearchSettings(minimum=10)
    assert _search(query, evaluator, settings=settings).outcome is not PlanningOutcome.INFEASIBLE


def test_what_may_no_longer_be_measured_is_not_waited_for() -> None:
    weights = [[0.01, 0.02, 0.04, 0.05]] * 5
    evaluator = SyntheticEvaluator(chain(*[4] * 5), additive(weights), additive(weights))
    limits = PlanningLimits(profiling_s=1000.0, configurations=8)
    result = _search(_query(0.95, 1.0, limits=limits), evaluator)
    assert (result.outcome, result.measured) == (PlanningOutcome.EXHAUSTED, 8)
    assert result.stopped_because == "limit configurations reached"
    assert result.inputs < 8 * evaluator.population / 2


@dataclass
class _Recorder:
    """An observer that lets time pass and can cancel."""

    clock: ManualClock = field(default_factory=ManualClock)
    cancel_after: int = 10**9
    asked: int = 0
    seen: list[PlanningProgress] = field(default_factory=list)

    def progress(self, progress: PlanningProgress) -> None:
        self.seen.append(progress)

    def cancelled(self) -> bool:
        self.asked += 1
        self.clock.sleep(1.0)
        return self.asked == self.cancel_after  # said once is enough


def test_the_response_time_is_a_limit() -> None:
    observer = _Recorder()
    query = _query(0.95, limits=PlanningLimits(response_s=70.0))
    result = _search(query, _evaluator(), observer=observer, clock=observer.clock)
    assert result.stopped_because == "limit response_s reached"
    assert observer.clock.now() <= 72
    assert observer.seen[-1].time_left_s == 0


def test_a_cancelled_search_ends_at_once() -> None:
    observer = _Recorder(cancel_after=20)
    result = _search(_query(), _evaluator(), observer=observer, clock=observer.clock)
    assert result.outcome is PlanningOutcome.CANCELLED
    assert observer.asked == 20
    assert result.shortfall is None


def test_progress_grows_and_ends() -> None:
    observer = _Recorder()
    result = _search(_query(), _evaluator(), observer=observer, clock=observer.clock)
    inputs = [progress.inputs for progress in observer.seen]
    assert inputs == sorted(inputs)
    assert observer.seen[-1].phase is PlanningPhase.FINISHED
    assert observer.seen[-1].best == result.plans[0]
    assert observer.seen[-1].inputs == result.inputs


def test_every_configuration_is_told_once_measured_with_its_plan_or_why_it_has_none() -> None:
    observer, evaluator = _Recorder(), _evaluator()
    evaluator.fails = lambda number: number == 5  # knobs (1, 1), the optimum
    settings = SearchSettings(patience=20, strategy=random_search)
    result = _search(_query(latency_s=0.05), evaluator, settings=settings, observer=observer)
    told = [trial for progress in observer.seen for trial in progress.trials]
    assert len({trial.configuration for trial in told}) == result.measured
    last = {trial.configuration: trial for trial in told}
    failed = [trial for trial in told if trial.state is TrialState.FAILED]
    assert [trial.plan for trial in failed] == [None] * result.failed == [None]
    planned = {each.configuration for each in last.values() if each.state is TrialState.FEASIBLE}
    assert {plan.configuration for plan in result.plans} <= planned
    for trial in last.values():
        if trial.plan is None:
            continue
        assert trial.plan.configuration == trial.configuration
        accuracy, latency_s = trial.plan.accuracy, trial.plan.latency_s
        if trial.state is TrialState.LATE:
            assert latency_s.value > 0.05
        if trial.state is TrialState.INACCURATE:
            assert accuracy.value < 0.55
    assert {TrialState.LATE, TrialState.INACCURATE} <= {trial.state for trial in last.values()}
    spent = [trial.spent_s for trial in told]
    assert spent == sorted(spent)


def test_what_is_too_dear_is_told_as_that() -> None:
    observer = _Recorder()
    slo = Slo(accuracy=0.55, latency_s=0.1, cost_usd_per_hour=0.01)
    _search(_query(slo=slo), _evaluator(), observer=observer)
    states = {trial.state for progress in observer.seen for trial in progress.trials}
    assert TrialState.DEAR in states
    assert TrialState.FEASIBLE not in states


def test_failing_configurations_are_counted_and_never_planned() -> None:
    evaluator = _evaluator()
    good = ConfigurationSpace(evaluator.graph).number
    evaluator.fails = lambda number: number == 5  # knobs (1, 1), the optimum
    result = _search(_query(), evaluator, settings=SearchSettings(patience=20))
    assert result.failed == 1
    assert result.plans
    assert 5 not in {good(plan.configuration) for plan in result.plans}


def test_a_pipeline_that_always_fails_has_no_plan() -> None:
    evaluator = _evaluator()
    evaluator.fails = lambda _: True
    result = _search(_query(), evaluator)
    assert (result.outcome, result.measured, result.failed) == (PlanningOutcome.FAILED, 12, 12)
    assert result.shortfall is not None
    assert "12 of them failed" in result.shortfall.sentence


def test_a_large_pipeline_that_always_fails_is_given_up() -> None:
    evaluator = SyntheticEvaluator(chain(*[4] * 5), lambda _: 0.5, lambda _: 0.1)
    evaluator.fails = lambda _: True
    result = _search(_query(), evaluator)
    assert (result.outcome, result.measured) == (PlanningOutcome.FAILED, 30)
    assert "all failed" in result.stopped_because


@pytest.mark.parametrize("radices", [(0,), (1,), (2,), (1, 3)])
@pytest.mark.parametrize("population", [1, 60])
def test_tiny_spaces_with_constant_values_are_planned(
    radices: tuple[int, ...], population: int
) -> None:
    evaluator = SyntheticEvaluator(chain(*radices), lambda _: 0.6, lambda _: 0.02, population)
    evaluator.noise = 0.0
    assert _search(_query(), evaluator).outcome is PlanningOutcome.FEASIBLE
    evaluator = replace(evaluator, measured={})
    assert _search(_query(0.9), evaluator).outcome is PlanningOutcome.INFEASIBLE


def test_constant_values_in_a_larger_space_are_planned() -> None:
    evaluator = SyntheticEvaluator(chain(4, 4, 4), lambda _: 0.6, lambda _: 0.02, noise=0.0)
    result = _search(_query(0.9), evaluator)
    assert result.outcome is PlanningOutcome.INFEASIBLE


def test_a_huge_space_is_searched_without_being_enumerated() -> None:
    weights = [[0.0, 0.01, 0.02, 0.03, 0.04]] * 30  # 5^30 configurations
    evaluator = SyntheticEvaluator(
        chain(*[5] * 30), additive(weights), additive([[0.001] * 5] * 30), population=10
    )
    settings = SearchSettings(strategy=partial(Cmbo, settings=CmboSettings(candidates=300)))
    query = _query(0.6, 1.0, limits=PlanningLimits(configurations=10))
    assert _search(query, evaluator, settings=settings).outcome is PlanningOutcome.FEASIBLE


@pytest.mark.parametrize("tiers", ["one-tier", "three-tier"])
def test_a_replayed_trace_is_planned_and_the_first_plan_is_true(tiers: str) -> None:
    trace = load_trace(_TRACE)
    accuracy = trace.score.mean(axis=1)
    order = np.random.default_rng(0).permutation(len(trace.input_bytes))
    slo = Slo(accuracy=0.57, latency_s=0.0028 if tiers == "one-tier" else 0.05)
    query = Query(pipeline=trace.graph.name, slo=slo, limits=PlanningLimits(profiling_s=1), seed=1)
    results = [
        search(query, PRESETS[tiers], TraceEvaluator(trace, order), TTest()) for _ in range(2)
    ]
    assert results[0] == results[1]
    assert results[0].outcome is PlanningOutcome.FEASIBLE
    space = ConfigurationSpace(trace.graph)
    rows = {int(n): i for i, n in enumerate(space.numbers(trace.configurations.astype(np.int64)))}
    for plan in results[0].plans:
        assert plan.latency_s.value <= slo.latency_s
        assert accuracy[rows[space.number(plan.configuration)]] >= slo.accuracy - 0.05


@pytest.mark.parametrize("tiers", ["one-tier", "three-tier"])
@pytest.mark.parametrize("strategy", [Cmbo, MultiFidelity])
def test_a_feasible_query_is_not_called_infeasible(tiers: str, strategy: object) -> None:
    trace = load_trace(_TRACE)
    order = np.random.default_rng(3).permutation(len(trace.input_bytes))
    # Few configurations satisfy: the models are far from them when they have seen 30.
    slo = Slo(accuracy=0.75, latency_s=0.004 if tiers == "one-tier" else 0.05)
    query = Query(pipeline=trace.graph.name, slo=slo, limits=PlanningLimits(profiling_s=4), seed=5)
    result = search(
        query,
        PRESETS[tiers],
        TraceEvaluator(trace, order),
        TTest(),
        settings=SearchSettings(strategy=strategy),  # type: ignore[arg-type]
    )
    assert result.outcome is not PlanningOutcome.INFEASIBLE


def test_what_a_search_held_is_freed_with_it() -> None:
    strategies: list[ref[object]] = []

    def watched(setting: SearchSetting, rng: np.random.Generator) -> Strategy:
        strategy = MultiFidelity(setting, rng)
        strategies.append(ref(strategy))
        return strategy

    gc.disable()  # reference counts alone: models of many megabytes must not wait for a collection
    try:
        _search(_query(), _evaluator(), settings=SearchSettings(strategy=watched))
        assert [strategy() for strategy in strategies] == [None]
    finally:
        gc.enable()


class _Spread(SyntheticEvaluator):
    """Inputs take 10 % more and less in turn."""

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        profile = super().measure(configuration, inputs)
        by = np.where(np.arange(len(profile.inputs)) % 2, 1.1, 0.9)
        return replace(profile, operator_s=profile.operator_s * by)


def test_a_configuration_is_not_left_for_waits_that_a_copy_more_would_spare() -> None:
    # At 75 ms two copies wait for 12 ms; at the least that ten inputs allow, one waits for 150 ms.
    evaluator = _Spread(chain(2), lambda k: 0.9, lambda k: 0.075, 40)
    query = replace(_query(), slo=Slo(accuracy=0.5, latency_s=0.15), request_rate_per_s=10.0)
    where = replace(ONE, tiers=(replace(ONE.tiers[0], machines=2),))
    result = search(
        query, where, evaluator, TTest(), settings=SearchSettings(strategy=exhaustive_search)
    )
    assert result.outcome is PlanningOutcome.FEASIBLE


def test_what_was_measured_is_told_for_later_queries() -> None:
    result = _search(_query(), _evaluator())
    assert len(result.configurations) == result.measured - result.failed >= 1
    assert sum(record.inputs for record in result.configurations) == result.inputs


def _asked_ahead(accuracy: float, examples: int) -> PlanningResult:
    """Search for an accuracy on future inputs; configurations score 0.5, 0.75 and 1."""
    evaluator = SyntheticEvaluator(
        chain(3), lambda k: 0.5 + 0.25 * k[0], lambda k: 0.01 + 0.01 * k[0], examples
    )
    evaluator.noise = 0.0
    query = _query(accuracy)
    ahead = replace(query, slo=replace(query.slo, holds_for=HoldsFor.FUTURE))
    return _search(ahead, evaluator)


def test_a_plan_for_future_inputs_has_an_interval_that_meets_the_objectives() -> None:
    result = _asked_ahead(0.9, 60)

    assert result.outcome is PlanningOutcome.FEASIBLE
    for plan in result.plans:
        assert plan.future is not None
        assert plan.future.accuracy.low >= 0.9
        assert plan.future.accuracy.high >= plan.accuracy.high


def test_a_plan_for_future_inputs_has_room_for_what_calibrations_may_be_off_by() -> None:
    speed = ClassSpeed(factor=1.0, low=1.0, high=1.0, repetitions=9)
    found = Calibration(
        date="2026-11-26", share=0.1, tier_factor=1.0, speeds={"none": speed}, within=1.5
    )
    calibrated = [replace(tier, calibration=found) for tier in ONE.tiers]
    evaluator = SyntheticEvaluator(
        chain(3), lambda k: 0.5 + 0.25 * k[0], lambda k: 0.01 + 0.01 * k[0], 60
    )
    evaluator.noise = 0.0
    query = _query(0.9)
    ahead = replace(query, slo=replace(query.slo, holds_for=HoldsFor.FUTURE))
    result = search(ahead, replace(ONE, tiers=tuple(calibrated)), evaluator, TTest())

    assert result.outcome is PlanningOutcome.FEASIBLE
    for plan in result.plans:
        assert plan.future is not None
        assert plan.future.latency_s.high >= 1.5 * plan.future.latency_s.value
        assert plan.future.latency_s.high <= query.slo.latency_s


@pytest.mark.parametrize("holds_for", HoldsFor)
def test_a_search_looks_for_the_slack_that_plans_for_future_inputs_need(
    holds_for: HoldsFor,
) -> None:
    tiers = tuple(replace(tier, within=1.5) for tier in ONE.tiers)
    query = replace(_query(), slo=replace(_query().slo, holds_for=holds_for))
    setting = SearchSetting.of(query, chain(3), replace(ONE, tiers=tiers), 60)
    slack = setting.context.slo.latency_s / setting.with_slack.slo.latency_s
    assert slack == (1.0 if holds_for is HoldsFor.EXAMPLES else pytest.approx(1.5**1.4))
    assert setting.with_slack.slo.accuracy == setting.slo.accuracy


def test_examples_that_are_too_few_are_told_before_anything_is_measured() -> None:
    result = _asked_ahead(0.9, 30)

    assert (result.outcome, result.measured) == (PlanningOutcome.INFEASIBLE, 0)
    # 0.9^n = 0.0125 at n = 41.6
    assert result.stopped_because == (
        "30 examples are too few to show accuracy 0.9 for future inputs: "
        "42 would do, were all of them right"
    )


@pytest.mark.parametrize(
    ("slo", "binding", "asked"),
    [
        (Slo(accuracy=0.88, latency_s=0.1), "accuracy", "accuracy >= 0.88"),
        (Slo(accuracy=0.0, latency_s=0.005), "latency", "mean latency <= 5.00 ms"),
    ],
)
def test_a_shortfall_for_future_inputs_is_told_by_what_was_asked_and_what_they_show(
    slo: Slo, binding: str, asked: str
) -> None:
    def found(slo: Slo) -> PlanningResult:
        evaluator = SyntheticEvaluator(
            chain(3), lambda k: 0.5 + 0.2 * k[0], lambda k: 0.01 + 0.01 * k[0], noise=0.1
        )
        ahead = replace(slo, holds_for=HoldsFor.FUTURE)
        return _search(replace(_query(), slo=ahead), evaluator)

    why = found(slo).shortfall
    assert why is not None
    assert why.binding == (binding,)
    assert f"confirmed to reach {asked} for future inputs" in why.sentence
    assert why.closest is not None
    assert why.closest.future is not None
    if slo.accuracy == 0.88:  # scores 0.8 and 1 are 0.9 on average
        assert why.closest.states(slo)["accuracy"] is SloState.MET
        assert f"-{why.closest.future.accuracy.high:.4g} for future inputs" in why.sentence
        assert re.search(r"About \d+ examples would show it", why.sentence)
    assert set(why.relaxations) == {binding}
    value = why.relaxations[binding]
    name = {"latency": "latency_s"}.get(binding, binding)
    eased = value * (1 + 1e-9) if binding == "latency" else value * (1 - 1e-9)
    relaxed = replace(slo, **{name: eased})  # type: ignore[arg-type]  # a float field
    assert found(relaxed).outcome is PlanningOutcome.FEASIBLE


@pytest.mark.parametrize(("examples", "feasible"), [(1, False), (10, False), (11, True)])
def test_a_latency_for_future_inputs_takes_inputs_of_which_a_slow_quarter_would_show(
    examples: int, feasible: bool
) -> None:
    evaluator = SyntheticEvaluator(chain(1), lambda _: 1.0, lambda _: 0.001, examples, noise=0.0)
    slo = Slo(accuracy=0.0, latency_s=0.2)
    on_examples = _search(replace(_query(), slo=slo), evaluator)
    assert on_examples.plans
    ahead = replace(slo, holds_for=HoldsFor.FUTURE)
    latency = on_examples.plans[0].states(ahead)["latency"]
    assert latency is (SloState.MET if feasible else SloState.LIKELY)  # 0.75^11 = 0.042
    result = _search(replace(_query(), slo=ahead), evaluator)
    assert (result.outcome is PlanningOutcome.FEASIBLE) is feasible
    if not feasible:
        told = "too few to show a mean latency for future inputs: it takes 11 at least"
        assert result.stopped_because.endswith(told)


class _Ended(SyntheticEvaluator):
    """One whose operators are ended, as when the time is over."""

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        raise Stopped("o0 was ended after 0.3 s")


@pytest.mark.parametrize("probes", [None, Probes()])
def test_operators_that_the_time_limit_ended_have_not_failed(probes: Probes | None) -> None:
    evaluator = _Ended(chain(3), lambda _: 0.5, lambda _: 0.1)
    query = _query(limits=PlanningLimits(response_s=3.0))
    result = _search(query, evaluator, settings=SearchSettings(forecast=probes))
    assert (result.outcome, result.failed) == (PlanningOutcome.EXHAUSTED, 0)
    assert result.stopped_because == "limit response_s reached; o0 was ended after 0.3 s"
    unlimited = replace(query, limits=PlanningLimits(response_s=None))
    told = _search(unlimited, evaluator).stopped_because
    assert told == "it was told to stop; o0 was ended after 0.3 s"


def test_where_a_limit_came_before_enough_inputs_no_objective_binds() -> None:
    evaluator = SyntheticEvaluator(chain(1), lambda _: 0.9, lambda _: 0.3, noise=0.1)
    result = _search(_query(0.8, 5.0, limits=PlanningLimits(profiling_s=1.0)), evaluator)
    why = result.shortfall
    assert result.outcome is PlanningOutcome.EXHAUSTED
    assert why is not None
    assert why.binding == ()
    assert why.sentence.startswith("No configuration was measured on enough inputs")
    sure = why.sure_relaxations["accuracy"]  # 0.9 would do; of few inputs it is not known to
    assert f"accuracy {sure:.4g} (with 95% confidence)" in why.sentence
