"""A tiny network in the format of ONNX, written by hand: no package that writes it is needed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_FLOATS, _INTEGERS = 1, 7  # types of a tensor's elements
_CELL = 32  # pixels of both sides of a cell


def write_yolo(path: Path, box: Sequence[float], n_classes: int, seed: int = 1) -> None:
    """Write a network that reads (1, 3, h, w) and says (1, 4 + n_classes, cells) of it.

    Each cell has nearly the same box (centre, width, height), and scores around 0.5 that random
    weights make of its pixels.
    """
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.02, (4 + n_classes, 3, _CELL, _CELL)).astype(np.float32)
    weights[:4] *= 1e-3
    bias = np.array([*box, *[0.5] * n_classes], np.float32)
    graph = b"".join(
        [
            _node(
                "Conv", ["x", "w", "b"], "y", {"kernel_shape": [_CELL] * 2, "strides": [_CELL] * 2}
            ),
            _node("Reshape", ["y", "shape"], "out", {}),
            _text(2, "tiny"),
            _part(5, _tensor("w", weights)),
            _part(5, _tensor("b", bias)),
            _part(5, _tensor("shape", np.array([1, 4 + n_classes, -1]))),
            _part(11, _port("x", [1, 3, None, None])),
            _part(12, _port("out", [1, 4 + n_classes, None])),
        ]
    )
    path.write_bytes(_number(1, 8) + _part(7, graph) + _part(8, _text(1, "") + _number(2, 13)))


def _node(kind: str, inputs: Sequence[str], output: str, settings: dict[str, list[int]]) -> bytes:
    attributes = [
        _part(5, _text(1, name) + b"".join(_number(8, v) for v in values) + _number(20, 7))
        for name, values in settings.items()
    ]
    names = b"".join(_text(1, name) for name in inputs) + _text(2, output)
    return _part(1, names + _text(3, output) + _text(4, kind) + b"".join(attributes))


def _tensor(name: str, values: np.ndarray[Any, Any]) -> bytes:
    kind = _FLOATS if values.dtype == np.float32 else _INTEGERS
    dims = b"".join(_number(1, side) for side in values.shape)
    return dims + _number(2, kind) + _text(8, name) + _part(9, values.tobytes())


def _port(name: str, shape: Sequence[int | None]) -> bytes:
    dims = [
        _part(1, _text(2, f"n{i}") if side is None else _number(1, side))
        for i, side in enumerate(shape)
    ]
    tensor = _number(1, _FLOATS) + _part(2, b"".join(dims))
    return _text(1, name) + _part(2, _part(1, tensor))


# --- Fields of a message -------------------------------------------------------------


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _text(field: int, value: str) -> bytes:
    return _part(field, value.encode())


def _part(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    digits = []
    while value > 127:
        digits.append(value & 127 | 128)
        value >>= 7
    return struct.pack(f"{len(digits) + 1}B", *digits, value)
