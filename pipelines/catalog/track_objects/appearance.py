"""Operator `appearance`: what the inside of each box looks like, as a vector of length 1.

    none         nothing, a vector of no numbers
    colours      a histogram of colours of the crop's middle, as roots, so that products compare
    mobilenetv2  1,280 means of the last layer of MobileNetV2, trained to name pictures' contents

The network (Sandler et al. 2018, table 2) was not trained to tell persons apart; it is weak at it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import described
from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.catalog.track_objects.detecting import CroppedDetections
from circinus.pipelines.catalog.tracking.footage import (
    Detections,
    FloatArray,
    UInt8Array,
    checked_boxes,
    checked_times,
)
from circinus.pipelines.catalog.training import one_thread
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import ModelWeights
from circinus.pipelines.model.payload import Payload

if TYPE_CHECKING:
    from torch import nn

Vectors = NDArray[np.float32]  # (n, k)

MOST_NUMBERS = 4096  # of the vector of a box

MOBILENET = ModelWeights(
    name="appearance",
    what="MobileNetV2 without its classifier, a state dict of torch",
    licence="MIT",
    size_bytes=9_084_095,
    files={"mobilenetv2.pt": "2f518e773d4402dde55f981ae3078a72ba95c3adccae1d55051a4be844d50197"},
)


def checked_looks(value: Payload) -> Detections:
    """Return the value as boxes with vectors; InvalidInput unless a dict of them."""
    parts = value if isinstance(value, dict) else {}
    stride, length = checked_times("detections", parts)
    boxes = checked_boxes("detections.boxes", parts.get("boxes"), stride, length)
    looks = parts.get("looks")
    if (
        isinstance(looks, np.ndarray)
        and looks.dtype == np.float32
        and looks.ndim == 2
        and len(looks) == len(boxes)
        and looks.shape[1] <= MOST_NUMBERS
        and np.isfinite(looks).all()
    ):
        vectors = looks.view(np.float32)
        return Detections(boxes=boxes, looks=vectors, stride=stride, length=length)
    rule = f"must be finite float32 numbers, {len(boxes)} rows of at most {MOST_NUMBERS}"
    raise InvalidInput.of("detections.looks", rule, described(looks))


def with_looks(detections: CroppedDetections, *, model: str) -> Detections:
    """Return the boxes with vectors of one of `LOOKS`, in place of crops."""
    return Detections(
        boxes=detections.boxes,
        looks=LOOKS[model](detections.crops),
        stride=detections.stride,
        length=detections.length,
    )


def unlike_vectors(a: FloatArray, b: FloatArray) -> FloatArray:  # (n, k), (m, k) -> (n, m)
    """Return what the cosine lacks to 1, at most 1; vectors without numbers are all alike."""
    if not a.shape[1]:
        return np.zeros((len(a), len(b)))
    cosines = _unit(a) @ _unit(b).T
    return np.asarray(1 - np.clip(cosines, 0, 1))


def _unit(rows: FloatArray) -> FloatArray:
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), _TINY))


_TINY = 1e-9  # length of a vector of nothing but 0


def _nothing(crops: UInt8Array) -> Vectors:
    return np.empty((len(crops), 0), dtype=np.float32)


_BINS = 4  # of each colour


def _colours(crops: UInt8Array) -> Vectors:
    """Return histograms over `_BINS` cubed colours, of the middle half of the columns."""
    side = crops.shape[2]
    middle = crops[:, :, side // 4 : side - side // 4] // (256 // _BINS)
    colours = middle.astype(np.int64) @ np.array([_BINS**2, _BINS, 1])
    counts = [np.bincount(colour.ravel(), minlength=_BINS**3) for colour in colours]
    shares = np.array(counts, dtype=np.float64).reshape(-1, _BINS**3) / max(1, colours[:1].size)
    return np.asarray(np.sqrt(shares), dtype=np.float32)


_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)  # of ImageNet, red, green and blue
_SPREAD = np.array([0.229, 0.224, 0.225], dtype=np.float32)
_SIDE = 128  # of the network's input: half of 224 takes a third of the time
_BATCH = 16
_MEMORY_BYTES = 60e6


def _embedded(crops: UInt8Array) -> Vectors:
    """Return the network's vectors, each of length 1."""
    import torch

    one_thread()
    path = MOBILENET.path("mobilenetv2.pt")
    network = MODELS.get(("appearance", str(path)), _MEMORY_BYTES, lambda: load_network(str(path)))
    parts = [np.empty((0, 1280), dtype=np.float32)]
    with torch.inference_mode():
        for start in range(0, len(crops), _BATCH):
            batch = torch.from_numpy(_network_input(crops[start : start + _BATCH]))
            parts.append(network(batch).mean(dim=(2, 3)).numpy())
    return _unit(np.concatenate(parts).astype(np.float64)).astype(np.float32)


def _network_input(crops: UInt8Array) -> NDArray[np.float32]:  # (n, 3, _SIDE, _SIDE)
    cv2 = opencv()
    large = np.stack([cv2.resize(crop, (_SIDE, _SIDE)) for crop in crops])
    colours = large[..., ::-1].astype(np.float32) / np.float32(255)
    return np.ascontiguousarray(((colours - _MEAN) / _SPREAD).transpose(0, 3, 1, 2))


LOOKS: Mapping[str, Callable[[UInt8Array], Vectors]] = {
    "none": _nothing,
    "colours": _colours,
    "mobilenetv2": _embedded,
}
"""Model -> crops, uint8 (n, side, side, 3) -> vectors."""


def load_network(path: str) -> nn.Module:
    """Return MobileNetV2 without its classifier, with the weights of a file."""
    import torch

    network = mobilenet()
    network.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    return network.eval()


_STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)
"""Expansion, channels, blocks and first stride of each stage (Sandler et al. 2018, table 2)."""


def mobilenet() -> nn.Module:
    """Return the network with random weights; its output is (n, 1280, side / 32, side / 32)."""
    from torch import Tensor, nn

    class Residual(nn.Module):
        """An inverted residual: wide, each channel alone, narrow; added to its input if it can."""

        def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
            super().__init__()
            wide = inputs * expansion
            expand = _convolution(inputs, wide, 1, 1, 1) if expansion > 1 else ()
            narrow = nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
            self.conv = nn.Sequential(*expand, *_convolution(wide, wide, 3, stride, wide), *narrow)
            self.adds = stride == 1 and inputs == outputs

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.conv(x)
            return x + y if self.adds else y

    layers: list[nn.Module] = [nn.Sequential(*_convolution(3, 32, 3, 2, 1))]
    inputs = 32
    for expansion, outputs, blocks, stride in _STAGES:
        for block in range(blocks):
            layers.append(Residual(inputs, outputs, stride if block == 0 else 1, expansion))
            inputs = outputs
    layers.append(nn.Sequential(*_convolution(inputs, 1280, 1, 1, 1)))
    # the file's names begin with that of the layers
    return nn.Sequential(OrderedDict(features=nn.Sequential(*layers)))


def _convolution(
    inputs: int, outputs: int, side: int, stride: int, groups: int
) -> tuple[nn.Module, nn.Module, nn.Module]:
    from torch import nn

    around = side // 2
    layer = nn.Conv2d(inputs, outputs, side, stride, around, groups=groups, bias=False)
    return layer, nn.BatchNorm2d(outputs), nn.ReLU6()
