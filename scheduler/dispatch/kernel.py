"""Decision rules as compiled functions over arrays: the one home of numba.

A rule is called for every event of a simulated run and of a live deployment. Compiled, a
decision takes microseconds and a simulated run of 20,000 requests well under a second; the
same code as interpreted Python takes a hundred times as long. A rule is a `Kernel`:

    rule(settings, waited_s, qos_s, size, planned, predicted_s, busy_s, idle, kind, coefficient,
         price, answer)

with the arrays of `DispatchState` and `Fleet`; it fills `answer`, shape (m,), and keeps nothing.
Compiled code is kept on disk beside the module, so only the first start pays for compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import numba as nb
import numpy as np

from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchPolicy,
    DispatchState,
    FloatArray,
    IntArray,
    Start,
)

WAIT = -1
"""Answer: the request goes on waiting. A number `>= 0` starts it on that instance."""
REJECT = -2
"""Answer: the request is turned away."""
PLANNED = -3
"""Answers from here down: it waits, and `PLANNED - answer` is its planned instance."""

Kernel = Callable[
    [
        FloatArray,
        FloatArray,
        FloatArray,
        FloatArray,
        IntArray,
        FloatArray,
        FloatArray,
        BoolArray,
        IntArray,
        FloatArray,
        FloatArray,
        IntArray,
    ],
    None,
]

_F, _I, _B = nb.float64[::1], nb.int64[::1], nb.boolean[::1]
KERNEL_TYPE = nb.types.void(_F, _F, _F, _F, _I, nb.float64[:, ::1], _F, _B, _I, _F, _F, _I)

P = ParamSpec("P")
R = TypeVar("R")


class CompiledPolicy(DispatchPolicy, Protocol):
    """A `DispatchPolicy` whose rule is compiled: it serves a simulation, too."""

    @property
    def rule(self) -> Kernel:
        """Give its compiled rule."""

    @property
    def settings(self) -> FloatArray:
        """Give the settings that its rule takes."""


def compiled(rule: Kernel) -> Kernel:
    """Compile a rule to machine code."""
    return cast("Kernel", nb.njit(KERNEL_TYPE, cache=True)(rule))


def compiled_part(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that rules call, for the arguments with which it is called first."""
    return cast("Callable[P, R]", nb.njit(cache=True)(function))


def compiled_driver(function: Callable[P, R], signature: Any) -> Callable[P, R]:  # noqa: ANN401
    """Compile a function with a signature of numba's, which may take rules as arguments."""
    return cast("Callable[P, R]", nb.njit(signature, cache=True)(function))


def decide(rule: Kernel, settings: FloatArray, state: DispatchState) -> Decision:
    """Give what a rule says of a state."""
    answer = np.full(len(state.waited_s), WAIT, dtype=np.int64)
    if not len(answer) or not len(state.busy_s):
        return Decision()
    fleet = state.fleet
    rule(
        settings,
        state.waited_s,
        state.qos_s,
        state.size,
        state.planned,
        np.ascontiguousarray(state.predicted_s),
        state.busy_s,
        state.idle,
        fleet.kind,
        fleet.coefficient,
        fleet.price,
        answer,
    )
    starts, rejected, planned = [], [], []
    for i, code in enumerate(answer.tolist()):
        if code >= 0:
            starts.append(Start(i, code))
        elif code == REJECT:
            rejected.append(i)
        elif code <= PLANNED:
            planned.append(Start(i, PLANNED - code))
    return Decision(starts, rejected, planned)
