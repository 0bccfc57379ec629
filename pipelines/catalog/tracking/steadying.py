"""How far the camera moved: the shift of each frame against the first.

The peak of the phase correlation (Kuglin and Hines 1975) of frames under a Hann window, at about
half a pixel's precision: enough for a background that is compared with noisy frames.
"""

from __future__ import annotations

import numpy as np

from pipelines.catalog.tracking.handed_over import FloatArray, UInt8Array
from pipelines.catalog.tracking.opencv import opencv

WIDTH = 240
"""Frames are shrunk to about this width first: cheaper, and noise is averaged away."""
FARTHEST = 0.05
"""Share of the width: a larger shift is a mistaken peak, and taken as none."""


def shifts(
    frames: UInt8Array,  # (n_frames, height, width)
) -> FloatArray:  # (n_frames, 2)
    """By how many pixels (x, y) each frame's content lies away from the first's."""
    cv2 = opencv()
    factor = max(1, frames.shape[2] // WIDTH)
    size = (frames.shape[2] // factor, frames.shape[1] // factor)
    small = [
        cv2.resize(frame, size, interpolation=cv2.INTER_AREA).astype(np.float32)
        for frame in frames
    ]
    window = cv2.createHanningWindow(size, cv2.CV_32F)
    found = np.array([cv2.phaseCorrelate(small[0], frame, window)[0] for frame in small])
    found[np.abs(found).max(axis=1) > FARTHEST * size[0]] = 0.0
    return np.asarray(found * factor)
