"""Operators that behave in every way a profiler has to live with."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import stat
import sys
import time

import numpy as np
from threadpoolctl import threadpool_info

from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import (
    Knob,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.model.payload import Payload
from tests.device_work import of_device


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


def _hoard(inputs: Payload, knobs: Settings) -> Payload:
    _HOARD.append(bytearray(50 * 2**20))  # a first call is made twice
    return inputs


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


def _surroundings(inputs: Payload, knobs: Settings) -> Payload:
    given = [os.environ.get(name, "") for name in ("SET_AFTERWARDS", "CIRCINUS_TOKEN")]
    return [os.getcwd(), *given, sys.path[0]]


def _draw(inputs: Payload, knobs: Settings) -> Payload:
    return [float(np.random.random()), random.random()]  # noqa: NPY002 - as users do


def _draw_slowly(inputs: Payload, knobs: Settings) -> Payload:
    time.sleep(0.3)
    return _draw(inputs, knobs)


def _fork(inputs: Payload, knobs: Settings) -> Payload:
    """Return twice: here, and in a copy of this process."""
    assert isinstance(inputs, int | float)
    if os.fork():
        return inputs
    return -inputs


def _leave_a_copy(inputs: Payload, knobs: Settings) -> Payload:
    """Die, while a copy holds all descriptors."""
    if not os.fork():
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)
    return inputs


def _close(inputs: Payload, knobs: Settings) -> Payload:
    os.closerange(3, 1024)
    return inputs


def _reopen(inputs: Payload, knobs: Settings) -> Payload:
    """Have other sockets where this process had its own."""
    os.closerange(3, 1024)
    _REOPENED.extend(socket.socketpair())
    return inputs


def _scribble(inputs: Payload, knobs: Settings) -> Payload:
    for descriptor in range(3, 64):
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, b"said into every socket")
    return inputs


def _stand_still(inputs: Payload, knobs: Settings) -> Payload:
    os.kill(os.getpid(), signal.SIGSTOP)
    return inputs


_HOARD: list[bytearray] = []
_REOPENED: list[socket.socket] = []
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
    "hoard": _hoard,
    "leave": _leave,
    "interrupt": _interrupt,
    "talk": _talk,
    "surroundings": _surroundings,
    "draw": _draw,
    "draw_slowly": _draw_slowly,
    "fork": _fork,
    "leave_a_copy": _leave_a_copy,
    "close": _close,
    "reopen": _reopen,
    "scribble": _scribble,
    "stand_still": _stand_still,
}
_KNOBS = {
    "add": (Knob(name="by", values=(0, 1, 2)),),
    "pause": (Knob(name="idle", values=(False, True)),),
}


def _operator(name: str, *after: str) -> Operator:
    spec = OperatorSpec(name=name, knobs=_KNOBS.get(name, ()), after=after)
    if _RUNS[name] in (_slow, _slower, _pause):
        spec = of_device(spec)
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
forking = Pipeline(
    name="forking", operators=(_operator("add"), _operator("fork", "add")), score=_closeness
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
FORKING = "tests.deploy.profiled_pipelines:forking"
CANNOT_LOAD = "tests.deploy.profiled_pipelines:cannot_load"
