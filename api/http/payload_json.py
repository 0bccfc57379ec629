"""Payloads in JSON bodies: bytes and arrays marked, everything else as it is.

{"$bytes": BASE64}
{"$array": {"dtype": "<f4", "shape": [2, 3], "base64": BASE64}}
{"$dict": [[KEY, VALUE], ...]}      a dict with a key that starts with "$"

JSON has no NaN and no infinities: a float that is one is refused, inside an array it
is fine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pybase64
from pydantic import JsonValue

from circinus.pipelines.errors import InvalidInput, Violation
from circinus.pipelines.model.payload import AS_IT_IS, Payload

Key = TypeVar("Key", int, str)
_JSON_AS_IT_IS = AS_IT_IS - {float}  # which may be none of JSON's
_LONGEST_NAME = 40  # of a key in a place of an error
_DEEPEST = 64
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 2**40
_PLAIN_KINDS = "biufcSU"  # numbers, truth values, fixed-size text: no objects


def payload_to_json(payload: object, depth: int = 0) -> JsonValue:
    """Return the JSON form of a payload that lies so deep in another.

    InvalidInput if it is none, or has a number that JSON has no form for.
    """
    if isinstance(payload, list | dict):
        _require_shallow("output", depth)
    if isinstance(payload, list):
        return [
            item if type(item) in _JSON_AS_IT_IS else payload_to_json(item, depth + 1)
            for item in payload
        ]
    if isinstance(payload, dict):
        items = [(key, payload_to_json(value, depth + 1)) for key, value in payload.items()]
        if any(str(key).startswith("$") for key, _ in items):
            return {"$dict": [[key, value] for key, value in items]}
        return dict(items)
    if isinstance(payload, np.generic):
        return payload_to_json(payload.item(), depth)
    if isinstance(payload, float) and not math.isfinite(payload):
        raise InvalidInput.of("output", "must be finite to be written as JSON", payload)
    if payload is None or isinstance(payload, bool | int | float | str):
        return payload
    if isinstance(payload, bytes):
        return {"$bytes": _text(payload)}
    if isinstance(payload, np.ndarray):
        return {"$array": _array_to_json(payload)}
    raise InvalidInput.of("output", "must be a payload", type(payload).__name__)


def _array_to_json(array: npt.NDArray[np.generic]) -> JsonValue:
    if array.dtype.kind not in _PLAIN_KINDS:
        raise InvalidInput.of("output", "must have arrays of numbers or text", str(array.dtype))
    data = np.ascontiguousarray(array).tobytes()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "base64": _text(data)}


def _text(data: bytes) -> str:
    return pybase64.b64encode_as_string(data)


def payload_from_json(tree: object, field: str = "input") -> Payload:
    """Return the payload of a JSON form read by `read_json`; arrays own their memory.

    InvalidInput if a mark is malformed, an array is torn, or it nests too deep.
    """
    try:
        return _restored(tree, 0)
    except InvalidInput as error:
        raise _within(field, error) from error


def _restored(tree: object, depth: int) -> Payload:
    """Return the payload; an error has the place from here on down."""
    if isinstance(tree, list):
        return [item for _, item in _each(enumerate(tree), "[{}]", depth)]
    if isinstance(tree, dict):
        if marks := [key for key in tree if key.startswith("$")]:
            return _marked(tree, marks[0], depth)
        return dict(_each(tree.items(), ".{}", depth))
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise InvalidInput.of("", "must be made of JSON values", type(tree).__name__)


def _each(parts: Iterable[tuple[Key, Any]], place: str, depth: int) -> list[tuple[Key, Payload]]:
    """Return each part with its payload; what stands for itself costs no call."""
    _require_shallow("", depth)
    made: list[tuple[Key, Payload]] = []
    try:
        for key, part in parts:
            made.append((key, part if type(part) in AS_IT_IS else _restored(part, depth + 1)))
    except InvalidInput as error:
        raise _within(place.format(str(key)[:_LONGEST_NAME]), error) from error
    return made


def _marked(fields: Mapping[str, object], mark: str, depth: int) -> Payload:
    if len(fields) > 1 or mark not in _MARKS:
        raise InvalidInput.of("", f"must have one of {', '.join(_MARKS)} alone", [*fields])
    try:
        return _MARKS[mark](fields[mark], depth)
    except InvalidInput as error:
        raise _within(f".{mark}", error) from error


def _within(place: str, error: InvalidInput) -> InvalidInput:
    """Return an error about what lies at a place: only who is refused pays for the words."""
    return InvalidInput(
        [Violation(f"{place}{f.field}", f.rule, f.value) for f in error.violations]
    )


def _array_from_json(tree: object, _: int) -> Payload:
    if not isinstance(tree, dict) or set(tree) != {"dtype", "shape", "base64"}:
        raise InvalidInput.of("", "must have exactly dtype, shape and base64", tree)
    dtype = _dtype(tree["dtype"], ".dtype")
    shape = _shape(tree["shape"], ".shape")
    data = _data(tree["base64"], ".base64")
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        rule = f"must hold the {expected} bytes of dtype and shape"
        raise InvalidInput.of(".base64", rule, f"{len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _dict_from_json(tree: object, depth: int) -> Payload:
    pairs: list[Any] = tree if isinstance(tree, list) else [tree]
    for i, pair in enumerate(pairs):
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidInput.of(f"[{i}]", "must be a list of [text, value]", pair)
    return dict(_each(((name, value) for name, value in pairs), ".{}", depth))


def _dtype(name: object, field: str) -> np.dtype[np.generic]:
    try:
        text = name if isinstance(name, str) and len(name) <= _LONGEST_NAME else ""  # is none
        dtype = np.dtype(text)
    except (TypeError, ValueError, SyntaxError) as error:
        raise InvalidInput.of(field, "must name a dtype of numbers or text", name) from error
    if dtype.kind not in _PLAIN_KINDS or dtype.itemsize == 0 or dtype.fields is not None:
        raise InvalidInput.of(field, "must name a dtype of numbers or text", name)
    return dtype


def _shape(shape: object, field: str) -> tuple[int, ...]:
    if isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS:
        sizes = tuple(n for n in shape if type(n) is int and n >= 0)
        # Also where one is 0 and nothing is held: numpy counts the others.
        largest = math.prod(n for n in sizes if n > 0)
        if len(sizes) == len(shape) and largest <= _MOST_ELEMENTS:
            return sizes
    rule = (
        f"must be at most {_MOST_DIMENSIONS} whole numbers >= 0, "
        f"of which those > 0 make at most {_MOST_ELEMENTS}"
    )
    raise InvalidInput.of(field, rule, shape)


def _bytes(text: object, _: int) -> bytes:
    return bytes(_data(text, ""))


def _data(text: object, field: str) -> bytearray:
    try:
        encoded = text if isinstance(text, str) else "?"
        return pybase64.b64decode_as_bytearray(encoded, validate=True)
    except ValueError as error:
        raise InvalidInput.of(field, "must be base64", text) from error


def _require_shallow(field: str, depth: int) -> None:
    if depth >= _DEEPEST:
        raise InvalidInput.of(field, f"must nest at most {_DEEPEST} deep", "deeper")


_MARKS: Mapping[str, Callable[[object, int], Payload]] = {
    "$bytes": _bytes,
    "$array": _array_from_json,
    "$dict": _dict_from_json,
}
