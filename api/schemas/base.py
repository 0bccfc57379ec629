"""The two kinds of schema: strict for input, tolerant for output; and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from math import isfinite
from sys import float_info
from typing import Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WrapValidator,
    model_validator,
)

from circinus.pipelines import ranges
from circinus.pipelines.errors import MOST_VIOLATIONS, InvalidInput, Violation
from circinus.pipelines.ranges import Range


class Input(BaseModel):
    """Something a user hands over: refused unless every field is known, typed and finite."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _mostly_known(cls, document: object) -> object:
        """Refuse a document of mostly unknown fields, each of which would be a violation."""
        known = cls.model_fields
        if isinstance(document, dict) and len(document) > len(known) + MOST_VIOLATIONS:
            unknown = next(name for name in document if name not in known)
            raise InvalidInput.of("", f"must have no fields but {', '.join(known)}", unknown)
        return document


class View(BaseModel):
    """Something the service answers with: a reader ignores fields that it does not know."""

    model_config = ConfigDict(
        extra="ignore", frozen=True, from_attributes=True, use_attribute_docstrings=True
    )

    @classmethod
    def of(cls, source: object = None, **others: object) -> Self:
        """Return the view of a domain value: attribute by attribute, but for `others`."""
        names = cls.model_fields.keys() - others.keys()
        values = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return cls.model_validate(values | others)


def having(*names: str) -> dict[str, Any]:
    """Return the JSON schema of objects with these fields; null is left out, as everywhere."""
    return {
        "required": list(names),
        "properties": {name: {"not": {"type": "null"}} for name in names},
    }


def left_out(*names: str) -> dict[str, Any]:
    """Return the JSON schema of objects without these fields."""
    return {"properties": {name: {"type": "null"} for name in names}}


def _finite(value: float | None) -> float | None:
    return value if value is not None and isfinite(value) else None


Finite = Annotated[float | None, BeforeValidator(_finite)]
"""A number, or none for what JSON has no number for."""


def time_of(value: object) -> object:
    """Return seconds since the epoch as a time, UTC; what is none stays as it is."""
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else value


Time = Annotated[AwareDatetime, BeforeValidator(time_of)]
BYTES_PER_MBIT = 1e6 / 8


class ProblemDetails(View):
    """The body of every error, `application/problem+json`."""

    type: str = Field(default="about:blank", description="Names the kind of problem.")
    title: str = Field(description="The kind in words.")
    status: int = Field(description="HTTP status.")
    detail: str = Field(description="What is wrong this time.")
    instance: str | None = Field(default=None, description="Path of the request.")
    errors: list[Violation] = Field(default_factory=list)
    """Every broken rule of an invalid input."""


class HealthView(View):
    """Whether the service is there, or ready: what it is not is a problem document."""

    status: str = Field(default="ok", description="`ok`.")
    version: str = Field(description="Of the service.")


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
"""Of a whole number: 5.0 is one, as JSON Schema has it. It applies after the bounds."""

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
