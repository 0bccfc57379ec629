"""Operator `locator`: where the three digits are, and a crop of each.

One rule: crops come out at one size whatever the scale, so no later operator knows of it.

Notation: `s` scale of the frames; a pose is (y, x, angle): centre of the display in pixels of the
frame, relative to the frame's centre, and the angle of its baseline in radians.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from pipelines.catalog.digits.geometry import (
    CROP,
    DIGITS,
    GLYPH,
    MAX_SHIFT,
    PITCH,
    WINDOW,
    FloatArray,
    UInt8Array,
    scale_of,
)
from pipelines.errors import InvalidInput

ANGLES = np.deg2rad([-12.0, -6.0, 0.0, 6.0, 12.0])
BLOB = (9.0, 6.0)
"""Standard deviations, down and across, of the blob that stands for a digit of any kind."""


def located(
    frames: UInt8Array,  # (n_frames, height, width)
    *,
    method: str,
) -> UInt8Array:  # (n_frames, DIGITS, CROP, CROP)
    """A crop of each digit of each frame, left to right, found by that method."""
    match method:
        case "fixed":
            poses = np.zeros((len(frames), 3), dtype=np.float32)
        case "project":
            poses = _projected(frames)
        case "match":
            poses = _matched(frames)
        case _:
            raise InvalidInput.of("method", "must be fixed, project or match", method)
    return _cut(frames, poses)


def _projected(frames: UInt8Array) -> FloatArray:  # (n_frames, 3)
    """Poses from projection profiles: the window of rows, then of columns, with the most light."""
    scale = scale_of(frames)
    reach = round(MAX_SHIFT * scale)
    light = _light(frames)
    y = _brightest_window(light.mean(axis=2), round(GLYPH * scale), reach)
    rows = np.arange(light.shape[1]) - (light.shape[1] - 1) / 2
    band = np.abs(rows[None] - y[:, None]) <= GLYPH * scale / 2  # (n_frames, height)
    columns = np.einsum("nhw,nh->nw", light, band.astype(np.float32))
    width = round((PITCH * (DIGITS - 1) + GLYPH) * scale)
    x = _brightest_window(columns, width, reach)
    return np.stack([y, x, np.zeros_like(x)], axis=1)


def _brightest_window(
    profile: FloatArray,  # (n_frames, length)
    window: int,
    reach: int,
) -> FloatArray:  # (n_frames,)
    """Centre, relative to the profile's, of the `window` with the largest sum, within `reach`."""
    sums = np.cumsum(np.pad(profile, ((0, 0), (1, 0))), axis=1)
    windows = sums[:, window:] - sums[:, :-window]
    middle = (profile.shape[1] - window) // 2
    low, high = max(0, middle - reach), min(windows.shape[1], middle + reach + 1)
    start = low + np.argmax(windows[:, low:high], axis=1)
    return np.asarray(start + (window - profile.shape[1]) / 2, dtype=np.float32)


def _matched(frames: UInt8Array) -> FloatArray:  # (n_frames, 3)
    """Poses from matching three blobs in a row, at every shift and a few angles.

    A frame's own match is averaged with that of the whole clip: the display shakes little from
    frame to frame, the noise much.
    """
    scale = scale_of(frames)
    widths = [width * scale for width in BLOB]
    blobs = ndimage.gaussian_filter(_light(frames), widths, axes=(1, 2), mode="constant")
    reach = round(MAX_SHIFT * scale)
    scores = np.stack([_row_of_blobs(blobs, angle, reach, scale) for angle in ANGLES], axis=1)
    scores += scores.mean(axis=0)  # (n_frames, n_angles, shifts, shifts)
    best = np.argmax(scores.reshape(len(frames), -1), axis=1)
    angle, y, x = np.unravel_index(best, scores.shape[1:])
    # blobs are read at the pixel after the middle: the frame's centre lies half a pixel before
    return np.stack([y - reach + 0.5, x - reach + 0.5, ANGLES[angle]], axis=1).astype(np.float32)


def _row_of_blobs(
    blobs: FloatArray,  # (n_frames, height, width)
    angle: float,
    reach: int,
    scale: float,
) -> FloatArray:  # (n_frames, 2 reach + 1, 2 reach + 1)
    """How well three blobs at this angle match, by shift of the middle one."""
    height, width = blobs.shape[1:]
    size = 2 * reach + 1
    total = np.zeros((len(blobs), size, size), dtype=np.float32)
    for place in range(DIGITS):
        along = (place - DIGITS // 2) * PITCH * scale
        top = height // 2 - reach + round(along * np.sin(angle))
        left = width // 2 - reach + round(along * np.cos(angle))
        total += blobs[:, top : top + size, left : left + size]
    return total


def _light(frames: UInt8Array) -> FloatArray:
    """Grey levels above the frame's median, which is background."""
    medians = np.median(frames[:, ::2, ::2].reshape(len(frames), -1), axis=1)
    above = frames.astype(np.float32) - medians.astype(np.float32)[:, None, None]
    return np.asarray(above, dtype=np.float32)


def _cut(
    frames: UInt8Array,  # (n_frames, height, width)
    poses: FloatArray,  # (n_frames, 3)
) -> UInt8Array:  # (n_frames, DIGITS, CROP, CROP)
    """The windows of the digits at those poses, turned upright, read bilinearly."""
    scale = scale_of(frames)
    steps = ((np.arange(CROP) + 0.5) / CROP - 0.5) * WINDOW * scale
    along = (np.arange(DIGITS) - DIGITS // 2)[:, None] * PITCH * scale + steps  # (DIGITS, CROP)
    u = along[:, None, :]  # to the right on the display
    v = steps[None, :, None]  # downwards on the display
    cos, sin = (f(poses[:, 2])[:, None, None, None] for f in (np.cos, np.sin))
    y = poses[:, 0][:, None, None, None] + (frames.shape[1] - 1) / 2 + u * sin + v * cos
    x = poses[:, 1][:, None, None, None] + (frames.shape[2] - 1) / 2 + u * cos - v * sin
    return _bilinear(frames, y, x)


def _bilinear(
    frames: UInt8Array,  # (n_frames, height, width)
    y: FloatArray,  # (n_frames, ...)
    x: FloatArray,  # (n_frames, ...)
) -> UInt8Array:  # (n_frames, ...)
    """Grey levels between pixels; outside the frame its border goes on."""
    height, width = frames.shape[1:]
    y = np.clip(y, 0, height - 1.001).astype(np.float32)
    x = np.clip(x, 0, width - 1.001).astype(np.float32)
    top, left = y.astype(np.int32), x.astype(np.int32)
    down, right = y - top, x - left
    flat = frames.ravel()
    first = np.arange(len(frames), dtype=np.int32).reshape(-1, *[1] * (y.ndim - 1)) * height
    corner = (first + top) * width + left
    upper = flat[corner] * (1 - right) + flat[corner + 1] * right
    lower = flat[corner + width] * (1 - right) + flat[corner + width + 1] * right
    return np.asarray(np.rint(upper * (1 - down) + lower * down), dtype=np.uint8)
