"""The JSON forms in which plans, results, progress and schedules are stored.

One rule for all: a dataclass is an object of its fields, a named tuple and a tuple
are lists, an enumeration is its value, and a float that JSON has no number for is
the text `Infinity`, `-Infinity` or `NaN`. Reading builds the value anew, so every
check of `__post_init__` runs again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from functools import cache
from typing import TypeVar, cast

import numpy as np
from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from circinus.pipelines.errors import InvalidInput

Value = TypeVar("Value")


def to_document(value: object) -> dict[str, object]:
    """Return the JSON form of a frozen dataclass; InvalidInput if something inside has none."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        raise InvalidInput.of("document", "must be made of a dataclass", type(value).__name__)
    given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    try:
        text = to_json(given, inf_nan_mode="strings", fallback=_plain)
    except PydanticSerializationError as error:
        raise InvalidInput.of("document", "must be made of plain values", str(error)) from error
    return cast("dict[str, object]", from_json(text))


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(type(value).__name__)


def from_document(kind: type[Value], document: Mapping[str, object]) -> Value:
    """Return the value whose JSON form `to_document` made; InvalidInput if it breaks a rule."""
    try:
        return cast("Value", _adapter(cast("Hashable", kind)).validate_python(document))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, (kind.__name__, *first["loc"])))
        raise InvalidInput.of(field, f"must be valid ({first['msg']})", first["input"]) from error


@cache
def _adapter(kind: Hashable) -> TypeAdapter[object]:
    return TypeAdapter(cast("type[object]", kind))
