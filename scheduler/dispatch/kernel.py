"""Decision rules as compiled functions over arrays: the one home of numba.

A rule is called for every event of a simulated run and of a live deployment. Compiled, a
decision takes microseconds and a simulated run of 20,000 requests well under a second; the
same code as interpreted Python takes a hundred times as long.
Compiled code is cached on disk beside the module, so only the first start pays for compiling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import numba as nb
import numpy as np

from circinus.scheduler.dispatch.policy import (
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


class RuleInput(NamedTuple):
    """What a rule sees: the arrays of `DispatchState` and of its `Fleet`."""

    waited_s: FloatArray  # (m,)
    qos_s: FloatArray  # (m,)
    size: FloatArray  # (m,)
    planned: IntArray  # (m,)
    predicted_s: FloatArray  # (m, n)
    busy_s: FloatArray  # (n,)
    idle: BoolArray  # (n,)
    kind: IntArray  # (n,)
    coefficient: FloatArray  # (n,)
    price: FloatArray  # (n,)
    dual: FloatArray  # (n,); a rule may change it, which is the `dual` of its decision
    largest: FloatArray  # (1,)


class Kernel(Protocol):
    """A compiled rule: fills `answer`, shape (m,), may change `dual`, and keeps nothing."""

    def __call__(self, settings: FloatArray, inputs: RuleInput, answer: IntArray, /) -> None:
        """Answer for each waiting request."""


FLOATS, INTS, BOOLS = nb.float64[::1], nb.int64[::1], nb.boolean[::1]
MATRIX = nb.float64[:, ::1]
tuple_type: Callable[..., Any] = nb.types.NamedTuple
"""(types, class) -> what numba calls a named tuple; it ships no types of its own."""
_RULE_INPUT = tuple_type(
    (FLOATS, FLOATS, FLOATS, INTS, MATRIX, FLOATS, BOOLS, INTS, FLOATS, FLOATS, FLOATS, FLOATS),
    RuleInput,
)
KERNEL_TYPE = nb.types.void(FLOATS, _RULE_INPUT, INTS)

P = ParamSpec("P")
R = TypeVar("R")


class CompiledPolicy(DispatchPolicy, Protocol):
    """A `DispatchPolicy` whose rule is compiled: it serves a simulation, too."""

    @property
    def rule(self) -> Kernel:
        """Return its compiled rule."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # numbers: the settings that its rule takes

    def __hash__(self) -> int:
        """Return that of its fields."""


def compiled(rule: Kernel) -> Kernel:
    """Compile a rule to machine code."""
    return cast("Kernel", nb.njit(KERNEL_TYPE, cache=True)(rule))


def compiled_part(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function that rules call, for the arguments with which it is called first."""
    return cast("Callable[P, R]", nb.njit(cache=True)(function))


def compiled_driver(function: Callable[P, R], signature: Any) -> Callable[P, R]:  # noqa: ANN401
    """Compile a function with a signature of numba's, which may take rules as arguments."""
    return cast("Callable[P, R]", nb.njit(signature, cache=True)(function))


@lru_cache(maxsize=256)  # asked for again at every decision
def settings_of(policy: CompiledPolicy) -> FloatArray:
    """Return the fields of a policy, in their order, as its rule takes them."""
    return np.array(astuple(policy), dtype=np.float64)


def rule_input(state: DispatchState) -> RuleInput:
    """Return what a rule sees of a state."""
    return RuleInput(
        state.waited_s,
        state.qos_s,
        state.size,
        state.planned,
        np.ascontiguousarray(state.predicted_s),
        state.busy_s,
        state.idle,
        state.fleet.kind,
        state.fleet.coefficient,
        state.fleet.price,
        np.zeros(len(state.busy_s)) if state.dual is None else state.dual.copy(),
        np.array([state.largest]),
    )


def decided_by_rule(policy: CompiledPolicy, state: DispatchState) -> Decision:
    """Return the decision of a policy's rule on a state: its `DispatchPolicy.decide`."""
    if not len(state.waited_s) or not len(state.busy_s):
        return Decision()
    answer = np.full(len(state.waited_s), WAIT, dtype=np.int64)
    inputs = rule_input(state)
    policy.rule(settings_of(policy), inputs, answer)
    starts, rejected, planned = [], [], []
    for i, code in enumerate(answer.tolist()):
        if code >= 0:
            starts.append(Start(i, code))
        elif code == REJECT:
            rejected.append(i)
        elif code <= PLANNED:
            planned.append(Start(i, PLANNED - code))
    return Decision(starts, rejected, planned, tuple(inputs.dual.tolist()))
