"""What failed inputs count as, against arithmetic by hand."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from circinus.api.bootstrap.planning import plan_query
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.pipelines.model.profile import UNPLANNABLE, Failure, Profile
from circinus.pipelines.model.query import OnFailure, PlanningLimits, Query
from circinus.pipelines.model.slo import HoldsFor, Slo, SloState
from circinus.planner.search.failing import Counting
from circinus.planner.search.result import PlanningOutcome, PlanningResult
from tests.oracles.synthetic import chain

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
