"""A worker that calls endpoints makes one attempt in a call, and tells what it used."""

from __future__ import annotations

import numpy as np
import pytest

from circinus.deploy.workers.batching import Batches
from circinus.deploy.workers.calling import Attempts, from_wire, to_wire
from circinus.deploy.workers.errors import CallFailed
from circinus.deploy.workers.execution import INPUT, Execution
from circinus.deploy.workers.options import WorkerOptions, parse
from circinus.deploy.workers.shares import Pace, ProcessorSeconds
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed
from circinus.pipelines.execution.calling import report_usage
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, CallRetries, Endpoint, RateLimits, Usage
from circinus.pipelines.model.operators import Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload, decode

PRICE = CallPrice(input_usd_per_million=1.0, output_usd_per_million=2.0)
READER = Endpoint(name="reader", price=PRICE, limits=RateLimits(concurrent=7))


class Answer:
    status_code = 429
    headers = {"Retry-After": "3"}  # noqa: RUF012 - as those of clients


class Refused(Exception):
    response = Answer()


def _call(inputs: Payload, knobs: Settings) -> Payload:
    if inputs == "refused":
        raise Refused
    report_usage("reader", input_tokens=10, output_tokens=5)
    if inputs == "broken":
        raise ValueError("no such thing")
    return inputs


def _fail(inputs: Payload, knobs: Settings) -> Payload:
    raise KeyError(str(inputs))


PIPELINE = Pipeline(
    name="calling",
    operators=(
        Operator(
            spec=OperatorSpec(name="call", calls=("reader",)),
            run=_call,
            retries=CallRetries(attempts=3, longest_wait_s=5.0),
        ),
        Operator(spec=OperatorSpec(name="fail", after=("call",)), run=_fail),
    ),
    score=lambda output, expected: 1.0,
)


def execution(*, endpoints: tuple[Endpoint, ...] = (READER,)) -> Execution:
    clock = ManualClock()
    return Execution(
        pipeline=PIPELINE,
        served=frozenset({"call", "fail"}),
        configuration=ConfigurationSpace(PIPELINE.graph).parse({}),
        pace=Pace(),
        clock=clock,
        processor_seconds=ProcessorSeconds,
        batches=Batches(clock),
        attempts=Attempts(
            endpoints={each.name: each for each in endpoints},
            clock=clock,
            rng=np.random.default_rng(0),
        )
        if endpoints
        else None,
        concurrent=7,
    )


def ignore(seconds: float) -> None:
    pass


def test_what_calls_is_refused_where_there_are_no_endpoints() -> None:
    with pytest.raises(InvalidInput, match="must call no endpoint on a tier with machines"):
        execution(endpoints=()).run(["call"], {INPUT: "x"}, ["call"], ignore)


def test_an_endpoint_that_is_not_there_is_refused() -> None:
    other = Endpoint(name="other")
    with pytest.raises(InvalidInput, match=r"operator call\.calls must be"):
        execution(endpoints=(other,)).run(["call"], {INPUT: "x"}, ["call"], ignore)


def test_a_refusal_tells_when_the_next_attempt_is_due_and_that_it_cost_nothing() -> None:
    with pytest.raises(CallFailed, match="Refused") as caught:
        execution().run(["call"], {INPUT: "refused"}, ["call"], ignore)
    assert caught.value.again_in_s == 3.0  # as it asked
    assert caught.value.used == {"call": {"reader": Usage(calls=1.0)}}


def test_after_the_last_attempt_no_other_is_due() -> None:
    with pytest.raises(CallFailed, match="Refused") as caught:
        execution().run(["call"], {INPUT: "refused"}, ["call"], ignore, attempt=3)
    assert caught.value.again_in_s is None


def test_a_call_that_failed_for_good_is_in_the_bill_with_its_cause() -> None:
    with pytest.raises(CallFailed, match="ValueError: no such thing") as caught:
        execution().run(["call"], {INPUT: "broken"}, ["call"], ignore)
    assert caught.value.again_in_s is None
    # 10 tokens at 1 $ and 5 at 2 $ per million
    assert caught.value.used == {"call": {"reader": Usage(1, 10, 0, 5, 20e-6)}}


def test_what_was_called_before_an_operator_that_fails_is_in_the_bill() -> None:
    with pytest.raises(CallFailed, match="operator fail failed: KeyError") as caught:
        execution().run(["call", "fail"], {INPUT: "x"}, ["fail"], ignore)
    assert caught.value.used["call"]["reader"].calls == 1
    assert caught.value.again_in_s is None


def test_an_operator_that_fails_alone_has_called_nothing() -> None:
    with pytest.raises(OperatorFailed) as caught:
        execution().run(["fail"], {"call": "x"}, ["fail"], ignore)
    assert not isinstance(caught.value, CallFailed)


def test_an_answer_tells_what_it_used_and_how_many_calls_are_taken() -> None:
    reply = execution().run(["call"], {INPUT: "x"}, ["call"], ignore)
    assert decode(reply.outputs["call"]) == "x"
    assert from_wire(reply.used) == {"call": {"reader": Usage(1, 10, 0, 5, 20e-6)}}
    assert reply.concurrency == 7


def test_usage_is_the_same_after_the_wire() -> None:
    used = {"a": {"x": Usage(1, 2, 1, 3, 0.1), "y": Usage()}, "b": {}}
    assert from_wire(to_wire(used)) == used


def test_endpoints_are_the_same_after_the_command_line() -> None:
    told = WorkerOptions(
        pipeline="p",
        operators=("a",),
        tier="hosted",
        bind="unix:/tmp/x.sock",
        endpoints=(READER, Endpoint(name="free", most_output_tokens=5, timeout_s=2.0)),
        concurrent=9,
    )
    assert parse(told.arguments()) == told


def test_no_calls_at_a_time_are_refused() -> None:
    with pytest.raises(InvalidInput, match="concurrent must be >= 1"):
        WorkerOptions(
            pipeline="p", operators=("a",), tier="t", bind="unix:/tmp/x.sock", concurrent=0
        )
