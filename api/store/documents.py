"""The JSON forms in which plans, results, progress and schedules are stored.

One rule for all: a dataclass is an object of its fields, a named tuple and a tuple
are lists, an enumeration is its value, and a float that JSON has no number for is
the text `Infinity`, `-Infinity` or `NaN`. Reading builds the value anew, so every
check of `__post_init__` runs again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import TypeVar, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError

from circinus.pipelines.errors import InvalidInput

Value = TypeVar("Value")


def to_document(value: object) -> dict[str, object]:
    """Give the JSON form of a frozen dataclass.

    Raises:
        InvalidInput: If something inside has no JSON form.
    """
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise InvalidInput.of("document", "must be made of a dataclass", type(value).__name__)
    return {
        field.name: _plain(getattr(value, field.name))
        for field in dataclasses.fields(value)
        if field.init
    }


def from_document(kind: type[Value], document: Mapping[str, object]) -> Value:
    """Give the value whose JSON form `to_document` made.

    Raises:
        InvalidInput: If it is the form of another kind, or breaks a rule of this one.
    """
    try:
        return cast("Value", _adapter(cast("Hashable", kind)).validate_python(document))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, (kind.__name__, *first["loc"])))
        raise InvalidInput.of(field, f"must be valid ({first['msg']})", first["input"]) from error


@cache
def _adapter(kind: Hashable) -> TypeAdapter[object]:
    return TypeAdapter(cast("type[object]", kind))


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_document(value)
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    raise InvalidInput.of("document", "must be made of plain values", type(value).__name__)
