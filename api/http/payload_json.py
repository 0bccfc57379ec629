"""Payloads in JSON bodies: bytes and arrays marked, everything else as it is.

{"$bytes": BASE64}
{"$array": {"dtype": "<f4", "shape": [2, 3], "base64": BASE64}}
{"$dict": [[KEY, VALUE], ...]}      a dict with a key that starts with "$"

JSON has no NaN and no infinities: a float that is one is refused, inside an array it
is fine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pybase64
from pydantic import JsonValue

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.payload import NO_TEXT, Payload

_DEEPEST = 64
_MOST_DIMENSIONS = 32
_MOST_ELEMENTS = 2**40
_PLAIN_KINDS = "biufcSU"  # numbers, truth values, fixed-size text: no objects


def payload_to_json(payload: object, depth: int = 0) -> JsonValue:
    """Give the JSON form of a payload that lies so deep in another.

    InvalidInput if it is none, or has a number that JSON has no form for.
    """
    _require_shallow("output", depth)
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
    if isinstance(payload, list):
        return [payload_to_json(item, depth + 1) for item in payload]
    if isinstance(payload, dict):
        items = [(key, payload_to_json(value, depth + 1)) for key, value in payload.items()]
        if any(str(key).startswith("$") for key, _ in items):
            return {"$dict": [[key, value] for key, value in items]}
        return dict(items)
    raise InvalidInput.of("output", "must be a payload", type(payload).__name__)


def _array_to_json(array: npt.NDArray[np.generic]) -> JsonValue:
    if array.dtype.kind not in _PLAIN_KINDS:
        raise InvalidInput.of("output", "must have arrays of numbers or text", str(array.dtype))
    data = np.ascontiguousarray(array).tobytes()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "base64": _text(data)}


def _text(data: bytes) -> str:
    return pybase64.b64encode_as_string(data)


def payload_from_json(tree: object, field: str = "input", depth: int = 0) -> Payload:
    """Give the payload of a JSON form; arrays own their memory and can be written.

    InvalidInput if a mark is malformed, an array is torn, or it nests too deep.
    """
    _require_shallow(field, depth)
    if isinstance(tree, str):
        return _utf8(tree, field)
    if tree is None or isinstance(tree, bool | int | float):
        return tree
    if isinstance(tree, list):
        return [payload_from_json(item, f"{field}[{i}]", depth + 1) for i, item in enumerate(tree)]
    if not isinstance(tree, dict):
        raise InvalidInput.of(field, "must be made of JSON values", type(tree).__name__)
    marks = [key for key in tree if key.startswith("$")]
    if not marks:
        return {
            _utf8(key, f"key of {field}"): payload_from_json(v, f"{field}.{key}", depth + 1)
            for key, v in tree.items()
        }
    if len(tree) > 1 or marks[0] not in _MARKS:
        raise InvalidInput.of(field, f"must have one of {', '.join(_MARKS)} alone", list(tree))
    return _MARKS[marks[0]](tree[marks[0]], f"{field}.{marks[0]}", depth)


def _array_from_json(tree: object, field: str, _: int) -> Payload:
    if not isinstance(tree, dict) or set(tree) != {"dtype", "shape", "base64"}:
        raise InvalidInput.of(field, "must have exactly dtype, shape and base64", tree)
    dtype = _dtype(tree["dtype"], f"{field}.dtype")
    shape = _shape(tree["shape"], f"{field}.shape")
    data = _data(tree["base64"], f"{field}.base64")
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        rule = f"must hold the {expected} bytes of dtype and shape"
        raise InvalidInput.of(f"{field}.base64", rule, f"{len(data)} bytes")
    return np.frombuffer(data, dtype=dtype).reshape(shape)


def _dict_from_json(tree: object, field: str, depth: int) -> Payload:
    pairs = tree if isinstance(tree, list) else [None]
    found: dict[str, Payload] = {}
    for pair in pairs:
        if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
            raise InvalidInput.of(field, "must be a list of [text, value]", pair)
        name = _utf8(pair[0], f"key of {field}")
        found[name] = payload_from_json(pair[1], f"{field}.{name}", depth + 1)
    return found


def _dtype(name: object, field: str) -> np.dtype[np.generic]:
    try:
        dtype = np.dtype(str(name))
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


def _bytes(text: object, field: str, _: int) -> bytes:
    return bytes(_data(text, field))


def _data(text: object, field: str) -> bytearray:
    try:
        given = text if isinstance(text, str) else "?"
        return pybase64.b64decode_as_bytearray(given, validate=True)
    except ValueError as error:
        raise InvalidInput.of(field, "must be base64", text) from error


def _utf8(text: str, field: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput.of(field, NO_TEXT, text) from error
    return text


def _require_shallow(field: str, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidInput.of(field[:80], f"must nest at most {_DEEPEST} deep", "deeper")


_MARKS: Mapping[str, Callable[[object, str, int], Payload]] = {
    "$bytes": _bytes,
    "$array": _array_from_json,
    "$dict": _dict_from_json,
}
