from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, Unaffordable
from circinus.pipelines.execution.calling import EndpointCaller, OpenGate, report_usage
from circinus.pipelines.execution.metrics import Judge, JudgeFunction, SetMetric
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import means_of_inputs
from circinus.pipelines.model.endpoints import CallPrice, CallRetries, Endpoint
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.model.profile import FloatArray, Profile
from circinus.planner.models.estimates import accuracy_estimate
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.set_scores import Outputs, part_scores, set_scores_of
from tests.pipelines.test_calling import Broke

GRADER = Endpoint(
    name="grader",
    price=CallPrice(input_usd_per_million=1e6),  # a dollar a token
    most_input_tokens=10,
    most_output_tokens=1,
)


def test_a_judge_that_calls_where_nothing_can_call_is_refused_before_anything_runs() -> None:
    pipeline = _pipeline(Judge(judge=_paid, calls=("grader",)))
    with pytest.raises(InvalidInput, match=r"pipeline p\.score\.calls must be empty"):
        _profiler(pipeline, None)


def test_a_judge_that_fails_leaves_no_score_but_its_cause_and_what_it_cost() -> None:
    def fails(given: Payload, output: Payload, expected: Payload) -> float:
        report_usage("grader", input_tokens=2)
        raise ValueError("no grade in the answer")

    profile = _measured(fails, _caller())
    assert np.isnan(profile.score).all()
    assert [failure.operator for failure in profile.failures] == ["score"] * 3
    assert "no grade in the answer" in profile.failures[0].cause
    assert profile.calls_usd == 2.0 * 3


def test_a_score_out_of_range_is_a_failure_though_it_was_paid_for() -> None:
    def beyond(given: Payload, output: Payload, expected: Payload) -> float:
        report_usage("grader", input_tokens=1)
        return 7.0

    profile = _measured(beyond, _caller())
    assert "must give a score in [0, 1], got 7.0" in profile.failures[0].cause
    assert profile.calls_usd == 3.0


def test_a_judge_that_is_not_affordable_is_not_called_and_ends_measuring() -> None:
    with pytest.raises(Unaffordable, match="1 USD are left"):
        _measured(_paid, replace(_caller(), gate=Broke()))


def test_what_a_judge_costs_is_paid_and_is_no_part_of_what_the_pipeline_uses() -> None:
    profile = _measured(_paid, _caller())
    assert profile.score.tolist() == [1.0, 0.0, 1.0]
    assert profile.calls_usd == 3 * 4.0
    assert profile.used is None
    assert profile.runs == 3


def test_a_call_that_fails_is_made_again_as_the_judge_says() -> None:
    tries = list[int]()

    def once(given: Payload, output: Payload, expected: Payload) -> float:
        tries.append(1)
        report_usage("grader", input_tokens=1)
        if len(tries) == 1:
            raise ConnectionError("lost")
        return 1.0

    profile = _measured(once, _caller(), retries=CallRetries(first_wait_s=0.0))
    assert profile.score.tolist() == [1.0, 1.0, 1.0]
    assert profile.calls_usd == 4.0


def test_what_was_judged_is_kept_for_people_to_label() -> None:
    journal = MemoryJournal()
    pipeline = _pipeline(Judge(judge=lambda given, output, expected: 0.5))
    profile = _profiler(pipeline, None, journal).measure(_only(pipeline), 3)
    outputs = [each.output for each in journal.recall(profile.configuration)]
    assert [decode(output) for output in outputs if output is not None] == ["a", "b", "c"]


def test_what_a_metric_scored_is_not_kept() -> None:
    journal = MemoryJournal()
    pipeline = replace(_pipeline(Judge(judge=_paid)), score=lambda output, expected: 1.0)
    profile = _profiler(pipeline, None, journal).measure(_only(pipeline), 3)
    assert [each.output for each in journal.recall(profile.configuration)] == [None] * 3


def _paid(given: Payload, output: Payload, expected: Payload) -> float:
    report_usage("grader", input_tokens=4)
    return float(output == expected)


def _pipeline(judge: Judge) -> Pipeline:
    same = Operator(spec=OperatorSpec(name="same"), run=lambda inputs, knobs: inputs)
    return Pipeline(name="p", operators=(same,), score=judge)


def _only(pipeline: Pipeline) -> Configuration:
    return ConfigurationSpace(pipeline.graph).configuration(0)


def _measured(
    judge: JudgeFunction, caller: EndpointCaller, retries: CallRetries | None = None
) -> Profile:
    retries = retries or CallRetries(attempts=1)
    pipeline = _pipeline(Judge(judge=judge, calls=("grader",), retries=retries))
    return _profiler(pipeline, caller).measure(_only(pipeline), 3)


def _profiler(
    pipeline: Pipeline, caller: EndpointCaller | None, journal: MemoryJournal | None = None
) -> Profiler:
    pairs = [("a", "a"), ("b", "x"), ("c", "c")]
    examples = tuple(Example(input=given, expected=expected) for given, expected in pairs)
    return Profiler(
        pipeline,
        Dataset(name="letters", examples=examples),
        order=np.arange(3),
        executor=InProcess(ManualClock()),
        journal=journal or MemoryJournal(),
        caller=caller,
    )


def _caller() -> EndpointCaller:
    return EndpointCaller(
        endpoints={"grader": GRADER},
        gate=OpenGate(),
        clock=ManualClock(),
        rng=np.random.default_rng(0),
    )


def f1(outputs: Sequence[int], expected: Sequence[int]) -> float:
    right = sum(o and e for o, e in zip(outputs, expected, strict=True))
    return 2 * right / (sum(outputs) + sum(expected)) if any(outputs) or any(expected) else 0.0


def accuracy(outputs: Sequence[int], expected: Sequence[int]) -> float:
    return float(np.mean([o == e for o, e in zip(outputs, expected, strict=True)]))


def test_the_mean_of_the_scores_is_the_metric_of_all_outputs() -> None:
    outputs, expected = [1, 1, 0, 0, 1, 0] * 6, [1, 0, 0, 1, 1, 0] * 6
    scores = _scores(f1, outputs, expected, whole=True)
    assert float(scores.mean()) == pytest.approx(f1(outputs, expected), abs=1e-9)


def test_a_figure_that_equals_the_objective_is_seen_to() -> None:
    scores = _scores(accuracy, [1] * 9 + [0], [1] * 10, whole=True)
    assert accuracy_estimate(scores, population=10).value >= 0.9


def test_a_mean_of_single_scores_varies_as_these_do() -> None:
    # 30 of 100 right: the mean varies as theirs. As of 70 inputs at least, as an output of another
    # input is wrong for so many.
    outputs = [1] * 30 + [0] * 70
    scores = _scores(accuracy, outputs, [1] * 100, whole=True)
    plain = np.array(outputs, dtype=float)
    assert 1.0 <= float(scores.std(ddof=1)) / float(plain.std(ddof=1)) < 1.25


def test_a_figure_that_rests_on_few_inputs_says_nothing_yet() -> None:
    expected = [1, 1] + [0] * 62
    assert _scores(f1, [1, 0] + [0] * 62, expected, whole=False) is None
    assert _scores(f1, [0] * 64, [0] * 64, whole=False) is None


def test_outputs_that_happen_to_be_right_are_no_certainty() -> None:
    expected = [1] * 20 + [0] * 380
    known = accuracy_estimate(_scores(f1, expected, expected, whole=True), population=10_000)
    assert known.value == pytest.approx(1.0)
    assert 0.7 < known.low < 0.95  # of 20 of 20 right Wilson's interval begins at 0.84


def test_draws_of_an_input_count_as_one_in_the_mean() -> None:
    inputs = np.repeat(np.arange(50), 2)
    outputs, expected = [1, 0] * 50, [1] * 100
    scores = _scores(accuracy, outputs, expected, whole=True, inputs=inputs)
    assert float(means_of_inputs(inputs, scores).mean()) == pytest.approx(0.5)


def test_many_unlike_outputs_are_left_out_in_parts() -> None:
    rng = np.random.default_rng(5)
    outputs = rng.random(600).tolist()
    calls = list[int]()

    def mean(outputs: Sequence[float], expected: Sequence[float]) -> float:
        calls.append(len(outputs))
        return float(np.mean(outputs))

    scores = _scores(mean, outputs, [0.0] * 600, whole=True)
    assert len(calls) < 300  # and not 600 and more
    assert float(scores.mean()) == pytest.approx(float(np.mean(outputs)))


def test_a_metric_of_0_to_100_is_refused_before_anything_runs() -> None:
    metric = SetMetric(function=lambda outputs, expected: 100 * accuracy(outputs, expected))
    operator = Operator(spec=OperatorSpec(name="echo"), run=lambda inputs, knobs: inputs)
    pipeline = Pipeline(name="p", operators=(operator,), score=metric)
    data = Dataset(name="d", examples=[Example(input=1, expected=1)])
    told = r"pipeline p\.score must give a score in \[0, 1\] .*divide it by 100.*got 100\.0"
    with pytest.raises(InvalidInput, match=told):
        set_scores_of(pipeline, data, MemoryJournal())


@pytest.mark.parametrize("cut", [1.0, 2.2])
@pytest.mark.parametrize("n", [64, 400])
def test_intervals_of_f1_with_few_positives_hold_it(n: int, cut: float) -> None:
    """5 % of the inputs are positive. 95 % of 150 samples are 142; 132 by chance once in 4,000."""
    rng = np.random.default_rng(7)
    positive = rng.random(400_000) < 0.05
    flagged = rng.normal(size=400_000) + (3.0 if cut > 2 else 2.0) * positive > cut
    both = float((positive & flagged).sum())
    true = 2 * both / float(positive.sum() + flagged.sum())
    held = known = 0
    while known < 150:
        drawn = rng.integers(0, len(positive), n)
        outputs, expected = flagged[drawn].astype(int), positive[drawn].astype(int)
        scores = _scores(f1, outputs.tolist(), expected.tolist(), whole=False)
        if scores is not None:
            estimate = accuracy_estimate(scores, population=10**9)
            known, held = known + 1, held + (estimate.low <= true <= estimate.high)
    assert held >= 132


def _scores(
    function: object,
    outputs: Sequence[Payload],
    expected: Sequence[Payload],
    *,
    whole: bool,
    inputs: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None,
) -> FloatArray:
    made = Outputs(
        metric=SetMetric(function=function),  # type: ignore[arg-type]  # a function, by its users
        inputs=[0] * len(outputs),
        expected=expected,
        outputs=[encode(output) for output in outputs],
        alike=[str(value) for value in expected],
    )
    at = np.arange(len(outputs)) if inputs is None else inputs
    return part_scores(made, at, whole=whole)  # type: ignore[return-value]  # None where asked for
