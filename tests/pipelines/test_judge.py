from __future__ import annotations

import pytest

from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.metrics import Judge
from circinus.pipelines.execution.pipeline import Pipeline, Score
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload


def test_a_judge_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"judge strict\.judge must be callable, got 3"):
        Judge(judge=3, name="strict")  # type: ignore[arg-type]  # what is wrong


def test_a_judge_needs_a_name_that_queries_can_say() -> None:
    with pytest.raises(InvalidInput, match=r"judge\.name"):
        Judge(judge=_alike, name="no name")


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan")])
def test_a_judge_that_gives_no_score_has_failed(score: float) -> None:
    pipeline = _judged(Judge(judge=lambda given, output, expected: score))
    with pytest.raises(OperatorFailed, match=r"operator score failed: must give a score in \[0"):
        pipeline.score_of("b", "b", "a")


def test_a_judge_that_raises_has_failed_with_its_cause() -> None:
    def raises(given: Payload, output: Payload, expected: Payload) -> float:
        raise RuntimeError("overloaded")

    with pytest.raises(OperatorFailed, match="operator score failed: RuntimeError: overloaded"):
        _judged(Judge(judge=raises)).score_of("b", "b", "a")


def test_a_judge_sees_the_input_the_output_and_what_was_expected() -> None:
    seen: list[tuple[Payload, Payload, Payload]] = []

    def notes(given: Payload, output: Payload, expected: Payload) -> float:
        seen.append((given, output, expected))
        return 0.25

    judge = Judge(judge=notes)
    assert _judged(judge).score_of("out", "wanted", "in") == 0.25
    assert judge.operator.run(judge.arguments("in", "out", "wanted"), {}) == 0.25
    assert seen == [("in", "out", "wanted")] * 2


def test_a_pipeline_with_a_metric_has_no_judge() -> None:
    judge = Judge(judge=_alike)
    assert _judged(judge).judge is judge
    assert _judged(lambda output, expected: 1.0).judge is None


def _alike(given: Payload, output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _judged(score: Judge | Score) -> Pipeline:
    same = Operator(spec=OperatorSpec(name="same"), run=lambda inputs, knobs: inputs)
    return Pipeline(name="p", operators=(same,), score=score)
