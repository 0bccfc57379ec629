"""Networks that draw boxes around objects, by OpenCV on one thread.

One rule: a network reads one size of input, and one at a time. OpenCV keeps buffers in it, and
those of an SSD's default boxes are of the first size for good: at another one its boxes are off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.needs import Need
from circinus.pipelines.execution.weights import ModelWeights

UInt8Array: TypeAlias = NDArray[np.uint8]
FloatArray: TypeAlias = NDArray[np.float64]

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


class _HeldNetwork(NamedTuple):
    net: Any  # of OpenCV
    turn: Lock


_WEIGHT_BYTES, _PIXEL_BYTES = 2.1, 1100
"""Memory of a network, as measured: per byte of its file, and per pixel of its input."""


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
        rows = self.rows_of(frame[..., ::-1], side)
        height, width = frame.shape[:2]
        corners = rows[:, 3:] * (width, height, width, height)
        boxes = np.concatenate([corners[:, :2], corners[:, 2:] - corners[:, :2]], axis=1)
        return NetworkBoxes(boxes=boxes, scores=rows[:, 2])

    def rows_of(self, frame: UInt8Array, side: int) -> FloatArray:  # (n, 7)
        """Return image, class, score, left, top, right and bottom, in parts of an RGB frame."""
        cv2 = opencv()
        frozen, text = self.graph.path(self.frozen), self.graph.path(self.text)
        held = _held(frozen, side, lambda: cv2.dnn.readNetFromTensorflow(str(frozen), str(text)))
        blob = cv2.dnn.blobFromImage(np.ascontiguousarray(frame), size=(side, side))
        with held.turn:
            held.net.setInput(blob)
            return np.array(held.net.forward()[0, 0], dtype=np.float64)


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
