from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.workers.batching import (
    Batches,
    BatchLine,
    BatchSeconds,
    GatheredCall,
    Patience,
)
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import Operator, OperatorSpec, Scaling, Settings
from circinus.pipelines.model.payload import Payload

NO_KNOBS = Configuration(())
LONG_S = 20.0  # a test that hangs ends


class Model:
    """A batched operator that works when told to, and keeps what it was given."""

    def __init__(self, concurrency: int = 4) -> None:
        self.batches: list[list[Payload]] = []
        self.began = threading.Semaphore(0)
        self.goes_on = threading.Semaphore(0)
        spec = OperatorSpec(name="model", scaling=Scaling.BATCHED, batch_latency={1: 1.0})
        self.operator = Operator(spec=spec, run_batch=self.run, concurrency=concurrency)

    def run(self, inputs: Sequence[Payload], knobs: Settings) -> list[Payload]:
        self.batches.append(list(inputs))
        self.began.release()
        assert self.goes_on.acquire(timeout=LONG_S)
        return self.outputs(inputs)

    def outputs(self, inputs: Sequence[Payload]) -> list[Payload]:
        if "bad" in inputs:
            raise ValueError("bad")
        return [f"{each!s}!" for each in inputs]


class Forgetful(Model):
    def outputs(self, inputs: Sequence[Payload]) -> list[Payload]:
        return super().outputs(inputs)[1:] if len(inputs) > 1 else super().outputs(inputs)


def played(
    model: Model, behind: Sequence[Payload], then: Callable[[], None]
) -> list[Future[tuple[Payload, float]]]:
    """One call at work, others that gather behind it; `then` lets the rest go."""
    batches = Batches(ManualClock(), Patience(quiet=0.0, most=0.0))
    line = batches._line(model.operator, NO_KNOBS)
    with ThreadPoolExecutor(16) as threads:

        def call(input: Payload) -> Future[tuple[Payload, float]]:
            return threads.submit(batches.run, model.operator, input, NO_KNOBS)

        calls = [call("first")]
        assert model.began.acquire(timeout=LONG_S)
        for number, input in enumerate(behind, start=1):
            calls.append(call(input))
            with line.changed:
                line.changed.wait_for(lambda n=number: len(line.waiting) == n, timeout=LONG_S)  # type: ignore[misc] # a default for the loop
        then()
        wait(calls, timeout=LONG_S)
    return calls


def outputs_of(calls: Sequence[Future[tuple[Payload, float]]]) -> list[Payload]:
    return [call.result()[0] for call in calls]


def test_what_is_wrong_with_one_input_fails_that_call_alone() -> None:
    model = Model()
    calls = played(model, ["bad", "b"], lambda: model.goes_on.release(10))
    assert model.batches == [["first"], ["bad", "b"], ["bad"], ["b"]]
    with pytest.raises(OperatorFailed, match="operator model failed: ValueError: bad"):
        calls[1].result()
    assert outputs_of([calls[0], calls[2]]) == ["first!", "b!"]


def test_outputs_that_are_too_few_are_nobodys() -> None:
    model = Forgetful()
    calls = played(model, ["a", "b"], lambda: model.goes_on.release(10))
    assert outputs_of(calls) == ["first!", "a!", "b!"]
    assert model.batches == [["first"], ["a", "b"], ["a"], ["b"]]


def test_a_call_alone_runs_at_once_and_those_behind_it_gather() -> None:
    model = Model()
    calls = played(model, ["a", "b", "c"], lambda: model.goes_on.release(10))
    assert model.batches == [["first"], ["a", "b", "c"]]
    assert outputs_of(calls) == ["first!", "a!", "b!", "c!"]


def test_a_batch_has_no_more_calls_than_the_operator_takes() -> None:
    model = Model(concurrency=2)
    calls = played(model, list("abcde"), lambda: model.goes_on.release(10))
    assert model.batches == [["first"], ["a", "b"], ["c", "d"], ["e"]]
    assert outputs_of(calls) == [f"{each}!" for each in ("first", *"abcde")]


def line_of(
    arrived_at: Sequence[float],
    *,
    due: float = inf,
    together_at: float = 10.0,
    ended_at: float = -inf,
) -> BatchLine:
    """A line whose batches take a second."""
    seconds = BatchSeconds()
    seconds.observe(1.0, 4)
    line = BatchLine(seconds=seconds, together_at=together_at, ended_at=ended_at)
    line.waiting = [GatheredCall(None, at, due) for at in arrived_at]
    return line


@pytest.mark.parametrize(
    ("line", "now", "wait_s"),
    [
        (line_of([10.0], together_at=-inf), 10.0, 0.0),  # nothing else was on its way
        (line_of([10.0], together_at=8.9), 10.0, 0.0),  # not for more than a batch's seconds
        (line_of([10.0], together_at=9.1), 10.0, 0.1),
        (line_of([10.0] * 4), 10.0, 0.0),  # full
        (line_of([10.0] * 3), 10.05, 0.05),
        (line_of([10.0, 10.3]), 10.3, 0.1),  # from the newest call on
        (line_of([10.0, 10.98]), 10.98, 0.02),  # no longer than a batch takes
        (line_of([10.0], due=11.04), 10.0, 0.04),  # a second for the batch
        (line_of([10.0], due=10.5), 10.0, -0.5),
        (line_of([5.0], ended_at=10.0), 10.0, 0.1),  # behind another batch
    ],
)
def test_a_batch_waits_while_calls_come_and_nobody_is_late_for_it(
    line: BatchLine, now: float, wait_s: float
) -> None:
    assert Patience().wait_s(line, now, 4) == pytest.approx(wait_s)


@given(
    arrived_at=st.lists(st.floats(0, 10), min_size=1, max_size=6).map(sorted),
    due_in=st.floats(0, 20),
    now_in=st.floats(0, 20),
    together_at=st.floats(0, 10),
)
@settings(max_examples=200, deadline=None)
def test_nobody_is_made_late_and_nobody_waits_longer_than_a_batch(
    arrived_at: list[float], due_in: float, now_in: float, together_at: float
) -> None:
    now = arrived_at[-1] + now_in
    line = line_of(arrived_at, due=now + due_in, together_at=together_at)
    ends = now + Patience().wait_s(line, now, 4)
    assert ends <= max(now, arrived_at[0] + 1.0)
    assert ends <= max(now, now + due_in - 1.0 + 1e-9)


def test_calls_with_other_knobs_are_no_batch() -> None:
    model = Model()
    batches = Batches(ManualClock())
    other = Configuration((("model", "size", 2),))
    assert batches._line(model.operator, NO_KNOBS) is not batches._line(model.operator, other)
    assert batches._line(model.operator, other) is batches._line(model.operator, other)


def test_a_batch_of_a_size_never_seen_is_foreseen_from_the_smallest_and_largest() -> None:
    seconds = BatchSeconds()
    assert seconds.predict(8) == 0.0
    seconds.observe(0.1, 1)
    assert seconds.predict(8) == pytest.approx(0.8)  # as if one by one
    seconds.observe(0.16, 4)  # 0.02 s for each more
    assert seconds.predict(8) == pytest.approx(0.24)
    assert seconds.predict(2) == pytest.approx(0.12)
    seconds.observe(0.11, 4)  # a fifth of the way
    assert seconds.predict(4) == pytest.approx(0.15)
