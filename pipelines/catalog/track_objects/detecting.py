"""Operator `detector`: a network's boxes around objects, with a small crop of each.

Classes do not matter: whatever a network knows is an object, and boxes that overlap much are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.catalog.chaining import checked_array
from circinus.pipelines.catalog.detectors import NetworkBoxes, ObjectDetector
from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.catalog.tracking.footage import (
    MOST_BOXES,
    BoxArray,
    FloatArray,
    Footage,
    UInt8Array,
    checked_boxes,
    checked_times,
)
from circinus.pipelines.model.payload import Payload

CROP = 64  # pixels of both sides of a crop, whatever the shape of its box
THRESHOLDS = (0.3, 0.5, 0.7)


@dataclass(frozen=True, slots=True, kw_only=True)
class CroppedDetections:
    """The boxes detected in the frames of a clip, and what is in them."""

    boxes: BoxArray  # int16 (n, 5): frame of the clip, x, y, w, h; in the order of frames
    crops: UInt8Array  # uint8 (n, CROP, CROP, 3)
    stride: int  # frames of the clip per frame that was searched, `>= 1`
    length: int  # frames of the clip


def checked_crops(value: Payload) -> CroppedDetections:
    """Return the value as a detector's boxes and crops; InvalidInput unless a dict of them."""
    parts = value if isinstance(value, dict) else {}
    stride, length = checked_times("detections", parts)
    boxes = checked_boxes("detections.boxes", parts.get("boxes"), stride, length)
    shape = (len(boxes), CROP, CROP, 3)
    rule = f"a uint8 array of shape {shape}"
    crops = checked_array(
        "detections.crops", parts.get("crops"), np.uint8, lambda its: its == shape, rule
    )
    return CroppedDetections(boxes=boxes, crops=crops, stride=stride, length=length)


def detecting(detectors: Mapping[str, ObjectDetector]) -> Callable[..., CroppedDetections]:
    """Return the operator's function, which knows these detectors by their names."""

    def detected(
        footage: Footage, *, model: str, side: int, threshold: float
    ) -> CroppedDetections:
        boxes: list[list[int]] = []
        crops: list[UInt8Array] = []
        for index, frame in enumerate(footage.frames):
            for box in _chosen(detectors[model].boxes_of(frame, side), threshold):
                if (inside := _cut(box, frame)) is not None:
                    boxes.append([index * footage.stride, *_in_clip(inside, footage.scale)])
                    crops.append(_crop(frame, inside))
        return CroppedDetections(
            boxes=np.array(boxes, dtype=np.int16).reshape(-1, 5),
            crops=np.array(crops, dtype=np.uint8).reshape(-1, CROP, CROP, 3),
            stride=footage.stride,
            length=footage.length,
        )

    return detected


_SAME = 0.5  # IoU from which on two boxes are of one object


def _chosen(of: NetworkBoxes, threshold: float) -> FloatArray:  # (n, 4)
    """Return the boxes of some score, the highest first, none of which overlaps a higher one."""
    cv2 = opencv()
    rows = cv2.dnn.NMSBoxes(of.boxes.tolist(), of.scores.tolist(), threshold, _SAME)
    return of.boxes[np.asarray(rows, dtype=np.intp).ravel()[:MOST_BOXES]]


Box = tuple[int, int, int, int]  # x, y, w, h


def _cut(box: FloatArray, frame: UInt8Array) -> Box | None:
    """Return what of a box is in the frame, in whole pixels; None: nothing is."""
    height, width = frame.shape[:2]
    low = np.clip(np.rint(box[:2]), 0, (width, height)).astype(int)
    high = np.clip(np.rint(box[:2] + box[2:]), 0, (width, height)).astype(int)
    (x, y), (right, bottom) = low.tolist(), high.tolist()
    return (x, y, right - x, bottom - y) if right > x and bottom > y else None


def _in_clip(box: Box, scale: float) -> list[int]:
    return [round(side * scale) for side in box]


def _crop(frame: UInt8Array, box: Box) -> UInt8Array:
    cv2 = opencv()
    x, y, width, height = box
    part = frame[y : y + height, x : x + width]
    return np.asarray(cv2.resize(part, (CROP, CROP), interpolation=cv2.INTER_AREA))
