"""Operator `denoiser`: four ways to clean frames, from nothing to non-local means.

One rule: frames in, frames of the same shape out; no filter looks across frames.

Notation of non-local means (Buades, Coll and Morel 2005, "A non-local algorithm for image
denoising"): a pixel becomes the mean of the pixels around it, weighted by
`exp(-max(d^2 - 2 sigma^2, 0) / h^2)`, where `d^2` is the mean squared difference of the patches
around the two, `sigma` the noise level and `h = 0.6 sigma`. Patches are 3 x 3, the
search window is 5 x 5.
"""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from pipelines.catalog.digits.geometry import FloatArray, UInt8Array
from pipelines.errors import InvalidInput

BLUR = 1.5
"""Standard deviation of the Gaussian, pixels of the frame as it is (so blurrier at half size)."""
PATCH = 3
REACH = 2
FILTERING = 0.6
"""h / sigma."""


def denoised(
    frames: UInt8Array,  # (n_frames, height, width)
    *,
    kind: str,
) -> UInt8Array:  # (n_frames, height, width)
    """The frames, cleaned by the filter of that kind."""
    match kind:
        case "none":
            return frames
        case "gauss":
            return _gaussian(frames)
        case "median3":
            return ndimage.median_filter(frames, size=(1, 3, 3), mode="nearest")
        case "nlm":
            return _non_local_means(frames)
        case _:
            raise InvalidInput.of("kind", "must be none, gauss, median3 or nlm", kind)


def _gaussian(frames: UInt8Array) -> UInt8Array:
    smooth = ndimage.gaussian_filter(frames.astype(np.float32), BLUR, axes=(1, 2), mode="nearest")
    return _grey(smooth)


def _non_local_means(frames: UInt8Array) -> UInt8Array:
    image = frames.astype(np.float32)
    sigma2 = np.maximum(_noise(image) ** 2, 1.0)[:, None, None]
    total = image.copy()
    weights = np.ones_like(image)
    # A pair of pixels is as alike from either end: half of the shifts serve both.
    for shift in _half_of_shifts():
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
    return _grey(total / weights)


def _noise(image: FloatArray) -> FloatArray:  # (n_frames,)
    """Noise level per frame: robust standard deviation of horizontal steps, over sqrt(2)."""
    steps = np.abs(np.diff(image[:, ::2], axis=2)).reshape(len(image), -1)
    return np.asarray(1.4826 / np.sqrt(2) * np.median(steps, axis=1), dtype=np.float32)


def _half_of_shifts() -> list[tuple[int, int]]:
    span = range(-REACH, REACH + 1)
    return [(dy, dx) for dy in span for dx in span if (dy, dx) > (0, 0)]


def _overlap(
    shape: tuple[int, ...], shift: tuple[int, int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where an image and the image moved by `shift` (its first part >= 0) both have pixels."""
    (_, height, width), (dy, dx) = shape, shift
    rows_here, rows_there = slice(0, height - dy), slice(dy, height)
    left, right = slice(max(0, -dx), width - max(0, dx)), slice(max(0, dx), width + min(0, dx))
    return (slice(None), rows_here, left), (slice(None), rows_there, right)


def _grey(image: FloatArray) -> UInt8Array:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)
