"""Operators `sampler`, `denoiser` and `locator`: fewer frames, cleaner frames, crops of digits.

The denoiser keeps the shape of frames, and no filter looks across them. Crops come out at one size
whatever the scale, so no later operator knows of it.

Notation of non-local means (Buades, Coll and Morel 2005, "A non-local algorithm for image
denoising"): a pixel becomes the mean of the pixels around it, weighted by
`exp(-max(d^2 - 2 sigma^2, 0) / h^2)`, where `d^2` is the mean squared difference of the patches
around the two, `sigma` the noise level and `h = 0.6 sigma`. Patches are 3 x 3, the search window
is 5 x 5.

Notation of the locator: `s` scale of the frames; a pose is (y, x, angle): centre of the display in
pixels of the frame, relative to the frame's centre, and the angle of its baseline in radians.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from circinus.pipelines.catalog.digits.geometry import (
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
from circinus.pipelines.catalog.material import grey


def sampled(clip: UInt8Array, *, stride: int, scale: float) -> UInt8Array:  # (n, h, w)
    """Return every `stride`-th frame; at scale 0.5, 2 x 2 blocks become rounded means."""
    frames = clip[::stride]
    if scale == 1.0:
        return np.ascontiguousarray(frames)
    wide = frames.astype(np.uint16)
    rows = wide[:, ::2] + wide[:, 1::2]
    blocks = rows[:, :, ::2] + rows[:, :, 1::2]
    return ((blocks + 2) >> 2).astype(np.uint8)


BLUR = 1.5
"""Standard deviation of the Gaussian, pixels of the frame as it is (so blurrier at half size)."""
PATCH = 3
REACH = 2
FILTERING = 0.6  # h / sigma


def denoised(frames: UInt8Array, *, kind: str) -> UInt8Array:  # (n_frames, height, width) both
    """Return the frames, cleaned by the filter of that kind."""
    match kind:
        case "none":
            return frames
        case "gauss":
            image = frames.astype(np.float32)
            return grey(ndimage.gaussian_filter(image, BLUR, axes=(1, 2), mode="nearest"))
        case "median3":
            return ndimage.median_filter(frames, size=(1, 3, 3), mode="nearest")
        case _:  # nlm
            return _non_local_means(frames)


def _non_local_means(frames: UInt8Array) -> UInt8Array:
    image = frames.astype(np.float32)
    sigma2 = np.maximum(_noise(image) ** 2, 1.0)[:, None, None]
    total = image.copy()
    weights = np.ones_like(image)
    # A pair of pixels is as alike from either end: half of the shifts serve both.
    span = range(-REACH, REACH + 1)
    for shift in ((dy, dx) for dy in span for dx in span if (dy, dx) > (0, 0)):
        here, there = _overlap(image.shape, shift)
        distance2 = ndimage.uniform_filter(
            np.square(image[here] - image[there]), size=(0, PATCH, PATCH), mode="nearest"
        )
        excess = np.maximum(distance2 - 2 * sigma2, 0)
        weight = np.exp(-excess / (FILTERING**2 * sigma2))
        total[here] += weight * image[there]
        weights[here] += weight
        total[there] += weight * image[here]
        weights[there] += weight
    return grey(total / weights)


def _noise(image: FloatArray) -> FloatArray:  # (n_frames,)
    """Return the noise of each frame: robust deviation of horizontal steps, over sqrt(2)."""
    steps = np.abs(np.diff(image[:, ::2], axis=2)).reshape(len(image), -1)
    return np.asarray(1.4826 / np.sqrt(2) * np.median(steps, axis=1), dtype=np.float32)


def _overlap(
    shape: tuple[int, ...], shift: tuple[int, int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Return where an image and the same moved by `shift` (first part >= 0) both have pixels."""
    (_, height, width), (dy, dx) = shape, shift
    rows_here, rows_there = slice(0, height - dy), slice(dy, height)
    left, right = slice(max(0, -dx), width - max(0, dx)), slice(max(0, dx), width + min(0, dx))
    return (slice(None), rows_here, left), (slice(None), rows_there, right)


ANGLES = np.deg2rad([-12.0, -6.0, 0.0, 6.0, 12.0])
BLOB = (9.0, 6.0)
"""Standard deviations, down and across, of the blob that stands for a digit of any kind."""


def located(frames: UInt8Array, *, method: str) -> UInt8Array:  # -> (n, DIGITS, CROP, CROP)
    """Return a crop of each digit of each frame, left to right, found by that method."""
    poses = np.zeros((len(frames), 3), dtype=np.float32)
    if method != "fixed":
        poses = _projected(frames) if method == "project" else _matched(frames)
    return _cut(frames, poses)


def _projected(frames: UInt8Array) -> FloatArray:  # (n_frames, 3)
    """Return poses by projection: the window of rows, then of columns, with the most light."""
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


def _brightest_window(profile: FloatArray, window: int, reach: int) -> FloatArray:
    """Return centres (n,) of the largest `window` in `reach` of profiles (n, length)."""
    sums = np.cumsum(np.pad(profile, ((0, 0), (1, 0))), axis=1)
    windows = sums[:, window:] - sums[:, :-window]
    middle = (profile.shape[1] - window) // 2
    low, high = max(0, middle - reach), min(windows.shape[1], middle + reach + 1)
    start = low + np.argmax(windows[:, low:high], axis=1)
    return np.asarray(start + (window - profile.shape[1]) / 2, dtype=np.float32)


def _matched(frames: UInt8Array) -> FloatArray:  # (n_frames, 3)
    """Return poses from matching three blobs in a row, at every shift and a few angles.

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
    """Return how well three blobs at this angle match, by shift of the middle one."""
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
    """Return grey levels above the frame's median, which is background."""
    medians = np.median(frames[:, ::2, ::2].reshape(len(frames), -1), axis=1)
    above = frames.astype(np.float32) - medians.astype(np.float32)[:, None, None]
    return np.asarray(above, dtype=np.float32)


def _cut(frames: UInt8Array, poses: FloatArray) -> UInt8Array:  # -> (n, DIGITS, CROP, CROP)
    """Return the windows of the digits at poses (n, 3), turned upright, read bilinearly."""
    scale = scale_of(frames)
    steps = ((np.arange(CROP) + 0.5) / CROP - 0.5) * WINDOW * scale
    along = (np.arange(DIGITS) - DIGITS // 2)[:, None] * PITCH * scale + steps  # (DIGITS, CROP)
    u = along[:, None, :]  # to the right on the display
    v = steps[None, :, None]  # downwards on the display
    cos, sin = (f(poses[:, 2])[:, None, None, None] for f in (np.cos, np.sin))
    y = poses[:, 0][:, None, None, None] + (frames.shape[1] - 1) / 2 + u * sin + v * cos
    x = poses[:, 1][:, None, None, None] + (frames.shape[2] - 1) / 2 + u * cos - v * sin
    return _bilinear(frames, y, x)


def _bilinear(frames: UInt8Array, y: FloatArray, x: FloatArray) -> UInt8Array:  # y, x (n, ...)
    """Return grey levels between pixels; outside the frame its border goes on."""
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
