"""How schemas state the ranges of numbers, and how what was stored before is read.

The one rule: what comes in is within its range; what was taken in once stays readable, whatever
the ranges are by now. Whoever cannot work with such a value says so of that query alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from sys import float_info
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo, WrapValidator

from circinus.pipelines import ranges
from circinus.pipelines.ranges import Range

STORED: Mapping[str, bool] = {"stored": True}
"""Context of a validation of what was validated before it was stored."""


def bounds(of: Range) -> Any:  # noqa: ANN401 - a field, whatever its type
    """Return the bounds of a field, as JSON Schema states them."""
    return Field(ge=of.least, le=of.most)


def _as_stored(value: object, within: Callable[[object], object], info: ValidationInfo) -> object:
    if info.context != STORED or isinstance(value, bool):
        return within(value)
    if isinstance(value, int | float) and abs(value) <= float_info.max:
        return value
    return within(value)


READABLE = WrapValidator(_as_stored)
"""Of a number in a query: outside of its range it is read if it is stored."""


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Of a whole number: 5.0 is one, as JSON Schema has it. It comes after the bounds."""

Weight = Annotated[float, bounds(ranges.WEIGHT), READABLE]
Rate = Annotated[float, bounds(ranges.RATE_PER_S), READABLE]
Latency = Annotated[float, bounds(ranges.LATENCY_S), READABLE]
Cost = Annotated[float, bounds(ranges.COST_USD_PER_HOUR), READABLE]
CostPer1000 = Annotated[float, bounds(ranges.COST_USD_PER_1000_REQUESTS), READABLE]
Duration = Annotated[float, bounds(ranges.DURATION_S), READABLE]
LimitSeconds = Annotated[float, bounds(ranges.LIMIT_S), READABLE]
LimitDollars = Annotated[float, bounds(ranges.LIMIT_USD), READABLE]
Speed = Annotated[float, bounds(ranges.SPEED_FACTOR), READABLE]
Bandwidth = Annotated[float, bounds(ranges.BANDWIDTH_MBIT_PER_S), READABLE]
Delay = Annotated[float, bounds(ranges.DELAY_S), READABLE]
Machines = Annotated[int, bounds(ranges.MACHINES), WHOLE]
