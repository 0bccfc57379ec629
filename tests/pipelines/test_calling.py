"""Operators that call: leave before each attempt, and what each of them used."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import httpx
import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock, SystemClock
from circinus.pipelines.errors import InvalidInput, Unaffordable
from circinus.pipelines.execution.calling import (
    Called,
    EndpointCaller,
    OpenGate,
    Permit,
    most_of,
    report_usage,
)
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import (
    CallPrice,
    CallRetries,
    Endpoint,
    EndpointCall,
    Usage,
)
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Settings
from circinus.pipelines.model.payload import Payload

BY_TOKEN = CallPrice(input_usd_per_million=1e6, output_usd_per_million=2e6)  # 1 and 2 a token
ENDPOINTS = {
    "m": Endpoint(name="m", price=BY_TOKEN, most_input_tokens=10, most_output_tokens=5),
    "flat": Endpoint(name="flat", price=CallPrice(call_usd=3.0)),
    "slow": Endpoint(name="slow", price=CallPrice(usd_per_s=1.0), timeout_s=8.0),
}
MOST = Usage(1.0, 10.0, 0.0, 5.0, 20.0)  # of `m`
NO_KNOBS = Configuration(())


@dataclass
class Noting:
    """A gate that is open and remembers."""

    admitted: list[Mapping[str, Usage]] = field(default_factory=list)
    settled: list[Mapping[str, Usage]] = field(default_factory=list)

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        self.admitted.append(most)
        return Permit(operator=operator, most=most)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        self.settled.append(used)


class Broke:
    """A gate without money."""

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        raise Unaffordable("a call may cost 20 USD, 1 USD are left")

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        raise AssertionError("nothing was admitted")


def calling(
    run: Callable[[Payload, Settings], Payload],
    *calls: str | EndpointCall,
    retries: CallRetries | None = None,
    knobs: tuple[Knob, ...] = (),
) -> Operator:
    spec = OperatorSpec(name="reader", calls=calls or ("m",), knobs=knobs)  # type: ignore[arg-type]  # a mix
    return Operator(spec=spec, run=run, retries=retries or CallRetries(first_wait_s=0.0))


def caller(gate: Noting | Broke | OpenGate | None = None) -> EndpointCaller:
    return EndpointCaller(
        endpoints=ENDPOINTS,
        gate=gate or OpenGate(),
        clock=SystemClock(),
        rng=np.random.default_rng(0),
    )


def told(inputs: Payload, knobs: Settings) -> Payload:
    report_usage("m", input_tokens=4, output_tokens=2)
    return "answer"


def refused(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://localhost")
    response = httpx.Response(status, request=request)
    return httpx.HTTPStatusError("failed", request=request, response=response)


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        ({"input_tokens": -1}, "usage of m, input_tokens must be finite and >= 0"),
        ({"usd": float("nan")}, "usage of m, usd must be finite and >= 0"),
        ({"input_tokens": 1, "cached_tokens": 2}, "cached_tokens must be at most the input"),
    ],
)
def test_usage_that_cannot_be_is_refused(figures: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        report_usage("m", **figures)


def test_a_report_that_nobody_asked_for_is_no_fault() -> None:
    report_usage("m", input_tokens=4)


def test_an_operator_that_calls_what_is_not_there_is_refused_before_it_runs() -> None:
    with pytest.raises(InvalidInput, match=r"operator reader\.calls must be among m, flat, slow"):
        caller().run(calling(told, "other"), "question", NO_KNOBS)


def test_without_money_nothing_is_called() -> None:
    ran: list[Payload] = []

    def run(inputs: Payload, knobs: Settings) -> Payload:
        ran.append(inputs)
        return inputs

    with pytest.raises(Unaffordable, match="may cost 20 USD, 1 USD are left"):
        caller(Broke()).run(calling(run), "question", NO_KNOBS)
    assert ran == []


def test_what_is_reported_is_priced_and_settled() -> None:
    gate = Noting()
    called = caller(gate).run(calling(told), "question", NO_KNOBS)
    used = Usage(1, 4, 0, 2, 8.0)  # 4 x 1 + 2 x 2
    assert (called.output, called.failure, called.used) == ("answer", None, used)
    assert gate.admitted == [{"m": MOST}]
    assert gate.settled == [{"m": used}]


def test_dollars_that_are_told_count_before_the_price() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        report_usage("m", input_tokens=4, usd=0.5)
        return inputs

    assert caller().run(calling(run), "question", NO_KNOBS).used.usd == 0.5


def test_an_operator_that_is_paid_by_the_token_must_tell_what_it_used() -> None:
    gate = Noting()
    called = caller(gate).run(calling(lambda inputs, knobs: inputs), "question", NO_KNOBS)
    assert called.failure is not None
    assert called.failure.cause == (
        "cannot be planned: it must tell what it used of m (report_usage)"
    )
    assert gate.settled == [{"m": MOST}]


def test_a_call_at_a_price_of_its_own_need_not_be_told() -> None:
    called = caller().run(calling(lambda inputs, knobs: inputs, "flat"), "q", NO_KNOBS)
    assert called.used == Usage(calls=1.0, usd=3.0)


def test_what_was_refused_is_not_charged_and_what_was_lost_is_charged_as_the_most() -> None:
    for error, used in ((refused(400), Usage(calls=1.0)), (ValueError("torn"), MOST)):

        def run(inputs: Payload, knobs: Settings, error: Exception = error) -> Payload:
            raise error

        gate = Noting()
        called = caller(gate).run(calling(run), "question", NO_KNOBS)
        assert called.failure is not None
        assert gate.settled == [{"m": used}]
        assert called.used == used


def test_every_attempt_has_leave_of_its_own_and_all_of_them_are_paid() -> None:
    tries: list[int] = []

    def run(inputs: Payload, knobs: Settings) -> Payload:
        tries.append(1)
        if len(tries) < 3:
            raise refused(503)
        return told(inputs, knobs)

    gate = Noting()
    called = caller(gate).run(calling(run), "question", NO_KNOBS)
    assert called.output == "answer"
    assert (len(gate.admitted), len(gate.settled)) == (3, 3)
    assert called.used == Usage(3, 24, 0, 12, 48.0)  # twice the most, of nobody knows, and 8


def test_what_fails_for_good_tells_the_cause_of_its_last_attempt() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        raise refused(500)

    gate = Noting()
    called = caller(gate).run(calling(run), "question", NO_KNOBS)
    assert called.failure is not None
    assert called.failure.cause == "HTTPStatusError: failed"
    assert len(gate.settled) == 3


def test_an_attempt_that_takes_too_long_is_given_up_and_charged() -> None:
    over = threading.Event()

    def run(inputs: Payload, knobs: Settings) -> Payload:
        over.wait(10)
        return inputs

    gate = Noting()
    called = caller(gate).run(
        calling(run, retries=CallRetries(attempts=1, timeout_s=0.05)), "question", NO_KNOBS
    )
    over.set()
    assert called.failure is not None
    assert called.failure.cause == "TimeoutError: no answer in 0.05 s"
    assert gate.settled == [{"m": MOST}]


def test_waits_between_attempts_are_seconds_of_the_run() -> None:
    clock = ManualClock()

    def run(inputs: Payload, knobs: Settings) -> Payload:
        if clock.now() == 0:
            raise refused(503)
        return told(inputs, knobs)

    own = EndpointCaller(
        endpoints=ENDPOINTS,
        gate=OpenGate(),
        clock=clock,
        rng=np.random.default_rng(0),
    )
    retries = CallRetries(first_wait_s=2.0)
    called = own.run(calling(run, retries=retries), "question", NO_KNOBS)
    assert called.failure is None
    assert 1.0 <= called.seconds <= 2.0


def test_seconds_are_charged_once_however_many_calls_are_told() -> None:
    clock = ManualClock()

    def run(inputs: Payload, knobs: Settings) -> Payload:
        report_usage("slow")
        report_usage("slow")
        clock.sleep(4.0)
        return inputs

    own = EndpointCaller(
        endpoints=ENDPOINTS,
        gate=OpenGate(),
        clock=clock,
        rng=np.random.default_rng(0),
    )
    called: Called = own.run(calling(run, EndpointCall(endpoint="slow", most=2)), "q", NO_KNOBS)
    assert called.used == Usage(calls=2.0, usd=4.0)


def test_only_what_is_called_under_the_settings_is_asked_leave_for() -> None:
    model = Knob(name="model", values=("m", "flat"))
    operator = calling(lambda inputs, knobs: inputs, "m", "flat", knobs=(model,))
    configured = Configuration((("reader", "model", "flat"),))
    assert most_of(operator, configured, ENDPOINTS) == {
        "flat": Usage(calls=1.0, input_tokens=inf, output_tokens=inf, usd=3.0)
    }


def test_what_was_lost_of_a_call_without_bounds_is_charged_as_what_is_known_of_it() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        raise ValueError("torn")

    assert caller().run(calling(run, "flat"), "q", NO_KNOBS).used == Usage(calls=1.0, usd=3.0)


@pytest.mark.parametrize(
    ("name", "told", "usd"),
    [
        ("slow", "calls must name every endpoint that report_usage tells of (m), got slow", 28.0),
        ("mm", "calls must name every endpoint that report_usage tells of (m), got mm", 8.0),
        ("m", "calls must be at most 1 of m in a run (EndpointCall(most=...)), got 2", 16.0),
    ],
)
def test_a_report_of_what_was_not_declared_ends_planning_and_is_charged(
    name: str, told: str, usd: float
) -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        report_usage("m", input_tokens=4, output_tokens=2)  # 8 USD
        report_usage(name, input_tokens=4, output_tokens=2, usd=20.0 if name == "slow" else None)
        return "answer"

    gate = Noting()
    called = caller(gate).run(calling(run), "question", NO_KNOBS)

    assert called.output is None
    assert called.failure is not None
    assert called.failure.cause == f"cannot be planned: {told}"
    assert called.used.usd == usd
    assert len(gate.settled) == len(gate.admitted) == 1


@pytest.mark.parametrize(("usd", "is_kept"), [(20.0, True), (20.01, False)])
def test_dollars_beyond_what_was_kept_back_end_planning(usd: float, is_kept: bool) -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        report_usage("m", input_tokens=4, usd=usd)
        return "answer"

    called = caller().run(calling(run), "question", NO_KNOBS)

    assert (called.failure is None) == is_kept
    assert called.used.usd == usd


def test_tokens_beyond_an_endpoint_s_bounds_are_charged_and_no_fault() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        report_usage("m", input_tokens=100)
        return "answer"

    called = caller().run(calling(run), "question", NO_KNOBS)
    assert (called.output, called.used.usd) == ("answer", 100.0)


def test_leave_is_settled_at_the_most_whatever_ends_an_attempt() -> None:
    class Gone(ManualClock):
        """A clock that fails once the attempt is made."""

        def now(self) -> float:
            raise KeyboardInterrupt

    gate = Noting()
    one = EndpointCaller(
        endpoints=ENDPOINTS, gate=gate, clock=Gone(), rng=np.random.default_rng(0)
    )
    with pytest.raises(KeyboardInterrupt):
        one.run(calling(told), "question", NO_KNOBS)
    assert gate.settled == [{"m": MOST}]


def test_what_ends_a_thread_fails_the_attempt_at_once() -> None:
    def run(inputs: Payload, knobs: Settings) -> Payload:
        raise KeyboardInterrupt

    retries = CallRetries(timeout_s=60, attempts=1)
    called = caller().run(calling(run, retries=retries), "question", NO_KNOBS)

    assert called.failure is not None
    assert called.failure.cause == "KeyboardInterrupt"
    assert called.seconds < 30
