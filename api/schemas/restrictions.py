"""What a query does not leave to the planner, and its own device, as files and bodies write it."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from api.schemas.base import Input
from pipelines.device import DeviceProfile
from pipelines.errors import Fault, InvalidInput
from pipelines.restrictions import Choice, Restrictions, Stays

MOST_VALUES = 1000
LONGEST_VALUE = 1000
_BYTES_PER_MBIT = 1e6 / 8


def _knob_value(value: object) -> object:
    """Refuse what is no knob value, in one fault instead of one per type that it could be."""
    short = isinstance(value, str) and len(value) <= LONGEST_VALUE
    finite = isinstance(value, int | float) and -(2**63) <= value < 2**63
    if not (short or finite):
        raise InvalidInput.of("", "must be text, a finite number or a truth value", value)
    return value


KnobInput = Annotated[
    StrictBool | StrictInt | StrictFloat | StrictStr, BeforeValidator(_knob_value)
]
Name = Annotated[str, Field(min_length=1, max_length=63)]
_EITHER: dict[str, Any] = {"anyOf": [{"required": ["only"]}, {"required": ["never"]}]}


class _Told(Input):
    model_config = ConfigDict(json_schema_extra=_EITHER)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise InvalidInput([Fault("", "must say only or never", "{}")])
        return self


class TierChoice(_Told):
    """The tiers that an operator may run on."""

    only: Annotated[list[Name], Field(min_length=1, max_length=MOST_VALUES)] | None = None
    """One of these; a single one pins the operator."""
    never: list[Name] = Field(default_factory=list, max_length=MOST_VALUES)
    """None of these."""


class KnobChoice(_Told):
    """The values that a knob may have."""

    only: Annotated[list[KnobInput], Field(min_length=1, max_length=MOST_VALUES)] | None = None
    """One of these; a single one pins the knob."""
    never: list[KnobInput] = Field(default_factory=list, max_length=MOST_VALUES)
    """None of these."""


class RestrictionsRequest(Input):
    """What holds in every plan."""

    tiers: dict[Name, TierChoice] = Field(default_factory=dict, max_length=MOST_VALUES)
    """Operator -> where it may run."""
    knobs: dict[Name, Annotated[dict[Name, KnobChoice], Field(max_length=MOST_VALUES)]] = Field(
        default_factory=dict, max_length=MOST_VALUES
    )
    """Operator -> knob -> which values it may have."""
    stays_on_device: Stays = Field(default=Stays.NOTHING, strict=False)
    """What must not leave the tier where requests start: nothing, the input (operators that take
    it run there), or everything (all operators do)."""


class DeviceRequest(Input):
    """What the query's own device is like; what is left out is as the infrastructure says."""

    speed_factor: Annotated[float, Field(gt=0)] | None = None
    """How many times as fast as the reference machine."""
    bandwidth_mbit_per_s: Annotated[float, Field(gt=0)] | None = None
    """Of its links."""
    delay_s: Annotated[float, Field(ge=0)] | None = None
    """Of its links."""


def to_restrictions(request: RestrictionsRequest) -> Restrictions:
    """Give the restrictions that a request asks for.

    Raises:
        InvalidInput: If a value breaks a rule that the schema does not state.
    """
    return Restrictions(
        tiers={name: _choice(choice) for name, choice in request.tiers.items()},
        knobs={
            operator: {name: _choice(choice) for name, choice in knobs.items()}
            for operator, knobs in request.knobs.items()
        },
        stays_on_device=request.stays_on_device,
    )


def to_device(request: DeviceRequest | None) -> DeviceProfile | None:
    """Give the device that a request tells of; None: none."""
    if request is None:
        return None
    rate = request.bandwidth_mbit_per_s
    return DeviceProfile(
        speed_factor=request.speed_factor,
        bandwidth_bytes_per_s=None if rate is None else rate * _BYTES_PER_MBIT,
        delay_s=request.delay_s,
    )


def _choice(choice: TierChoice | KnobChoice) -> Choice:
    only = None if choice.only is None else tuple(choice.only)
    return Choice(only=only, never=tuple(choice.never))
