"""Operators one after the other, each with its knobs: what most pipelines of the catalogue are.

What operators exchange is checked on the way in, by the first function of a `step`; the functions
behind trust it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.operators import (
    Knob,
    KnobValue,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.model.payload import Payload

Inputs = TypeVar("Inputs")
Number = TypeVar("Number", bound=np.generic)

Knobs = Mapping[str, tuple[KnobValue, ...]]  # knob -> values


class ChainStep(NamedTuple):
    """What an operator does, and its choices."""

    run: OperatorFunction
    knobs: Knobs


def chain(steps: Mapping[str, ChainStep], **versions: str) -> tuple[Operator, ...]:
    """Return a chain of proportional operators by name, in order; versions not given are "1"."""
    parents = [(), *((name,) for name in steps)]
    return tuple(
        Operator(
            spec=OperatorSpec(
                name=name,
                after=after,
                knobs=tuple(Knob(name=knob, values=values) for knob, values in knobs.items()),
            ),
            run=run,
            version=versions.get(name, "1"),
        )
        for (name, (run, knobs)), after in zip(steps.items(), parents, strict=False)
    )


def step(
    check: Callable[[Payload], Inputs], run: Callable[..., Any], /, **knobs: tuple[KnobValue, ...]
) -> ChainStep:
    """Return the step `run(check(inputs), **settings)`; dataclasses travel as dicts.

    `check` takes what comes in, or raises InvalidInput, as settings do that are no choices.
    """

    def operator(inputs: Payload, settings: Settings) -> Payload:
        checked = check(inputs)
        for knob, value in settings.items():
            if value not in knobs[knob]:
                rule = f"must be one of {', '.join(map(str, knobs[knob]))}"
                raise InvalidInput.of(knob, rule, value)
        result = run(checked, **settings)
        if is_dataclass(result):  # not by `asdict`, which copies arrays
            return {field.name: getattr(result, field.name) for field in fields(result)}
        return cast(Payload, result)

    return ChainStep(operator, knobs)


def checked_array(
    field: str,
    value: Payload,
    dtype: type[Number],
    fits: Callable[[tuple[int, ...]], bool],
    rule: str,
) -> NDArray[Number]:
    """Return the value as an array of that type and a shape that fits; else InvalidInput."""
    if isinstance(value, np.ndarray) and value.dtype == dtype and fits(value.shape):
        return value.view(dtype)
    raise InvalidInput.of(field, f"must be {rule}", described(value))


def described(value: object) -> str:
    """Return what a value is, in a few words, for the message of an error."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return type(value).__name__
