"""What the operators hand to each other, and its rules.

One rule: boxes are (x, y, w, h) in pixels of the clip's own frames, and times are numbers of the
clip's own frames, whatever was left out or shrunk on the way; so `stride`, `scale` and `length`
travel along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.payload import Payload

FRAMES, HEIGHT, WIDTH = 48, 270, 480
"""Shape of the clips that the pipeline's own examples have."""
MARGIN = 28
"""Pixels of their scenes on each side of the frame, for the camera to move in."""
FEWEST_FRAMES, MOST_FRAMES = 8, 512
SHORTEST_SIDE, LONGEST_SIDE = 32, 2048
LARGEST_CLIP = 32 * 2**20
"""Bytes, five times what the examples have: a larger clip would hold a worker for seconds."""
MOST_BOXES = 40
"""Boxes per frame that a detector gives; it never hands over more rows than this per frame."""
MOST_TRACKS = 1024
"""Tracks per frame that are scored: more than `MOST_BOXES` can leave, with those that wait."""
LOOK = 8
"""Bins of the grey histogram that tells what a box looks like."""

UInt8Array: TypeAlias = NDArray[np.uint8]
BoxArray: TypeAlias = NDArray[np.int16]
FloatArray: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footage:
    """Some frames of a clip.

    Attributes:
        frames: uint8 (n_frames, height, width).
        stride: Frames of the clip per frame here, `>= 1`.
        length: Frames of the clip.
        scale: Pixels of the clip per pixel here, `>= 1`.
    """

    frames: UInt8Array
    stride: int
    length: int
    scale: float = 1.0

    def payload(self) -> Payload:
        """The form in which it travels."""
        return {
            "frames": self.frames,
            "stride": self.stride,
            "length": self.length,
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Detections:
    """The boxes that were found in the frames of a clip.

    Attributes:
        boxes: int16 (n, 5): frame of the clip, x, y, w, h; in the order of frames.
        looks: uint8 (n, LOOK): grey histogram of each box, its sum about 255.
        stride: Frames of the clip per frame that was searched, `>= 1`.
        length: Frames of the clip.
    """

    boxes: BoxArray
    looks: UInt8Array
    stride: int
    length: int

    def payload(self) -> Payload:
        """The form in which it travels."""
        return {
            "boxes": self.boxes,
            "looks": self.looks,
            "stride": self.stride,
            "length": self.length,
        }
