"""Operator `detector`: a network's boxes around objects, with a small crop of each.

Classes do not matter: whatever a network knows is an object, and boxes that overlap much are
one. OpenCV runs two kinds of networks, on one thread: an SSD of TensorFlow's, and YOLO networks
that users have exported as ONNX files.

One rule: a network reads one size of input, and one at a time. OpenCV keeps buffers in it, and
those of an SSD's default boxes are of the first size for good: at another one its boxes are off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import checked_array
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
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.needs import Need
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.model.payload import Payload

CROP = 64  # pixels of both sides of a crop, whatever the shape of its box
THRESHOLDS = (0.3, 0.5, 0.7)
SIDES = (204, 300, 396, 492)
"""Sides of an SSD's input. Its training had 300, and the others are rounded alike when they are
halved five times. At sides that are not, such as 320, boxes are off by some pixels."""


class NetworkBoxes(NamedTuple):
    """What a network says of one frame."""

    boxes: FloatArray  # (n, 4): x, y, w, h in pixels of the frame
    scores: FloatArray  # (n,), in [0, 1]


class ObjectDetector(Protocol):
    """A network that draws boxes around objects.

    Same frame and side, same boxes: nothing of an earlier call matters. Threads may call it.
    """

    @property
    def weights(self) -> tuple[ModelWeights, ...]:
        """Weights that `prepare` gets."""

    @property
    def needs(self) -> tuple[Need, ...]:
        """What else has to be there."""

    def boxes_of(self, frame: UInt8Array, side: int) -> NetworkBoxes:
        """Return boxes in a frame (height, width, 3), which the network reads at that side."""


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


class _HeldNetwork(NamedTuple):
    net: Any  # of OpenCV
    turn: Lock


_WEIGHT_BYTES, _PIXEL_BYTES = 1.5, 1000
"""Memory of a network: per byte of its file, and per pixel of its input."""


def _held(path: Path, side: int, read: Callable[[], Any]) -> _HeldNetwork:
    """Return the network of a file for one side, loaded unless it is held."""
    size = _WEIGHT_BYTES * path.stat().st_size + _PIXEL_BYTES * side**2
    return MODELS.get(("detector", str(path), side), size, lambda: _HeldNetwork(read(), Lock()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SsdNetwork:
    """An SSD of TensorFlow's model zoo: a frozen graph, and its text form for OpenCV."""

    graph: ModelWeights
    frozen: str = "frozen_inference_graph.pb"
    text: str = "graph.pbtxt"
    needs: tuple[Need, ...] = ()

    @property
    def weights(self) -> tuple[ModelWeights, ...]:
        """The graph."""
        return (self.graph,)

    def boxes_of(self, frame: UInt8Array, side: int) -> NetworkBoxes:
        """Return its boxes; the frame is squeezed into a square, as in its training."""
        cv2 = opencv()
        frozen, text = self.graph.path(self.frozen), self.graph.path(self.text)
        held = _held(frozen, side, lambda: cv2.dnn.readNetFromTensorflow(str(frozen), str(text)))
        blob = cv2.dnn.blobFromImage(frame, size=(side, side), swapRB=True)
        with held.turn:
            held.net.setInput(blob)
            rows = np.array(held.net.forward()[0, 0], dtype=np.float64)  # (n, 7)
        height, width = frame.shape[:2]
        corners = rows[:, 3:] * (width, height, width, height)
        boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
        return NetworkBoxes(boxes=boxes, scores=rows[:, 2])


_GREY = 114  # what a YOLO network's training filled with around a picture
_MULTIPLE = 32  # pixels: sides of its input are multiples of that


@dataclass(frozen=True, slots=True, kw_only=True)
class YoloNetwork:
    """A YOLO network in an ONNX file, exported without suppression, as YOLOv8 and later have it.

    Its output is (1, 4 + classes, n): centre, width and height in pixels of the input, and a score
    for each class.
    """

    path: Path
    side: int | None = None  # of a file that reads one size only; None: any multiple of 32
    weights: tuple[ModelWeights, ...] = field(default=(), init=False)

    @property
    def needs(self) -> tuple[Need, ...]:
        """The file."""
        name = f"detector {self.path}"
        return (Need(name=name, install="export it as ONNX", is_there=self.path.exists),)

    def boxes_of(self, frame: UInt8Array, side: int) -> NetworkBoxes:
        """Return its boxes; InvalidInput if the network's output has another form."""
        cv2 = opencv()
        read = self.side or -(-side // _MULTIPLE) * _MULTIPLE
        held = _held(self.path, read, lambda: cv2.dnn.readNetFromONNX(str(self.path)))
        letter, factor = _letter(frame, read)
        blob = cv2.dnn.blobFromImage(letter, scalefactor=1 / 255, swapRB=True)
        with held.turn:
            held.net.setInput(blob)
            output = np.array(held.net.forward(), dtype=np.float64)
        if output.ndim != 3 or output.shape[1] < 5:
            rule = "must have an output (1, 4 + classes, n)"
            raise InvalidInput.of("detector", rule, f"{self.path}: {output.shape}")
        rows = output[0].T  # (n, 4 + classes)
        boxes = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, 2:4]], axis=1) / factor
        return NetworkBoxes(boxes=boxes, scores=rows[:, 4:].max(axis=1))


def _letter(frame: UInt8Array, side: int) -> tuple[NDArray[np.uint8], float]:
    """Return the frame in the corner of a square, in its own proportions, and by which factor."""
    cv2 = opencv()
    height, width = frame.shape[:2]
    factor = side / max(height, width)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    square = np.full((side, side, 3), _GREY, dtype=np.uint8)
    square[: size[1], : size[0]] = cv2.resize(frame, size, interpolation=cv2.INTER_LINEAR)
    return square, factor


SSD = SsdNetwork(
    graph=ModelWeights(
        name="ssd-mobilenet-v2",
        what="SSD MobileNetV2, trained on COCO, for OpenCV",
        licence="Apache-2.0, by TensorFlow's model zoo",
        size_bytes=69_798_036,
        files={
            "frozen_inference_graph.pb": (
                "2a8d8a89d695842e60d8c6d144181100555563e21acf2fa1e8f561fec5c3c6ad"
            ),
            "graph.pbtxt": "af72da998866289c47021ca4df447951564a787f00874b59632537546b91fc54",
        },
    )
)
