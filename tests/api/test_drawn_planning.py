"""Planning what answers differently each time: declared by the query, or seen to before."""

from __future__ import annotations

import random

import pytest

from circinus.api.bootstrap.planning import PriorWork, plan_query
from circinus.api.schemas.query import QueryRequest, to_query
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.presets import PRESETS
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload
from circinus.planner.search.result import PlanningResult

DATA = Dataset(name="numbers", examples=[Example(input=i, expected=i) for i in range(10)])


def planned(
    right: float, *, draws: tuple[str, ...] = (), seen: tuple[str, ...] = ()
) -> PlanningResult:
    """Plan one operator that answers rightly with that probability."""
    rng = random.Random(1)

    def answer(inputs: Payload, settings: Settings) -> Payload:
        return inputs if rng.random() < right else None

    pipeline = Pipeline(
        name="own",
        operators=(Operator(spec=OperatorSpec(name="answer"), run=answer),),
        score=lambda output, expected: float(output == expected),
    )
    request = QueryRequest.model_validate(
        {
            "pipeline": "own",
            "data": {"examples": 10},
            "slo": {"accuracy": 0.5, "latency_s": 1},
            "draws": list(draws),
        }
    )
    return plan_query(
        to_query(request), PRESETS["three-tier"], pipeline, DATA, prior=PriorWork(draws=seen)
    )


def test_an_operator_that_is_not_there_cannot_be_declared_to_draw() -> None:
    with pytest.raises(InvalidInput, match="draws must be among answer, got 'answers'"):
        planned(1.0, draws=("answers",))


def test_what_answers_alike_is_exact_and_nothing_is_told() -> None:
    result = planned(1.0)
    plan = result.plans[0]
    assert (plan.accuracy.low, plan.accuracy.high, result.seen_to_draw) == (1.0, 1.0, ())


def test_the_search_s_remarks_are_told_beside_those_of_a_busy_machine() -> None:
    result = planned(0.8)
    assert result.seen_to_draw == ("answer",)
    assert result.remarks[0].startswith("answer answered the same input differently")


def test_what_was_seen_before_planning_is_planned_for_its_mean_and_told() -> None:
    result = planned(1.0, seen=("answer",))
    assert result.seen_to_draw == ("answer",)
    assert result.remarks[0].startswith("answer answered the same input differently")
    plan = result.plans[0]
    assert plan.accuracy.low < plan.accuracy.value == pytest.approx(1.0, abs=1e-3)


def test_what_a_query_declares_needs_no_remark() -> None:
    result = planned(1.0, draws=("answer",), seen=("answer",))
    assert result.seen_to_draw == ()
    assert not [remark for remark in result.remarks if remark.startswith("answer")]
    plan = result.plans[0]
    assert plan.accuracy.low < plan.accuracy.value == pytest.approx(1.0, abs=1e-3)
