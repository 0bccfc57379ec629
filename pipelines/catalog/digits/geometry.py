"""Shape of a clip and of what is cut from it.

One rule: lengths are pixels of the full-size frame; multiply by the scale of a frame before use.
"""

from __future__ import annotations

from typing import TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import InvalidInput
from pipelines.payload import Payload

FRAMES = 12
HEIGHT = 64
WIDTH = 112
DIGITS = 3
CLASSES = 10

GLYPH = 26
"""Side of a shown digit."""
PITCH = 28
"""Distance between the centres of two neighbouring digits."""
WINDOW = 28
"""Side of the square that is cut out around a digit."""
CROP = 16
"""Side, in samples, of the crop that stands for a window at either scale."""

SCALES = (0.5, 1.0)
MAX_SHIFT = 12
"""Farthest that a locator looks for the display from the centre of the frame, per axis."""

UInt8Array: TypeAlias = NDArray[np.uint8]
FloatArray: TypeAlias = NDArray[np.float32]
IntArray: TypeAlias = NDArray[np.int64]


def scale_of(
    frames: UInt8Array,  # (n_frames, height, width)
) -> float:
    """The scale at which these frames were sampled, read off their height."""
    return float(frames.shape[1] / HEIGHT)


def checked_clip(value: Payload) -> UInt8Array:  # (FRAMES, HEIGHT, WIDTH)
    """The value as a clip.

    Raises:
        InvalidInput: It is not a uint8 array of shape (12, 64, 112).
    """
    shape = (FRAMES, HEIGHT, WIDTH)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.shape == shape:
        return value.view(np.uint8)
    raise InvalidInput.of("clip", f"must be a uint8 array of shape {shape}", described(value))


def checked_frames(value: Payload) -> UInt8Array:  # (n_frames, height, width)
    """The value as frames of a clip at one of the scales.

    Raises:
        InvalidInput: It is not a uint8 array of at least one frame of 32 x 56 or 64 x 112 pixels.
    """
    sizes = [(int(HEIGHT * scale), int(WIDTH * scale)) for scale in SCALES]
    if _are_images(value, np.uint8) and value.shape[1:] in sizes:
        return value.view(np.uint8)
    rule = f"must be a uint8 array of shape (frames, height, width), the last two among {sizes}"
    raise InvalidInput.of("frames", rule, described(value))


def checked_crops(value: Payload) -> UInt8Array:  # (n_frames, DIGITS, CROP, CROP)
    """The value as crops of digits.

    Raises:
        InvalidInput: It is not a uint8 array of shape (at least 1, 3, 16, 16).
    """
    shape = (DIGITS, CROP, CROP)
    if _are_images(value, np.uint8) and value.shape[1:] == shape:
        return value.view(np.uint8)
    rule = f"must be a uint8 array of shape (frames, *{shape})"
    raise InvalidInput.of("crops", rule, described(value))


def checked_numbers(
    value: Payload, field: str, length: int | None = None
) -> FloatArray:  # (n_frames, DIGITS, length)
    """The value as a row of numbers per digit and frame, all finite.

    Raises:
        InvalidInput: It is not a float32 array of shape (at least 1, 3, length), or has NaN.
    """
    if (
        _are_images(value, np.float32)
        and value.ndim == 3
        and value.shape[1] == DIGITS
        and length in (None, value.shape[2])
    ):
        if np.isfinite(value).all():
            return value.view(np.float32)
        raise InvalidInput.of(field, "must be finite", described(value))
    rule = f"must be a float32 array of shape (frames, {DIGITS}, {length or 'features'})"
    raise InvalidInput.of(field, rule, described(value))


def described(value: object) -> str:
    """What a value is, in a few words, for the message of an error."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return type(value).__name__


def _are_images(value: Payload, dtype: type[np.generic]) -> TypeGuard[NDArray[np.generic]]:
    return (
        isinstance(value, np.ndarray)
        and value.dtype == dtype
        and len(value.shape) > 0 < len(value)
    )
