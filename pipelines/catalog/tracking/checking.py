"""What operators are given, checked once, on the way in; the functions behind trust it."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog.tracking.handed_over import (
    FEWEST_FRAMES,
    LARGEST_CLIP,
    LONGEST_SIDE,
    LOOK,
    MOST_BOXES,
    MOST_FRAMES,
    MOST_TRACKS,
    SHORTEST_SIDE,
    BoxArray,
    Detections,
    Footage,
    UInt8Array,
)
from pipelines.errors import InvalidInput
from pipelines.payload import Payload

Number = TypeVar("Number", np.int16, np.uint8)


def checked_clip(value: Payload) -> UInt8Array:  # (n_frames, height, width)
    """The value as a clip.

    Raises:
        InvalidInput: It is no uint8 array of three axes, or one of them is too short or too long,
            or it is larger than `LARGEST_CLIP`.
    """
    limits = ((FEWEST_FRAMES, MOST_FRAMES), *((SHORTEST_SIDE, LONGEST_SIDE),) * 2)
    if (
        isinstance(value, np.ndarray)
        and value.dtype == np.uint8
        and value.ndim == len(limits)
        and all(low <= n <= high for n, (low, high) in zip(value.shape, limits, strict=True))
        and value.nbytes <= LARGEST_CLIP
    ):
        return value.view(np.uint8)
    rule = (
        f"must be a uint8 array of {FEWEST_FRAMES} to {MOST_FRAMES} grey frames, each side of "
        f"{SHORTEST_SIDE} to {LONGEST_SIDE} pixels, at most {LARGEST_CLIP} bytes in all"
    )
    raise InvalidInput.of("clip", rule, _described(value))


def checked_footage(value: Payload) -> Footage:
    """The value as some frames of a clip.

    Raises:
        InvalidInput: It is not what `Footage.payload` gives.
    """
    parts = value if isinstance(value, dict) else {}
    frames, scale = parts.get("frames"), parts.get("scale")
    stride, length = _stride_and_length("footage", parts)
    if not (isinstance(frames, np.ndarray) and frames.dtype == np.uint8 and frames.ndim == 3):
        raise InvalidInput.of("footage.frames", "must be uint8 frames", _described(frames))
    expected = -(-length // stride)
    sides = frames.shape[1:]
    if not (len(frames) == expected and min(sides) >= 4 and frames.nbytes <= LARGEST_CLIP):
        rule = f"must be {expected} frames of 4 x 4 pixels or more, at most {LARGEST_CLIP} bytes"
        raise InvalidInput.of("footage.frames", rule, _described(frames))
    largest = 2 * LONGEST_SIDE / max(sides)  # twice: heights are rounded
    if not (isinstance(scale, float | int) and 1 <= scale <= largest):
        raise InvalidInput.of("footage.scale", f"must be in [1, {largest:g}]", scale)
    return Footage(frames=frames.view(np.uint8), stride=stride, length=length, scale=float(scale))


def checked_detections(value: Payload) -> Detections:
    """The value as what a detector found.

    Raises:
        InvalidInput: It is not what `Detections.payload` gives.
    """
    parts = value if isinstance(value, dict) else {}
    stride, length = _stride_and_length("detections", parts)
    boxes = _rows("detections.boxes", parts.get("boxes"), np.int16, 5, length * MOST_BOXES)
    looks = _rows("detections.looks", parts.get("looks"), np.uint8, LOOK, length * MOST_BOXES)
    if len(boxes) != len(looks):
        raise InvalidInput.of("detections.looks", f"must have {len(boxes)} rows", len(looks))
    if np.any(boxes[:, 3:] < 1) or not np.isin(boxes[:, 0], np.arange(0, length, stride)).all():
        rule = "must have sizes >= 1 and times of searched frames"
        raise InvalidInput.of("detections.boxes", rule, _described(boxes))
    return Detections(boxes=boxes, looks=looks, stride=stride, length=length)


def checked_tracks(field: str, value: Payload) -> BoxArray:  # (n, 6)
    """The value as tracks: rows of frame, identity, x, y, w, h.

    Raises:
        InvalidInput: It is not an int16 array of such rows, or has a size below 1.
    """
    rows = _rows(field, value, np.int16, 6, MOST_FRAMES * MOST_TRACKS)
    if np.any(rows[:, 4:] < 1):
        raise InvalidInput.of(field, "must have sizes >= 1", _described(rows))
    return rows


def _stride_and_length(field: str, parts: dict[str, Payload]) -> tuple[int, int]:
    stride, length = parts.get("stride"), parts.get("length")
    if isinstance(stride, int) and isinstance(length, int) and 1 <= stride < length <= MOST_FRAMES:
        return stride, length
    rule = f"must be a dict with 1 <= stride < length <= {MOST_FRAMES}"
    raise InvalidInput.of(field, rule, {name: _described(part) for name, part in parts.items()})


def _rows(
    field: str, value: Payload, dtype: type[Number], columns: int, most: int
) -> NDArray[Number]:
    if (
        isinstance(value, np.ndarray)
        and value.dtype == dtype
        and value.ndim == 2
        and value.shape[1] == columns
        and len(value) <= most
    ):
        return value.view(dtype)
    rule = f"must be a {np.dtype(dtype)} array of at most {most} rows of {columns}"
    raise InvalidInput.of(field, rule, _described(value))


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return type(value).__name__
