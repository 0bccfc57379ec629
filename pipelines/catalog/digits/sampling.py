"""Operator `sampler`: fewer frames, smaller frames."""

from __future__ import annotations

import numpy as np

from pipelines.catalog.digits.geometry import UInt8Array


def sampled(
    clip: UInt8Array,  # (n_frames, height, width), even height and width
    *,
    stride: int,
    scale: float,
) -> UInt8Array:  # (ceil(n_frames / stride), height * scale, width * scale)
    """Every `stride`-th frame; at scale 0.5 each 2 x 2 block becomes its rounded mean."""
    frames = clip[::stride]
    if scale == 1.0:
        return np.ascontiguousarray(frames)
    wide = frames.astype(np.uint16)
    rows = wide[:, ::2] + wide[:, 1::2]
    blocks = rows[:, :, ::2] + rows[:, :, 1::2]
    return ((blocks + 2) >> 2).astype(np.uint8)
