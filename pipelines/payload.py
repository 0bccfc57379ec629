"""What operators hand to each other, and its form on the wire and on disk.

A payload is JSON with bytes and numpy arrays inside. The form is one JSON header
and the binary parts behind it, so nothing is ever unpickled: a payload from
elsewhere can be wrong but cannot run code.

    4 bytes   length H of the header, big-endian
    H bytes   JSON; {"$bytes": n} and {"$array": [dtype, shape]} stand for binary parts, and
              {"$dict": [[key, value], ...]} for a dict with a key that starts with "$"
    rest      the binary parts, in the order in which the header names them
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from hashlib import blake2b
from math import prod
from typing import TypeAlias, Union

import numpy as np
import numpy.typing as npt

from pipelines.errors import InvalidInput

Payload: TypeAlias = Union[
    bool,
    int,
    float,
    str,
    bytes,
    npt.NDArray[np.generic],
    "list[Payload]",
    "dict[str, Payload]",
    None,
]

_HEADER = struct.Struct(">I")
_PLAIN_KINDS = "biufcSU"  # numbers, truth values, fixed-size text: no objects
_DEEPEST = 64


def payload_bytes(payload: Payload) -> int:
    """Give the size of a payload in bytes, as links are charged for it.

    The binary parts count with their size, the rest with its JSON text; the few
    bytes of framing are left out.

    Raises:
        InvalidInput: If the value is no payload.
    """
    if isinstance(payload, bytes):
        return len(payload)
    if isinstance(payload, np.ndarray):  # asked after every run of an operator: no text for it
        _check_kind(payload)
        return payload.nbytes
    parts: list[bytes | npt.NDArray[np.generic]] = []
    text = _to_text(_to_json(payload, parts, 0))
    binary = sum(part.nbytes if isinstance(part, np.ndarray) else len(part) for part in parts)
    return binary + len(text)


def encode(payload: Payload) -> bytes:
    """Give the bytes of a payload.

    Raises:
        InvalidInput: If the value is no payload.
    """
    parts: list[bytes | npt.NDArray[np.generic]] = []
    header = _to_text(_to_json(payload, parts, 0))
    return b"".join([_HEADER.pack(len(header)), header, *map(_buffer, parts)])


def decode(data: bytes) -> Payload:
    """Give the payload of what `encode` made; arrays own their memory and can be written.

    Raises:
        InvalidInput: If the bytes are torn, too long, or never were a payload.
    """
    try:
        (length,) = _HEADER.unpack_from(data)
        tree = json.loads(data[_HEADER.size : _HEADER.size + length])
        reader = _Reader(data, _HEADER.size + length)
        payload = _from_json(tree, reader)
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        raise InvalidInput.of(
            "payload", f"must be an encoded payload ({error})", data[:32]
        ) from error
    if reader.position != len(data):
        raise InvalidInput.of("payload", "must end with its last part", f"{len(data)} bytes")
    return payload


def content_hash(payload: Payload) -> str:
    """Give a hash of the content: equal for equal payloads, in every process."""
    return blake2b(encode(payload), digest_size=16).hexdigest()


def _buffer(part: bytes | npt.NDArray[np.generic]) -> bytes | memoryview:
    """Give what `join` copies from: a clip of megabytes is copied once."""
    if isinstance(part, bytes):
        return part
    return part.reshape(-1).view(np.uint8).data if part.nbytes else b""


def _to_text(tree: object) -> bytes:
    # NaN and infinities are numbers here, as in Python's JSON; keys keep their order.
    return json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()


def _to_json(payload: object, parts: list[bytes | npt.NDArray[np.generic]], depth: int) -> object:
    if depth > _DEEPEST:
        raise InvalidInput.of(
            "payload", f"must nest at most {_DEEPEST} deep", type(payload).__name__
        )
    if payload is None or isinstance(payload, bool | int | float | str):
        return payload
    if isinstance(payload, np.generic):  # a number out of an array
        return _to_json(payload.item(), parts, depth)
    if isinstance(payload, bytes):
        parts.append(payload)
        return {"$bytes": len(payload)}
    if isinstance(payload, np.ndarray):
        return _array_to_json(payload, parts)
    if isinstance(payload, list):
        return [_to_json(item, parts, depth + 1) for item in payload]
    if isinstance(payload, dict):
        return _dict_to_json(payload, parts, depth)
    rule = "must be None, truth value, number, text, bytes, numpy array, list or dict"
    raise InvalidInput.of("payload", rule, type(payload).__name__)


def _array_to_json(
    array: npt.NDArray[np.generic], parts: list[bytes | npt.NDArray[np.generic]]
) -> object:
    _check_kind(array)
    parts.append(np.ascontiguousarray(array))
    return {"$array": [array.dtype.str, list(array.shape)]}


def _check_kind(array: npt.NDArray[np.generic]) -> None:
    if array.dtype.kind not in _PLAIN_KINDS:
        raise InvalidInput.of(
            "payload", "must have arrays of numbers, truth values or text", str(array.dtype)
        )


def _dict_to_json(
    payload: dict[object, object], parts: list[bytes | npt.NDArray[np.generic]], depth: int
) -> object:
    for key in payload:
        if not isinstance(key, str):
            raise InvalidInput.of("payload", "must have text as keys", key)
    items = [(key, _to_json(value, parts, depth + 1)) for key, value in payload.items()]
    if any(str(key).startswith("$") for key, _ in items):
        return {"$dict": [[key, value] for key, value in items]}
    return {str(key): value for key, value in items}


class _Reader:
    """Hands out the binary parts one after the other."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"a part of {size} bytes is torn")
        part = memoryview(self.data)[self.position : end]
        self.position = end
        return part


def _from_json(tree: object, reader: _Reader) -> Payload:
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    if isinstance(tree, list):
        return [_from_json(item, reader) for item in tree]
    if not isinstance(tree, dict):
        raise TypeError(f"unexpected {type(tree).__name__}")
    for mark, read in _MARKS.items():
        if mark in tree:
            return read(tree[mark], reader)
    return {key: _from_json(value, reader) for key, value in tree.items()}


def _read_array(shape_and_type: list[object], reader: _Reader) -> Payload:
    text, shape = shape_and_type
    dtype = np.dtype(str(text))
    if dtype.kind not in _PLAIN_KINDS or not isinstance(shape, list):
        raise ValueError(f"arrays of {text} are refused")
    data = bytearray(reader.take(prod(shape) * dtype.itemsize))  # owned, so that it can be written
    return np.frombuffer(data, dtype=dtype).reshape(shape)


_MARKS: dict[str, Callable[..., Payload]] = {
    "$bytes": lambda size, reader: bytes(reader.take(size)),
    "$array": _read_array,
    "$dict": lambda items, reader: {str(k): _from_json(v, reader) for k, v in items},
}
