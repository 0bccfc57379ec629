from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, Unaffordable
from circinus.pipelines.execution.calling import EndpointCaller, OpenGate, report_usage
from circinus.pipelines.execution.metrics import Judge, JudgeFunction
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, CallRetries, Endpoint
from circinus.pipelines.model.operators import Operator, OperatorSpec
from circinus.pipelines.model.payload import Payload, decode
from circinus.pipelines.model.profile import Profile
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MemoryJournal
from circinus.profiler.measure import Profiler
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
