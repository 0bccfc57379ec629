"""EfficientNet-Lite in torch, from weights as they are published for PyTorch.

The network is read off its weights: kernels, channels and blocks are those of the tensors, and a
block begins a new stage where channels change. Batch normalisation is folded into the
convolutions once, when they are loaded.

Tan and Le 2019, "EfficientNet"; Lite leaves squeeze-and-excitation out and has ReLU6. Padding is
TensorFlow's: a stride of 2 pads more behind than before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.training import one_thread
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import ModelWeights

if TYPE_CHECKING:
    import torch

LITE: Mapping[str, ModelWeights] = {
    "lite0": ModelWeights(
        name="efficientnet-lite0",
        what="EfficientNet-Lite0, ImageNet, a state of PyTorch",
        licence="Apache-2.0",
        size_bytes=18_826_032,
        files={"weights.pth": "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"},
    ),
    "lite2": ModelWeights(
        name="efficientnet-lite2",
        what="EfficientNet-Lite2, ImageNet, a state of PyTorch",
        licence="Apache-2.0",
        size_bytes=24_666_229,
        files={"weights.pth": "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"},
    ),
}
STRIDES = (1, 2, 2, 2, 1, 2, 1)  # of the stages
_EPSILON = 1e-3  # of batch normalisation
_MEAN, _SCALE = 127.0, 128.0  # of pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A convolution with its normalisation folded in."""

    kernel: torch.Tensor
    offset: torch.Tensor
    stride: int
    groups: int
    active: bool  # whether ReLU6 follows


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteNetwork:
    """A network that is ready to run."""

    stem: _Layer
    blocks: Sequence[tuple[Sequence[_Layer], bool]]  # and whether the input is added to the output
    head: _Layer
    dense: tuple[torch.Tensor, torch.Tensor]  # matrix and offset, to classes of ImageNet


def embedded(frames: NDArray[np.uint8], name: str) -> NDArray[np.float32]:  # (n, h, w, 3)
    """Return the numbers before the last layer, (n, 1280), by a network of `LITE`."""
    weights = LITE[name]
    path = weights.path("weights.pth")
    network = MODELS.get(("lite", path), 2 * weights.size_bytes, lambda: loaded_network(path))
    return embeddings(network, frames)


def loaded_network(path: Path) -> LiteNetwork:
    """Return the network of a file; InvalidInput if it has other tensors."""
    import torch

    tensors = torch.load(path, map_location="cpu", weights_only=True)
    try:
        return _network(tensors)
    except (KeyError, AttributeError, TypeError, IndexError) as error:
        rule = f"must be weights of EfficientNet-Lite ({type(error).__name__}: {error})"
        raise InvalidInput.of("weights", rule, str(path)) from error


def embeddings(network: LiteNetwork, frames: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return what comes out before the last layer, a row for each frame."""
    import torch

    one_thread()
    rows = []
    with torch.inference_mode():
        for frame in frames:  # one by one: a batch would take the memory of all
            pixels = (frame[None].astype(np.float32) - _MEAN) / _SCALE
            values = _run(network.stem, torch.from_numpy(pixels).permute(0, 3, 1, 2))
            for layers, residual in network.blocks:
                before = values
                for layer in layers:
                    values = _run(layer, values)
                values = values + before if residual else values
            rows.append(_run(network.head, values).mean(dim=(2, 3))[0].numpy())
    return np.stack(rows)


def _run(layer: _Layer, values: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    height, width = values.shape[2:]
    size = layer.kernel.shape[2]
    pads = [max((-(-n // layer.stride) - 1) * layer.stride + size - n, 0) for n in (width, height)]
    if any(pads):
        values = functional.pad(values, [part for p in pads for part in (p // 2, p - p // 2)])
    result = functional.conv2d(
        values, layer.kernel, layer.offset, stride=layer.stride, groups=layer.groups
    )
    return result.clamp_(0, 6) if layer.active else result


def _network(tensors: Mapping[str, torch.Tensor]) -> LiteNetwork:
    count = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("_blocks."))
    blocks, stage, channels = [], -1, -1
    for number in range(count):
        place = f"_blocks.{number}."
        out = tensors[f"{place}_project_conv.weight"].shape[0]
        begins = out != channels
        stage += begins
        layers = _block(tensors, place, STRIDES[stage] if begins else 1)
        blocks.append((layers, not begins))
        channels = out
    return LiteNetwork(
        stem=_folded(tensors, "_conv_stem", "_bn0", stride=2),
        blocks=blocks,
        head=_folded(tensors, "_conv_head", "_bn1"),
        dense=(tensors["_fc.weight"], tensors["_fc.bias"]),
    )


def _block(tensors: Mapping[str, torch.Tensor], place: str, stride: int) -> Sequence[_Layer]:
    """Return the layers of a block: it widens (but the first), filters each channel, narrows."""
    widens = f"{place}_expand_conv.weight" in tensors
    wide = [_folded(tensors, f"{place}_expand_conv", f"{place}_bn0")] if widens else []
    depthwise = _folded(tensors, f"{place}_depthwise_conv", f"{place}_bn1", stride=stride)
    return [
        *wide,
        depthwise,
        _folded(tensors, f"{place}_project_conv", f"{place}_bn2", active=False),
    ]


def _folded(
    tensors: Mapping[str, torch.Tensor],
    convolution: str,
    normalisation: str,
    *,
    stride: int = 1,
    active: bool = True,
) -> _Layer:
    kernel = tensors[f"{convolution}.weight"]
    weight, bias, mean, variance = (
        tensors[f"{normalisation}.{part}"]
        for part in ("weight", "bias", "running_mean", "running_var")
    )
    gain = weight / (variance + _EPSILON).sqrt()
    depthwise = "_depthwise_conv" in convolution
    return _Layer(
        kernel=kernel * gain[:, None, None, None],
        offset=bias - mean * gain,
        stride=stride,
        groups=kernel.shape[0] if depthwise else 1,
        active=active,
    )
