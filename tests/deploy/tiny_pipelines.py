"""Small pipelines that tests name as `tests.deploy.tiny_pipelines:attribute`."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec, Scaling, Settings
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device


def _same(output: Payload, expected: Payload) -> float:
    return float(output == expected)


def _double(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int | float)
    return inputs * 2


def _add(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int | float)
    return inputs + int(knobs["amount"])


def _describe(inputs: Payload, knobs: Settings) -> Payload:
    return {"value": inputs, "pid": os.getpid()}


def _echo(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


def _chatty(inputs: Payload, knobs: Settings) -> Payload:
    sys.stdout.write("an operator prints\n" * 10_000)  # more than a pipe holds
    return inputs


def _burn(inputs: Payload, knobs: Settings) -> Payload:
    """Use as many CPU seconds as asked."""
    assert isinstance(inputs, int | float)
    began = time.thread_time()
    while time.thread_time() - began < inputs:
        pass
    return inputs


def _nap(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int | float)
    threading.Event().wait(inputs)
    return inputs


_both = threading.Barrier(2)


def _meet(inputs: Payload, knobs: Settings) -> Payload:
    """With a true input, return when two calls are at work in this process."""
    if inputs:
        _both.wait(timeout=20)
    return inputs


def _nap_together(inputs: Sequence[Payload], knobs: Settings) -> list[Payload]:
    """Take 20 ms and a millisecond for each input; fail all for one that is None."""
    if None in inputs:
        raise ValueError("one of them is none")
    threading.Event().wait(0.02 + 0.001 * len(inputs))
    return [{"value": each, "together": len(inputs)} for each in inputs]


def _fail(inputs: Payload, knobs: Settings) -> Payload:
    raise ValueError(f"cannot take {inputs!r}")


def _refuse(inputs: Payload, knobs: Settings) -> Payload:
    raise InvalidInput.of("picture.width", "must be even", inputs)


def _nonsense(inputs: Payload, knobs: Settings) -> Payload:
    return object()  # type: ignore[return-value]  # what a faulty operator does


def _gather(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


class _Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


_held: list[bytes] = []


def _hold() -> Payload:
    while True:
        _held.append(bytes(2**20))


def _raise(error: BaseException) -> Payload:
    raise error


def _hang() -> Payload:
    threading.Event().wait()
    return None


_TROUBLES: dict[str, Callable[[], Payload]] = {
    "hang": _hang,
    "close": lambda: os.closerange(3, 4096),
    "fork": lambda: "copy" if os.fork() == 0 else "original",
    "hold": _hold,
    "allocate": lambda: bytes(2**40),
    "surrogate": lambda: _raise(ValueError("\ud800 alone")),
    "unfit": lambda: _raise(InvalidInput.of("\ud800", "must be \ud800", None)),
    "unspeakable": lambda: _raise(_Unspeakable()),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "cancel": lambda: _raise(asyncio.CancelledError()),
    "long": lambda: _raise(ValueError("x" * 2**20)),
}


def _trouble(inputs: Payload, knobs: Settings) -> Payload:
    """Do what the input names, as operators do that go wrong; or return it."""
    return _TROUBLES[inputs]() if isinstance(inputs, str) and inputs in _TROUBLES else inputs


arithmetic = Pipeline(
    name="arithmetic",
    operators=(
        Operator(spec=OperatorSpec(name="double"), run=_double),
        Operator(
            spec=OperatorSpec(
                name="add", after=("double",), knobs=(Knob(name="amount", values=(1, 10)),)
            ),
            run=_add,
        ),
        Operator(spec=OperatorSpec(name="describe", after=("add",)), run=_describe),
    ),
    score=_same,
)

fork = Pipeline(
    name="fork",
    operators=(
        Operator(spec=of_device(OperatorSpec(name="left")), run=_nap),
        Operator(spec=of_device(OperatorSpec(name="right")), run=_nap),
        Operator(spec=of_device(OperatorSpec(name="join", after=("left", "right"))), run=_gather),
    ),
    score=_same,
)


def _single(name: str, run: object) -> Pipeline:
    assert callable(run)
    spec = OperatorSpec(name=name)
    spec = of_device(spec) if run is _nap else spec
    return Pipeline(name=name, operators=(Operator(spec=spec, run=run),), score=_same)


batching = Pipeline(
    name="batching",
    operators=(
        Operator(
            spec=OperatorSpec(
                name="meet", scaling=Scaling.BATCHED, batch_latency={1: 1.0, 2: 1.0}
            ),
            run=_meet,
            concurrency=2,
        ),
        Operator(spec=OperatorSpec(name="after", after=("meet",)), run=_echo),
    ),
    score=_same,
)

gathering = Pipeline(
    name="gathering",
    operators=(
        Operator(
            spec=OperatorSpec(
                name="gather", scaling=Scaling.BATCHED, batch_latency={1: 1.0, 8: 1.4}
            ),
            run_batch=_nap_together,
            concurrency=8,
        ),
    ),
    score=_same,
)
one_by_one = Pipeline(  # the same, but that its worker gathers nothing
    name="one-by-one",
    operators=(Operator(spec=OperatorSpec(name="gather"), run=gathering.operators[0].run),),
    score=_same,
)

echo = _single("echo", _echo)
chatty = _single("chatty", _chatty)
trouble = _single("trouble", _trouble)
burn = _single("burn", _burn)
nap = _single("nap", _nap)
fail = _single("fail", _fail)
refuse = _single("refuse", _refuse)
refuse_later = Pipeline(
    name="refuse-later",
    operators=(
        Operator(spec=OperatorSpec(name="first"), run=_echo),
        Operator(spec=OperatorSpec(name="second", after=("first",)), run=_refuse),
    ),
    score=_same,
)
nonsense = _single("nonsense", _nonsense)
