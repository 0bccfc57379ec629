"""What failed inputs count as, against arithmetic by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.api.bootstrap.planning import plan_query
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.latency import Work, request_seconds
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.plan import Plan, cost_usd_per_hour
from circinus.pipelines.model.profile import UNPLANNABLE, Failure, FloatArray, Profile, Verdict
from circinus.pipelines.model.query import OnFailure, PlanningLimits, Query
from circinus.pipelines.model.slo import HoldsFor, Slo, SloState
from circinus.pipelines.model.tiers import Tier
from circinus.planner.search.failing import Counting
from circinus.planner.search.loop import SearchSettings, search
from circinus.planner.search.measuring import LatencyLooks
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from circinus.planner.strategy.cmbo import Cmbo
from circinus.planner.strategy.multi_fidelity import MultiFidelity
from circinus.planner.strategy.protocol import (
    Judgement,
    Measured,
    Proposal,
    SearchSetting,
    Strategy,
    StrategyFactory,
)
from circinus.profiler.stopping import TTest
from tests.oracles.synthetic import SyntheticEvaluator, chain

SPACE = ConfigurationSpace(chain(5))
INPUTS = 40


def _profile(number: int, scores: list[float | None], cause: str = "ValueError: no") -> Profile:
    """A profile on the first inputs; None: it failed there."""
    score = np.array([np.nan if s is None else s for s in scores])
    seconds = np.where(np.isnan(score), np.nan, 0.1 + np.arange(len(scores)))
    failed = tuple(
        Failure(input=i, operator="o0", cause=cause) for i, s in enumerate(scores) if s is None
    )
    return Profile(
        configuration=SPACE.configuration(number),
        inputs=np.arange(len(scores)),
        score=score,
        operator_s=seconds[None],
        output_bytes=np.ones_like(seconds)[None],
        input_bytes=np.ones_like(seconds),
        failures=failed,
    )


def _counted(
    on_failure: OnFailure, *rows: list[float | None], configurations: int = 5
) -> list[Profile]:
    counting = Counting(on_failure, configurations)
    counting.learn(_profile(number, row) for number, row in enumerate(rows))
    return [counting.counted(SPACE.configuration(number)) for number in range(len(rows))]


def test_a_profile_without_failures_is_handed_on_as_it_is() -> None:
    counting, profile = Counting(OnFailure.DROP, 5), _profile(0, [1.0, 0.5])
    counting.learn([profile])

    assert counting.counted(profile.configuration) is profile
    assert counting.failures == ()


def test_a_configuration_that_failed_everywhere_stays_without_figures() -> None:
    (profile,) = _counted(OnFailure.SCORE_ZERO, [None, None, None])

    assert np.isnan(profile.score).all()


@pytest.mark.parametrize("on_failure", [OnFailure.DROP, OnFailure.SCORE_ZERO])
def test_an_input_that_fails_in_some_configurations_scores_zero_there(
    on_failure: OnFailure,
) -> None:
    rows = _counted(on_failure, [1.0, None, 0.5], [1.0, None, 0.5], [1.0, 1.0, 0.5])

    assert rows[0].score.tolist() == [1.0, 0.0, 0.5]
    assert rows[2].score.tolist() == [1.0, 1.0, 0.5]
    assert rows[0].operator_s.tolist() == [[0.1, 0.1, 2.1]]  # those of a run that did not fail


def test_what_failed_attempts_used_stays_and_what_is_not_known_is_filled() -> None:
    profile = _profile(0, [1.0, None, None])
    used = np.zeros((1, 5, 3))
    used[0, 4] = [0.01, 0.07, np.nan]  # dollars
    used[0, 0, 2] = np.nan
    counting = Counting(OnFailure.SCORE_ZERO, 5)
    counting.learn([replace(profile, used=used)])
    found = counting.counted(profile.configuration).used
    assert found is not None
    assert found[0, 4].tolist() == [0.01, 0.07, 0.01]


def test_two_configurations_are_too_few_to_leave_an_input_out() -> None:
    rows = _counted(OnFailure.DROP, [1.0, None], [0.5, None])

    assert [row.score.tolist() for row in rows] == [[1.0, 0.0], [0.5, 0.0]]


def test_an_input_that_fails_in_all_configurations_is_left_out_where_there_are_only_two() -> None:
    rows = _counted(OnFailure.DROP, [1.0, None], [0.5, None], configurations=2)

    assert [row.score.mean() for row in rows] == [1.0, 0.5]


def test_an_input_that_fails_in_all_of_three_moves_no_mean() -> None:
    rows = _counted(OnFailure.DROP, [1.0, None, 0.5], [0.2, None, 0.4], [0.9, None, 0.9], [0.7])

    # The mean of the inputs that are left: (1 + 0.5) / 2, (0.2 + 0.4) / 2, 0.9, 0.7.
    assert [row.score.mean() for row in rows] == pytest.approx([0.75, 0.3, 0.9, 0.7])


def test_an_input_comes_back_when_a_configuration_succeeds_on_it() -> None:
    counting = Counting(OnFailure.DROP, 5)
    counting.learn(_profile(number, [1.0, None]) for number in range(3))
    assert counting.left_out == {1}
    counting.learn([_profile(3, [1.0, 1.0])])

    assert counting.left_out == frozenset()
    assert counting.counted(SPACE.configuration(0)).score.tolist() == [1.0, 0.0]


def test_with_stop_nothing_is_made_up() -> None:
    rows = _counted(OnFailure.STOP, [1.0, None])

    assert np.isnan(rows[0].score[1])


def test_failures_are_counted_by_operator_and_kind_of_exception() -> None:
    counting = Counting(OnFailure.DROP, 5)
    counting.learn([_profile(0, [None, None, 1.0]), _profile(1, [None, 1.0, 1.0])])

    (found,) = counting.failures
    assert (found.inputs, found.measurements) == (2, 3)
    assert str(found) == "o0 failed on input 0 and 1 more: ValueError: no"


def test_what_ends_planning_is_told_first() -> None:
    counting = Counting(OnFailure.SCORE_ZERO, 5)
    counting.learn([_profile(0, [None, None, 1.0])])
    assert counting.end is None
    counting.learn([_profile(1, [1.0, None], f"{UNPLANNABLE}no payload"), _profile(2, [1.0])])

    assert counting.end is not None
    assert counting.end.input == 1
    assert counting.failures[0].cause == "cannot be planned: no payload"


def _planned(
    fails: Callable[[int, int], bool],
    on_failure: OnFailure,
    score: Callable[[Payload, Payload], float] = lambda output, _: (
        output if isinstance(output, float) else 0.0
    ),
) -> PlanningResult:
    """Plan one operator with four settings of rising accuracy; it fails on (input, setting)."""

    def run(inputs: Payload, knobs: Settings) -> Payload:
        assert isinstance(inputs, int)
        assert isinstance(knobs["level"], int)
        if fails(inputs, knobs["level"]):
            raise ValueError(f"cannot read {inputs}")
        return float((inputs * 7) % 10 < 6 + knobs["level"])

    spec = OperatorSpec(name="reader", knobs=(Knob(name="level", values=(0, 1, 2, 3)),))
    pipeline = Pipeline(
        name="own",
        operators=(Operator(spec=spec, run=run),),
        score=score,
    )
    query = Query(
        pipeline="own",
        slo=Slo(accuracy=0.85, latency_s=1.0),
        limits=PlanningLimits(profiling_s=20.0),
        on_failure=on_failure,
    )
    data = Dataset(name="own", examples=[Example(input=i, expected=None) for i in range(INPUTS)])
    return plan_query(query, PRESETS["three-tier"], pipeline, data)


def test_a_tenth_of_failing_inputs_ends_no_search_and_is_told() -> None:
    result = _planned(lambda i, level: i % 10 == 3, OnFailure.DROP)

    assert result.outcome is PlanningOutcome.FEASIBLE
    assert set(result.left_out) <= {3, 13, 23, 33}
    out = len(result.left_out)
    (found,) = result.failures
    assert found.operator == "reader"
    assert found.cause.startswith("ValueError: cannot read ")
    for plan in result.plans:
        assert plan.future is not None
        assert (plan.accuracy.inputs, plan.accuracy.left_out) == (INPUTS - out, out)
        assert plan.accuracy.over == f" over {INPUTS - out} of {INPUTS}"
        assert (plan.future.accuracy.inputs, plan.future.accuracy.left_out) == (INPUTS - out, out)
        easy = Slo(accuracy=0.1, latency_s=1.0)
        assert plan.states(easy)["accuracy"] is SloState.MET
        ahead = plan.states(replace(easy, holds_for=HoldsFor.FUTURE))
        assert ahead["accuracy"] is SloState.LIKELY
    # Of the 36 inputs that are left, level 3 is right on those with i * 7 % 10 < 9: all but i % 10
    # == 7, 32 of them.
    levels = {plan.configuration.of("reader")["level"] for plan in result.plans}
    assert levels == {3}


def test_an_input_that_fails_in_one_configuration_costs_that_one() -> None:
    result = _planned(lambda i, level: level == 3 and i % 4 == 0, OnFailure.DROP)

    assert result.left_out == ()
    assert all(plan.configuration.of("reader")["level"] != 3 for plan in result.plans)


def test_a_tenth_of_failing_inputs_scores_zero_unless_it_is_to_be_dropped() -> None:
    assert Query(pipeline="own", slo=Slo(accuracy=1, latency_s=1)).on_failure is (
        OnFailure.SCORE_ZERO
    )
    result = _planned(lambda i, level: i % 10 == 3, OnFailure.SCORE_ZERO)

    # Level 3 is right on 9 of 10 inputs, one of which fails.
    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert result.shortfall is not None
    assert result.shortfall.closest is not None
    assert result.shortfall.closest.accuracy.value == pytest.approx(0.8)


def test_failures_that_bind_are_told_with_what_is_infeasible() -> None:
    result = _planned(lambda i, level: i % 3 == 0, OnFailure.SCORE_ZERO)

    assert result.outcome is PlanningOutcome.INFEASIBLE
    assert "reader failed on input" in result.stopped_because
    assert "ValueError: cannot read" in result.stopped_because


def test_what_fails_always_has_failed_not_been_found_infeasible() -> None:
    result = _planned(lambda i, level: True, OnFailure.DROP)

    assert result.outcome is PlanningOutcome.FAILED
    assert result.failures[0].measurements == result.inputs


def test_with_stop_the_first_failure_ends_the_search_with_its_cause() -> None:
    result = _planned(lambda i, level: i == 11, OnFailure.STOP)

    assert result.outcome is PlanningOutcome.FAILED
    assert result.stopped_because == "reader failed on input 11: ValueError: cannot read 11"


def test_a_metric_that_raises_ends_planning_with_its_message() -> None:
    def raising(output: Payload, expected: Payload) -> float:
        if output == 0.0:
            raise KeyError("total")
        return 1.0

    result = _planned(lambda i, level: False, OnFailure.SCORE_ZERO, raising)

    assert result.outcome is PlanningOutcome.FAILED
    assert result.plans == ()
    assert "score failed on input" in result.stopped_because
    assert "0 where nothing of it is right (KeyError: 'total')" in result.stopped_because


GRAPH = chain(3, 3)
UNSOUND_MEASUREMENTS_SPACE = ConfigurationSpace(GRAPH)
N = 60
TIERS = PRESETS["three-tier"]


@dataclass
class Noisy:
    """Scores of 0 and 1, seconds with a spread; some configurations fail, some give NaN."""

    seed: int
    graph: PipelineGraph = GRAPH
    population: int = N
    spent_s: float = 0.0
    calls_s: float = 0.0
    calls_usd: float = 0.0
    known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        means = rng.uniform(0.2, 0.95, UNSOUND_MEASUREMENTS_SPACE.size)
        self.score = (rng.random((UNSOUND_MEASUREMENTS_SPACE.size, N)) < means[:, None]).astype(
            float
        )
        seconds = rng.uniform(0.002, 0.05, (UNSOUND_MEASUREMENTS_SPACE.size, 2, 1))
        self.seconds = seconds * rng.lognormal(0, 0.3, (UNSOUND_MEASUREMENTS_SPACE.size, 2, N))
        self.fails = rng.random(UNSOUND_MEASUREMENTS_SPACE.size) < 0.2
        self.score[rng.random(UNSOUND_MEASUREMENTS_SPACE.size) < 0.1, 5] = np.nan

    @property
    def width(self) -> int:
        return 1

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        return tuple(self.measure(configuration, inputs) for configuration, inputs in wanted)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        number = UNSOUND_MEASUREMENTS_SPACE.number(configuration)
        before = self.known.get(number, 0)
        n = self.known[number] = max(before, inputs)
        self.spent_s += float(self.seconds[number, :, before:n].sum())
        failure = Failure(input=0, operator="o0", cause="made to fail")
        blank = np.nan if self.fails[number] else 1.0
        return Profile(
            configuration=configuration,
            inputs=np.arange(n),
            score=self.score[number, :n] * blank,
            operator_s=self.seconds[number, :, :n] * blank,
            output_bytes=np.full((2, n), 100.0) * blank,
            input_bytes=np.full(n, 1000.0),
            failures=(failure,) if self.fails[number] else (),
        )

    def is_bad(self, number: int) -> bool:
        n = self.known.get(number, 0)
        return bool(self.fails[number] or np.isnan(self.score[number, :n]).any())


class Spy:
    """Hands everything on and keeps what the strategy was told."""

    def __init__(self, inner: Strategy, told: list[tuple[int, Measured | None]]) -> None:
        self._inner = inner
        self._told = told

    def propose(self, under_way: Sequence[Proposal] = ()) -> Proposal | None:
        return self._inner.propose(under_way)

    def observe(self, number: int, measured: Measured | None) -> None:
        self._told.append((number, measured))
        self._inner.observe(number, measured)

    def judged(self, number: int, measured: Measured) -> Judgement:
        return self._inner.judged(number, measured)

    def finishing(
        self, plans: Sequence[Plan], under_way: Sequence[Proposal] = ()
    ) -> Proposal | None:
        return self._inner.finishing(plans, under_way)

    def undecided(self, plans: Sequence[Plan]) -> int | None:
        return self._inner.undecided(plans)

    def under(self, setting: SearchSetting) -> Strategy:
        return self._inner.under(setting)


def _query(accuracy: float, latency_s: float, seed: int) -> Query:
    slo = Slo(accuracy=accuracy, latency_s=latency_s, cost_usd_per_hour=3.0)
    return Query(pipeline=GRAPH.name, slo=slo, seed=seed, limits=PlanningLimits(profiling_s=8.0))


def _searched(
    query: Query,
    evaluator: Noisy,
    factory: StrategyFactory,
    told: list[tuple[int, Measured | None]],
) -> PlanningResult:
    def spied(setting: SearchSetting, rng: np.random.Generator) -> Strategy:
        return Spy(factory(setting, rng), told)

    return search(
        query,
        TIERS,
        evaluator,
        TTest(),
        settings=SearchSettings(strategy=spied, patience=6),
        clock=ManualClock(),
    )


@pytest.mark.parametrize("factory", [Cmbo, MultiFidelity])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    world=st.integers(0, 10**6),
    accuracy=st.floats(0.3, 0.9),
    latency_s=st.floats(0.02, 0.3),
)
def test_no_failed_or_nan_measurement_reaches_a_model_or_a_front(
    factory: StrategyFactory, world: int, accuracy: float, latency_s: float
) -> None:
    query, evaluator = _query(accuracy, latency_s, world), Noisy(world)
    told: list[tuple[int, Measured | None]] = []
    result = _searched(query, evaluator, factory, told)
    # No failed or NaN measurement reaches a model, none a front.
    for number, measured in told:
        assert measured is None or np.isfinite(measured.scores).all()
        assert measured is None or not evaluator.fails[number]
    for plan in result.plans:
        number = UNSOUND_MEASUREMENTS_SPACE.number(plan.configuration)
        assert not evaluator.is_bad(number)
        n = evaluator.known[number]
        work = Work(
            operator_s=evaluator.seconds[number, :, :n],
            output_bytes=np.full((2, n), 100.0),
            input_bytes=np.full(n, 1000.0),
        )
        seconds = request_seconds(GRAPH, TIERS, work, plan.deployment)
        assert evaluator.score[number, :n].mean() >= query.slo.accuracy
        assert seconds.mean() <= query.slo.latency_s * (1 + 1e-9)
        assert cost_usd_per_hour(plan.deployment.demand(GRAPH), TIERS) <= 3.0 + 1e-9
    # The same seed on the same measurements gives the same result.
    assert _searched(query, Noisy(world), factory, []) == result


ONE = Infrastructure(name="one", tiers=(Tier(name="t"),))


class Hasty:
    """A rule that accepts everything after the first input."""

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        return Verdict.ABOVE


@pytest.mark.parametrize("bad", [0, -1])
def test_accepting_on_no_input_is_refused(bad: int) -> None:
    with pytest.raises(InvalidInput, match=rf"latency_looks\.accepted must be >= 1, got {bad}"):
        LatencyLooks(accepted=bad)


@pytest.mark.parametrize(("population", "inputs"), [(60, 20), (12, 12)])
def test_latency_is_promised_on_enough_inputs_though_accuracy_is_decided_at_once(
    population: int, inputs: int
) -> None:
    evaluator = SyntheticEvaluator(
        chain(1), lambda _: 0.9, lambda _: 0.01, population=population, noise=0.0
    )
    query = Query(pipeline="synthetic", slo=Slo(accuracy=0.5, latency_s=1.0))

    result = search(query, ONE, evaluator, Hasty(), settings=SearchSettings(strategy=Cmbo))

    assert result.inputs == inputs
    assert result.plans[0].latency_s.inputs == inputs
