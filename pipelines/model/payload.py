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
from collections.abc import Mapping
from dataclasses import is_dataclass
from hashlib import blake2b
from math import prod
from typing import Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt

from circinus.pipelines.errors import InvalidInput

_Part: TypeAlias = bytes | npt.NDArray[np.generic]
Payload: TypeAlias = Union[
    bool, int, float, str, _Part, "list[Payload]", "dict[str, Payload]", None
]

NO_TEXT = "must have text that UTF-8 can hold, without lone surrogates"
_HEADER = struct.Struct(">I")
_PLAIN_KINDS = "biufcSU"  # numbers, truth values, fixed-size text: no objects
_DEEPEST = 64
_NOT_JSON = (b'"$', b"NaN", b"Infinity")
AS_IT_IS = frozenset({type(None), bool, int, float, str})
"""What stands for itself on the way, which saves a long list a call for each item."""


def payload_bytes(payload: Payload) -> int:
    """Return the size of a payload in bytes, as links are charged for it.

    The binary parts count with their size, the rest with its JSON text; the few bytes of framing
    are left out. InvalidInput if the value is no payload.
    """
    if isinstance(payload, bytes):
        return len(payload)
    if isinstance(payload, np.ndarray):  # asked after every run of an operator: no text for it
        _check_kind(payload)
        return payload.nbytes
    header, parts = _split(payload)
    return len(header) + sum(memoryview(part).nbytes for part in map(_buffer, parts))


def encoded(payload: Payload) -> tuple[bytes, int]:
    """Return `encode` and `payload_bytes` of a payload, which is looked through once."""
    data = encode(payload)
    whole = isinstance(payload, bytes | np.ndarray)
    return data, payload_bytes(payload) if whole else len(data) - _HEADER.size


def encode(payload: Payload) -> bytes:
    """Return the bytes of a payload; InvalidInput if the value is none."""
    header, parts = _split(payload)
    return b"".join([_HEADER.pack(len(header)), header, *map(_buffer, parts)])


def decode(data: bytes) -> Payload:
    """Return the payload, arrays writable; InvalidInput if bytes are torn, too long or none."""
    try:
        (length,) = _HEADER.unpack_from(data)
        reader = _Reader(data, _HEADER.size + length)
        header = data[_HEADER.size : reader.position]
        payload: Payload = json.loads(header, object_hook=reader.restored)
    except (struct.error, ValueError, TypeError, RecursionError) as error:
        rule = f"must be an encoded payload ({error})"
        raise InvalidInput.of("payload", rule, data[:32]) from error
    if reader.position != len(data):
        raise InvalidInput.of("payload", "must end with its last part", f"{len(data)} bytes")
    return payload


def plain_json(data: bytes) -> bytes | None:
    """Return the JSON text of an encoded payload, unread; None: it may be more than JSON.

    That is, it may have binary parts, marks or numbers that are not finite.
    """
    (length,) = _HEADER.unpack_from(data)
    text = data[_HEADER.size :]
    odd = len(text) != length or any(mark in text for mark in _NOT_JSON)
    return None if odd else text


def encoded_together(parts: Mapping[str, bytes]) -> bytes:
    """Return the encoded dict of encoded payloads, which are not read: headers, then parts."""
    ends = {name: _HEADER.size + _HEADER.unpack_from(data)[0] for name, data in parts.items()}
    marked = any(name.startswith("$") for name in parts)
    item = b"[%s,%s]" if marked else b"%s:%s"
    items = b",".join(
        item % (json.dumps(name).encode(), data[_HEADER.size : ends[name]])
        for name, data in parts.items()
    )
    header = (b'{"$dict":[%s]}' if marked else b"{%s}") % items
    binary = (data[ends[name] :] for name, data in parts.items())
    return b"".join([_HEADER.pack(len(header)), header, *binary])


def content_hash(payload: Payload) -> str:
    """Return a hash of the content: equal for equal payloads, in every process."""
    return blake2b(encode(payload), digest_size=16).hexdigest()


_REMEDIES = {
    "Tensor": ".numpy(force=True)",
    "EagerTensor": ".numpy()",
    "ArrayImpl": "numpy.asarray(it)",
    "Image": "numpy.asarray(it)",
    "DataFrame": '.to_dict("list")',
    "Series": ".to_list()",
    "BaseModel": '.model_dump(mode="json")',
    "Enum": ".value",
    "date": ".isoformat()",
    "time": ".isoformat()",
    "timedelta": ".total_seconds()",
    "set": "sorted(it)",
    "frozenset": "sorted(it)",
    "tuple": "list(it)",
    "generator": "list(it)",
    "Decimal": "str(it)",
    "UUID": "str(it)",
    "Path": "str(it)",
}
"""By the name of a class or of one that it is made of: libraries are not imported to be asked."""


def remedy(value: object) -> str:
    """Return what makes a payload of a value, to be added to a message; empty: not known."""
    if is_dataclass(value):
        return " (dataclasses.asdict(it) makes it one)"
    names = [kind.__name__ for kind in type(value).__mro__]
    made = next((_REMEDIES[name] for name in names if name in _REMEDIES), None)
    return f" ({made} makes it one)" if made else ""


def _split(payload: Payload) -> tuple[bytes, list[_Part]]:
    """Return the header and the binary parts."""
    parts: list[_Part] = []
    tree = _to_json(payload, parts, 0)
    # NaN and infinities are numbers here, as in Python's JSON; keys keep their order.
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode(), parts
    except UnicodeEncodeError as error:
        raise InvalidInput.of("payload", NO_TEXT, text[error.start : error.end]) from error


def _buffer(part: _Part) -> bytes | memoryview:
    """Return what `join` copies from: a clip of megabytes is copied once."""
    if isinstance(part, bytes):
        return part
    return part.reshape(-1).view(np.uint8).data if part.nbytes else b""


def _to_json(payload: object, parts: list[_Part], depth: int) -> object:
    if type(payload) in AS_IT_IS or isinstance(payload, bool | int | float | str):
        return payload
    if isinstance(payload, list | dict) and depth >= _DEEPEST:
        rule = f"must nest at most {_DEEPEST} deep"
        raise InvalidInput.of("payload", rule, type(payload).__name__)
    if isinstance(payload, list):
        return [
            item if type(item) in AS_IT_IS else _to_json(item, parts, depth + 1)
            for item in payload
        ]
    if isinstance(payload, np.generic):  # a number out of an array
        return _to_json(payload.item(), parts, depth)
    if isinstance(payload, bytes):
        parts.append(payload)
        return {"$bytes": len(payload)}
    if isinstance(payload, np.ndarray):
        _check_kind(payload)
        parts.append(np.ascontiguousarray(payload))
        return {"$array": [payload.dtype.str, list(payload.shape)]}
    if isinstance(payload, dict):
        return _dict_to_json(payload, parts, depth)
    rule = "must be None, truth value, number, text, bytes, numpy array, list or dict"
    raise InvalidInput.of("payload", f"{rule}{remedy(payload)}", type(payload).__name__)


def _dict_to_json(payload: dict[object, object], parts: list[_Part], depth: int) -> object:
    for key in payload:
        if not isinstance(key, str):
            raise InvalidInput.of("payload", "must have text as keys: {str(key): value ...}", key)
    items = {str(key): _to_json(value, parts, depth + 1) for key, value in payload.items()}
    marked = any(key.startswith("$") for key in items)
    return {"$dict": [[key, value] for key, value in items.items()]} if marked else items


def _check_kind(array: npt.NDArray[np.generic]) -> None:
    if array.dtype.kind not in _PLAIN_KINDS:
        rule = "must have arrays of numbers, truth values or text"
        raise InvalidInput.of("payload", rule, str(array.dtype))


class _Reader:
    """Hands out the binary parts one after the other."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def restored(self, fields: dict[str, Any]) -> Payload:
        """Return what a JSON object stands for; its own values are restored already."""
        if "$bytes" in fields:
            return bytes(self._take(fields["$bytes"]))
        if "$array" in fields:
            return self._array(*fields["$array"])
        if "$dict" in fields:
            return {str(key): value for key, value in fields["$dict"]}
        return fields

    def _array(self, kind: str, shape: list[int]) -> Payload:
        dtype = np.dtype(str(kind))
        if dtype.kind not in _PLAIN_KINDS or not isinstance(shape, list):
            raise ValueError(f"arrays of {kind} are refused")
        # Owned, so that it can be written.
        data = bytearray(self._take(prod(shape) * dtype.itemsize))
        return np.frombuffer(data, dtype=dtype).reshape(shape)

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"a part of {size} bytes is torn")
        part = memoryview(self.data)[self.position : end]
        self.position = end
        return part
