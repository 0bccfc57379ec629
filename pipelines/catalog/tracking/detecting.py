"""Operator `detector`: boxes around what moves, and what is in them.

One rule: masks are cleaned at the same size in pixels of the clip, whatever the frames' scale.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pipelines.catalog.tracking.foreground import FOREGROUNDS
from pipelines.catalog.tracking.handed_over import (
    LOOK,
    MOST_BOXES,
    Detections,
    Footage,
    UInt8Array,
)
from pipelines.catalog.tracking.opencv import opencv
from pipelines.errors import InvalidInput

SPECK, GAP = 5, 11
"""Pixels of the clip: what is thinner is wiped away, holes and gaps narrower than that closed."""
SMALLEST = 80
"""Pixels of the clip that a region must cover."""


def detected(footage: Footage, *, method: str) -> Detections:
    """Boxes of the regions that move, found by a method of `FOREGROUNDS`."""
    if method not in FOREGROUNDS:
        raise InvalidInput.of("method", f"must be one of {', '.join(FOREGROUNDS)}", method)
    boxes: list[list[int]] = []
    looks: list[UInt8Array] = []
    masks = FOREGROUNDS[method](footage.frames)
    for index, (frame, mask) in enumerate(zip(footage.frames, masks, strict=True)):
        for x, y, width, height in _regions(mask, footage.scale):
            there = [round(side * footage.scale) for side in (x, y, width, height)]
            boxes.append([index * footage.stride, *there])
            looks.append(_look(frame[y : y + height, x : x + width]))
    return Detections(
        boxes=np.array(boxes, dtype=np.int16).reshape(-1, 5),
        looks=np.array(looks, dtype=np.uint8).reshape(-1, LOOK),
        stride=footage.stride,
        length=footage.length,
    )


def _regions(mask: UInt8Array, scale: float) -> Iterator[tuple[int, int, int, int]]:
    """Boxes (x, y, w, h), pixels of the mask, of its largest regions, largest first."""
    cv2 = opencv()
    opened = cv2.morphologyEx(mask, cv2.MORPH_OPEN, _square(SPECK / scale))
    closed = cv2.morphologyEx(opened, cv2.MORPH_CLOSE, _square(GAP / scale))
    stats = cv2.connectedComponentsWithStats(closed)[2][1:]  # the first one is the background
    for row in stats[np.argsort(-stats[:, 4], kind="stable")][:MOST_BOXES].tolist():
        if row[4] * scale**2 >= SMALLEST:
            yield row[0], row[1], row[2], row[3]


def _square(side: float) -> UInt8Array:
    odd = max(1, 2 * round((side - 1) / 2) + 1)
    return np.ones((odd, odd), dtype=np.uint8)


def _look(box: UInt8Array) -> UInt8Array:
    counts = np.bincount(box.ravel() // (256 // LOOK), minlength=LOOK)
    return (counts * 255 // box.size).astype(np.uint8)
