"""Shape of a clip and of what is cut from it.

One rule: lengths are pixels of the full-size frame; multiply by the scale of a frame before use.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import checked_array, described
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload

FRAMES = 12
HEIGHT = 64
WIDTH = 112
DIGITS = 3
CLASSES = 10

GLYPH = 26  # side of a shown digit
PITCH = 28  # distance between the centres of two neighbouring digits
WINDOW = 28  # side of the square that is cut out around a digit
CROP = 16  # side, in samples, of the crop that stands for a window at either scale

SCALES = (0.5, 1.0)
MAX_SHIFT = 12
"""Farthest that a locator looks for the display from the centre of the frame, per axis."""

UInt8Array: TypeAlias = NDArray[np.uint8]
FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]


def scale_of(frames: UInt8Array) -> float:  # (n_frames, height, width)
    """Return the scale at which these frames were sampled, read off their height."""
    return float(frames.shape[1] / HEIGHT)


def checked_clip(value: Payload) -> UInt8Array:  # (FRAMES, HEIGHT, WIDTH)
    """Return the value as a clip; InvalidInput unless a uint8 array of shape (12, 64, 112)."""
    shape = (FRAMES, HEIGHT, WIDTH)
    rule = f"a uint8 array of shape {shape}"
    return checked_array("clip", value, np.uint8, lambda its: its == shape, rule)


def checked_frames(value: Payload) -> UInt8Array:  # (n_frames, height, width)
    """Return the value as frames of a clip; InvalidInput unless uint8 and at one of the scales."""
    sizes = [(int(HEIGHT * scale), int(WIDTH * scale)) for scale in SCALES]
    rule = f"a uint8 array of shape (frames, height, width), the last two among {sizes}"
    return checked_array(
        "frames", value, np.uint8, lambda its: its[1:] in sizes and its[0] > 0, rule
    )


def checked_crops(value: Payload) -> UInt8Array:  # (n_frames, DIGITS, CROP, CROP)
    """Return the value as crops; InvalidInput unless uint8 of shape (at least 1, 3, 16, 16)."""
    shape = (DIGITS, CROP, CROP)
    rule = f"a uint8 array of shape (frames, *{shape})"
    return checked_array(
        "crops", value, np.uint8, lambda its: its[1:] == shape and its[0] > 0, rule
    )


def checked_numbers(
    field: str, value: Payload, length: int | None = None
) -> FloatArray:  # (n_frames, DIGITS, length)
    """Return the value as finite numbers; InvalidInput unless float32 (at least 1, 3, length)."""

    def fits(its: tuple[int, ...]) -> bool:
        return len(its) == 3 and its[0] > 0 and its[1] == DIGITS and length in (None, its[2])

    rule = f"a float32 array of shape (frames, {DIGITS}, {length or 'features'})"
    numbers = checked_array(field, value, np.float32, fits, rule)
    if not np.isfinite(numbers).all():
        raise InvalidInput.of(field, "must be finite", described(numbers))
    return numbers
