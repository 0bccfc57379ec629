"""What the operators hand to each other, checked on the way in.

Boxes are (x, y, w, h) in pixels of the clip's own frames, and times are numbers of the clip's own
frames, whatever was left out or shrunk on the way; so `stride`, `scale` and `length` travel along.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import Number, checked_array, described
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload

FRAMES, HEIGHT, WIDTH = 48, 270, 480  # shape of the clips that the pipeline's own examples have
MARGIN = 28  # pixels of their scenes on each side of the frame, for the camera to move in
FEWEST_FRAMES, MOST_FRAMES = 8, 512
SHORTEST_SIDE, LONGEST_SIDE = 32, 2048
LARGEST_CLIP = 32 * 2**20
"""Bytes, five times what the examples have: a larger clip would hold a worker for seconds."""
MOST_BOXES = 40
"""Boxes per frame that a detector gives; it never hands over more rows than this per frame."""
MOST_TRACKS = 1024
"""Tracks per frame that are scored: more than `MOST_BOXES` can leave, with those that wait."""
LOOK = 8  # bins of the grey histogram that tells what a box looks like

UInt8Array: TypeAlias = NDArray[np.uint8]
BoxArray: TypeAlias = NDArray[np.int16]
FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footage:
    """Some frames of a clip."""

    frames: UInt8Array  # uint8 (n_frames, height, width)
    stride: int  # frames of the clip per frame here, `>= 1`
    length: int  # frames of the clip
    scale: float = 1.0  # pixels of the clip per pixel here, `>= 1`


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """The boxes that were found in the frames of a clip."""

    boxes: BoxArray  # int16 (n, 5): frame of the clip, x, y, w, h; in the order of frames
    looks: UInt8Array  # uint8 (n, LOOK): grey histogram of each box, its sum about 255
    stride: int  # frames of the clip per frame that was searched, `>= 1`
    length: int  # frames of the clip


def checked_clip(value: Payload) -> UInt8Array:  # (n_frames, height, width)
    """The value as a clip; InvalidInput unless uint8, of three axes and within the limits."""
    limits = ((FEWEST_FRAMES, MOST_FRAMES), *((SHORTEST_SIDE, LONGEST_SIDE),) * 2)

    def fits(its: tuple[int, ...]) -> bool:
        within = (low <= n <= high for n, (low, high) in zip(its, limits, strict=False))
        return len(its) == len(limits) and all(within) and prod(its) <= LARGEST_CLIP

    rule = (
        f"a uint8 array of {FEWEST_FRAMES} to {MOST_FRAMES} grey frames, each side of "
        f"{SHORTEST_SIDE} to {LONGEST_SIDE} pixels, at most {LARGEST_CLIP} bytes in all"
    )
    return checked_array("clip", value, np.uint8, fits, rule)


def checked_footage(value: Payload) -> Footage:
    """The value as some frames of a clip; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    field, scale = "footage.frames", parts.get("scale")
    stride, length = _stride_and_length("footage", parts)
    given, rule = parts.get("frames"), "uint8 frames"
    frames = checked_array(field, given, np.uint8, lambda its: len(its) == 3, rule)
    expected = -(-length // stride)
    sides = frames.shape[1:]
    if not (len(frames) == expected and min(sides) >= 4 and frames.nbytes <= LARGEST_CLIP):
        rule = f"must be {expected} frames of 4 x 4 pixels or more, at most {LARGEST_CLIP} bytes"
        raise InvalidInput.of(field, rule, described(frames))
    largest = 2 * LONGEST_SIDE / max(sides)  # twice: heights are rounded
    if not (isinstance(scale, float | int) and 1 <= scale <= largest):
        raise InvalidInput.of("footage.scale", f"must be in [1, {largest:g}]", scale)
    return Footage(frames=frames, stride=stride, length=length, scale=float(scale))


def checked_detections(value: Payload) -> Detections:
    """The value as what a detector found; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    stride, length = _stride_and_length("detections", parts)
    boxes = _rows("detections.boxes", parts.get("boxes"), np.int16, 5, length * MOST_BOXES)
    looks = _rows("detections.looks", parts.get("looks"), np.uint8, LOOK, length * MOST_BOXES)
    if len(boxes) != len(looks):
        raise InvalidInput.of("detections.looks", f"must have {len(boxes)} rows", len(looks))
    if np.any(boxes[:, 3:] < 1) or not np.isin(boxes[:, 0], np.arange(0, length, stride)).all():
        rule = "must have sizes >= 1 and times of searched frames"
        raise InvalidInput.of("detections.boxes", rule, described(boxes))
    return Detections(boxes=boxes, looks=looks, stride=stride, length=length)


def checked_tracks(field: str, value: Payload) -> BoxArray:  # (n, 6)
    """The value as rows of frame, identity, x, y, w, h; InvalidInput unless int16, sizes >= 1."""
    rows = _rows(field, value, np.int16, 6, MOST_FRAMES * MOST_TRACKS)
    if np.any(rows[:, 4:] < 1):
        raise InvalidInput.of(field, "must have sizes >= 1", described(rows))
    return rows


def _stride_and_length(field: str, parts: dict[str, Payload]) -> tuple[int, int]:
    stride, length = parts.get("stride"), parts.get("length")
    if isinstance(stride, int) and isinstance(length, int) and 1 <= stride < length <= MOST_FRAMES:
        return stride, length
    rule = f"must be a dict with 1 <= stride < length <= {MOST_FRAMES}"
    raise InvalidInput.of(field, rule, {name: described(part) for name, part in parts.items()})


def _rows(
    field: str, value: Payload, dtype: type[Number], columns: int, most: int
) -> NDArray[Number]:
    rule = f"a {np.dtype(dtype)} array of at most {most} rows of {columns}"
    return checked_array(
        field, value, dtype, lambda its: its[1:] == (columns,) and its[0] <= most, rule
    )
