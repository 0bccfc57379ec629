"""Operators `sampler`, `resizer` and `denoiser`: fewer, smaller, smoother frames."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pipelines.catalog.tracking.handed_over import Footage, UInt8Array
from pipelines.catalog.tracking.opencv import opencv
from pipelines.errors import InvalidInput

BLUR = 1.2
"""Standard deviation of the Gaussian, pixels of the frame as it is (so blurrier at half size)."""


def sampled(
    clip: UInt8Array,  # (n_frames, height, width)
    *,
    stride: int,
) -> Footage:
    """Every `stride`-th frame, from the first on."""
    frames = np.ascontiguousarray(clip[::stride])
    return Footage(frames=frames, stride=stride, length=len(clip))


def resized(footage: Footage, *, width: int) -> Footage:
    """Frames of that width and in proportion; those that are no wider stay as they are."""
    cv2 = opencv()
    _, height_now, width_now = footage.frames.shape
    if width >= width_now:
        return footage
    height = max(1, round(height_now * width / width_now))
    frames = [
        cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA)
        for frame in footage.frames
    ]
    return replace(footage, frames=np.stack(frames), scale=footage.scale * width_now / width)


def denoised(footage: Footage, *, kind: str) -> Footage:
    """The frames as they are (`none`) or under a Gaussian (`gauss`)."""
    if kind == "none":
        return footage
    if kind != "gauss":
        raise InvalidInput.of("kind", "must be none or gauss", kind)
    cv2 = opencv()
    smooth = np.stack([cv2.GaussianBlur(frame, (7, 7), BLUR) for frame in footage.frames])
    return replace(footage, frames=smooth)
