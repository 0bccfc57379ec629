from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.operators import (
    Knob,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.model.payload import Payload
from circinus.profiler.execution import (
    Completed,
    Executor,
    FailedRun,
    InProcess,
    freeze,
    handed_out,
)

PLAIN = Configuration(())


def operator(run: OperatorFunction, *knobs: Knob) -> Operator:
    return Operator(spec=OperatorSpec(name="op", knobs=knobs), run=run)


def raising(error: Exception) -> OperatorFunction:
    def run(inputs: Payload, settings: Settings) -> Payload:
        raise error

    return run


@pytest.mark.parametrize(
    ("run", "cause"),
    [
        (raising(KeyError("x")), "KeyError: 'x'"),
        (raising(MemoryError()), "MemoryError"),
        (raising(Unavailable("model is gone", retry_after_s=1)), "model is gone"),
        (lambda inputs, settings: cast(Payload, {1, 2}), "payload must be None, truth value"),
        (lambda inputs, settings: cast(Payload, object()), "payload must be None, truth value"),
        (lambda inputs, settings: np.array([None]), "payload must have arrays of numbers"),
        (lambda inputs, settings: "\ud800", "must have text that UTF-8 can hold"),
    ],
)
def test_whatever_an_operator_does_wrong_is_a_failure_with_its_cause(
    run: OperatorFunction, cause: str
) -> None:
    done = InProcess(ManualClock()).run(operator(run), 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert cause in done.cause


def test_a_failure_is_paid_for() -> None:
    clock = ManualClock()

    def run(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(3)
        raise RuntimeError("late")

    done = InProcess(clock).run(operator(run), 1, PLAIN)
    assert done == FailedRun(cause="RuntimeError: late", spent_s=3)


def test_an_operator_that_writes_into_its_input_fails_loudly() -> None:
    def run(inputs: Payload, settings: Settings) -> Payload:
        assert isinstance(inputs, np.ndarray)
        inputs[0] = 1
        return inputs

    given = np.zeros(2)
    done = InProcess(ManualClock()).run(operator(run), given, PLAIN)
    assert isinstance(done, FailedRun)
    assert "read-only" in done.cause
    assert given.tolist() == [0, 0]


def test_an_operator_that_hands_out_its_own_buffer_fails_loudly() -> None:
    buffer = np.zeros(2)

    def run(inputs: Payload, settings: Settings) -> Payload:
        buffer[0] += 1
        return buffer

    done = InProcess(ManualClock()).run(operator(run), 0, PLAIN)
    assert isinstance(done, FailedRun)
    assert "read-only" in done.cause


def test_an_operator_that_changes_a_list_changes_only_its_own() -> None:
    def run(inputs: Payload, settings: Settings) -> Payload:
        assert isinstance(inputs, list)
        inputs.append(1)
        return len(inputs)

    given: list[Payload] = []
    done = InProcess(ManualClock()).run(operator(run), given, PLAIN)
    assert isinstance(done, Completed)
    assert done.output == 1  # in the warm-up as in the timed call
    assert given == []


def test_loading_on_the_first_call_is_paid_for_but_is_no_latency() -> None:
    clock = ManualClock()
    loaded: set[object] = set()

    def run(inputs: Payload, settings: Settings) -> Payload:
        if settings["model"] not in loaded:
            clock.sleep(10)
            loaded.add(settings["model"])
        clock.sleep(2)
        return "abc"

    loader = operator(run, Knob(name="model", values=("a", "b")))
    executor: Executor = InProcess(clock)
    a, b = (Configuration((("op", "model", model),)) for model in "ab")
    # 12 s of warm-up and 2 s timed on the first call; `"abc"` as JSON is 5 bytes.
    first = Completed(
        output="abc", output_bytes=5, seconds=2, spent_s=14, varies=False, first_s=12
    )
    later = Completed(output="abc", output_bytes=5, seconds=2, spent_s=2)
    assert executor.run(loader, 0, a) == first
    assert executor.run(loader, 1, a) == later
    assert executor.run(loader, 0, b) == first
    assert executor.run(loader, 1, a) == later


def test_what_a_run_takes_longer_than_the_process_was_busy_it_waited() -> None:
    clock, busy = ManualClock(), ManualClock()

    def run(inputs: Payload, settings: Settings) -> Payload:
        clock.sleep(5)
        busy.sleep(2)
        return 1

    done = InProcess(clock, busy_s=busy.now).run(operator(run), 0, PLAIN)
    assert isinstance(done, Completed)
    assert (done.seconds, done.waited_s) == (5, 3)
    unknown = InProcess(clock).run(operator(run), 0, PLAIN)
    assert isinstance(unknown, Completed)
    assert unknown.waited_s == 0


def test_an_operator_is_warm_only_after_a_call_that_succeeded() -> None:
    calls: list[Payload] = []

    def run(inputs: Payload, settings: Settings) -> Payload:
        calls.append(inputs)
        if inputs == 0:
            raise RuntimeError("not this one")
        return inputs

    executor = InProcess(ManualClock())
    for given in (0, 1, 2):
        executor.run(operator(run), given, PLAIN)
    assert calls == [0, 1, 1, 2]


def test_writing_into_a_frozen_array_fails_however_deep_it_lies() -> None:
    array = np.zeros(3)
    freeze({"a": [1, {"b": array}]})
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_writing_into_an_array_handed_out_fails_and_the_owner_still_may() -> None:
    array = np.zeros(3)
    view = handed_out([array])
    assert isinstance(view, list)
    given = view[0]
    assert isinstance(given, np.ndarray)
    with pytest.raises(ValueError, match="read-only"):
        given[0] = 1
    array[0] = 1
    assert np.shares_memory(given, array)


def test_lists_and_dicts_are_handed_out_as_copies_at_every_depth() -> None:
    kept: dict[str, Payload] = {"a": [1, {"b": 2}]}
    given = handed_out(kept)
    assert given == kept
    assert isinstance(given, dict)
    inner = given["a"]
    assert isinstance(inner, list)
    inner.append(3)
    innermost = inner[1]
    assert isinstance(innermost, dict)
    innermost["b"] = 4
    assert kept == {"a": [1, {"b": 2}]}


@pytest.mark.parametrize("payload", [None, True, 1, 1.5, "text", b"bytes"])
def test_what_cannot_be_changed_is_handed_out_itself(payload: Payload) -> None:
    freeze(payload)
    assert handed_out(payload) is payload
