"""Operators that behave in every way a profiler has to live with."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np
from threadpoolctl import threadpool_info

from circinus.pipelines.operators import Knob, Operator, OperatorFunction, OperatorSpec, Settings
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline


def _echo(inputs: Payload, knobs: Settings) -> Payload:
    return inputs


def _add(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, int | float)
    return inputs + float(knobs["by"])


def _slow(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(0.002)
    return inputs


def _slower(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(0.02)
    return inputs


def _pause(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(0.05)
    return inputs


def _pid(inputs: Payload, knobs: Settings) -> Payload:
    return os.getpid()


def _threads(inputs: Payload, knobs: Settings) -> Payload:
    np.ones((2, 2)) @ np.ones((2, 2))
    return [int(pool["num_threads"]) for pool in threadpool_info()]


def _raise(inputs: Payload, knobs: Settings) -> Payload:
    raise KeyError("x")


def _no_payload(inputs: Payload, knobs: Settings) -> Payload:
    return {1, 2}  # type: ignore[return-value]  # what is tested


def _write(inputs: Payload, knobs: Settings) -> Payload:
    assert isinstance(inputs, np.ndarray)
    inputs[0] = 9
    return inputs


def _hang(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(600)
    return inputs


def _die(inputs: Payload, knobs: Settings) -> Payload:
    os.kill(os.getpid(), signal.SIGKILL)
    return inputs


def _eat(inputs: Payload, knobs: Settings) -> Payload:
    return int(np.ones(2**30, np.uint8).sum())


def _leak(inputs: Payload, knobs: Settings) -> Payload:
    return len(bytearray(2**30))


def _borrow(inputs: Payload, knobs: Settings) -> Payload:
    return int(np.ones(100 * 2**20, np.uint8)[0])


def _leave(inputs: Payload, knobs: Settings) -> Payload:
    raise SystemExit("bye")


def _interrupt(inputs: Payload, knobs: Settings) -> Payload:
    raise KeyboardInterrupt


def _talk(inputs: Payload, knobs: Settings) -> Payload:
    sys.stdout.write("said by an operator\n")
    sys.stdout.flush()
    os.system("echo said by a program")
    return inputs


_RUNS: dict[str, OperatorFunction] = {
    "echo": _echo,
    "add": _add,
    "slow": _slow,
    "slower": _slower,
    "pause": _pause,
    "pid": _pid,
    "threads": _threads,
    "raise": _raise,
    "no_payload": _no_payload,
    "write": _write,
    "hang": _hang,
    "die": _die,
    "eat": _eat,
    "leak": _leak,
    "borrow": _borrow,
    "leave": _leave,
    "interrupt": _interrupt,
    "talk": _talk,
}
_KNOBS = {
    "add": (Knob(name="by", values=(0, 1, 2)),),
    "pause": (Knob(name="idle", values=(False, True)),),
}


def _operator(name: str, *after: str) -> Operator:
    spec = OperatorSpec(name=name, knobs=_KNOBS.get(name, ()), after=after)
    return Operator(spec=spec, run=_RUNS[name])


def _closeness(output: Payload, expected: Payload) -> float:
    assert isinstance(output, float)
    assert isinstance(expected, int)
    return 1 / (1 + abs(output - expected))


every = Pipeline(
    name="every",
    operators=tuple(_operator(name) for name in _RUNS),
    score=lambda output, expected: 1.0,
)
chain = Pipeline(
    name="chain", operators=(_operator("add"), _operator("slower", "add")), score=_closeness
)
pausing = Pipeline(
    name="pausing", operators=(_operator("add"), _operator("pause", "add")), score=_closeness
)
cannot_load = Pipeline(
    name="unready",
    operators=(_operator("echo"),),
    score=lambda output, expected: 1.0,
    prepare=lambda: os._exit(3),
)
EVERY = "tests.deploy.profiled_pipelines:every"
CHAIN = "tests.deploy.profiled_pipelines:chain"
PAUSING = "tests.deploy.profiled_pipelines:pausing"
CANNOT_LOAD = "tests.deploy.profiled_pipelines:cannot_load"
