"""Models that say what a frame shows: log-probabilities of its colour and its shape.

    network    three convolutions and a dense layer, trained here on frames of that side
    lite0, lite2  EfficientNet-Lite, trained on photographs, on the frame as large as it is
    detector   SSD MobileNetV2, trained on photographs: the best score of each of its classes, and
               size and colour of the box that it is surest of

What photographs taught says nothing of colours and shapes: a linear head behind it does, trained
here. The rule: nothing is trained on a picture that examples are drawn from.

Notation: `F` (n, d) features of n frames; `P` (n, CLASSES) log-probabilities, first of the
colours, then of the shapes, each part of which is a distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import platformdirs
from numpy.typing import NDArray
from scipy.special import log_softmax

from circinus.pipelines.catalog.detectors import SSD
from circinus.pipelines.catalog.efficientnet import LITE, embedded
from circinus.pipelines.catalog.pictures import (
    COLOURS,
    EASY_VQA,
    SHAPES,
    UInt8Array,
    drawn_camera,
    drawn_frame,
    pictures,
    shrunk,
)
from circinus.pipelines.catalog.stored import Arrays, stored_arrays
from circinus.pipelines.catalog.training import NetworkTraining, one_thread, trained_network

if TYPE_CHECKING:
    import torch

CLASSES = len(COLOURS) + len(SHAPES)
SIDES = (32, 64, 128)  # pixels of frames that models are trained for
VERSION = 2  # raise whenever training, its frames or the features change

FloatArray: TypeAlias = NDArray[np.float32]

WEIGHTS = (EASY_VQA, *LITE.values(), *SSD.weights)  # that `prepare_models` and the models need


def log_probabilities(frames: UInt8Array, model: str) -> FloatArray:  # -> P
    """Return what frames show by a model of `NAMES`; (n, side, side, 3), a side of `SIDES`."""
    side = frames.shape[1]
    arrays = trained(model, side)
    if model == "network":
        return by_network(arrays, frames)
    mean, scale, matrix, offset = (
        arrays[name].astype(np.float32, copy=False)
        for name in ("mean", "scale", "matrix", "offset")
    )
    F = (features_of(frames, model) - mean) / scale
    return _normalised(F @ matrix + offset)


def features_of(frames: UInt8Array, model: str) -> FloatArray:  # -> F
    """Return the features that a head takes, by a model trained on photographs."""
    if model == "detector":
        return np.stack([_detected(frame) for frame in frames])
    return embedded(frames, model)


def prepare_models() -> None:
    """Train every model that the user's store lacks, a few minutes in all."""
    for side in SIDES:
        for model in NAMES:
            trained(model, side)


def trained(model: str, side: int) -> Arrays:
    """Return a trained model for frames of that side; trained now if it never was."""
    return _trained(store(), model, side)


@cache
def _trained(folder: Path, model: str, side: int) -> Arrays:
    # Not by `MODELS`: what a head is trained on comes from a model that is loaded there.
    return stored_arrays(folder / f"{model}-{side}.npz", partial(TRAINING[model], side))


def store() -> Path:
    """Return the folder of trained models, of this version of the code and of the libraries."""
    return platformdirs.user_cache_path("circinus") / "pictures" / models_version()


@cache
def models_version() -> str:
    """Return what trained models depend on, as a short hash."""
    libraries = ("numpy", "scikit-learn", "torch")
    parts = [f"pictures {VERSION}", *(f"{name} {version(name)}" for name in libraries)]
    return blake2b("\n".join(parts).encode(), digest_size=6).hexdigest()


def _normalised(scores: NDArray[np.floating]) -> FloatArray:  # (n, CLASSES) both
    split = np.split(scores, [len(COLOURS)], axis=1)
    return np.concatenate([log_softmax(part, axis=1) for part in split], axis=1).astype(np.float32)


# --- Detector ---------------------------------------------------------------------------

_DETECTOR_CLASSES = 91
_INPUTS = {32: 204, 64: 204, 128: 300}  # side of a frame -> side of what the detector gets


def _detected(frame: UInt8Array) -> FloatArray:  # (d,)
    """Return the best score of each class, then size, shape and colour of the surest box."""
    side = frame.shape[0]
    rows = SSD.rows_of(frame, _INPUTS.get(side, 300))
    scores = np.zeros(_DETECTOR_CLASSES, dtype=np.float32)
    np.maximum.at(scores, rows[:, 1].astype(np.intp), rows[:, 2])
    small = rows[(rows[:, 5:] - rows[:, 3:5]).max(axis=1) < 0.7]  # not the whole picture
    best = small[0] if len(small) else rows[0]
    left, top, right, bottom = np.clip(np.rint(best[3:] * side), 0, side).astype(int).tolist()
    box = frame[top : max(bottom, top + 1), left : max(right, left + 1)].reshape(-1, 3)
    colour = np.median(box, axis=0) / 255 if len(box) else np.zeros(3)
    sides = np.array([right - left, bottom - top]) / side
    return np.concatenate([scores, sides, colour]).astype(np.float32)


# --- Training ---------------------------------------------------------------------------

TRAINED_BY_SEED = 0
NETWORK_FRAMES = 6000
_TRAINING = NetworkTraining(epochs=8, batch=64, learning_rate=3e-3)
HEAD_FRAMES, DETECTOR_FRAMES = 600, 240  # a detector takes a tenth of a second for each


def training_frames(count: int, side: int) -> tuple[UInt8Array, NDArray[np.int64]]:
    """Return frames of pictures for training, and their labels, (count, 2): colour, shape."""
    rng = np.random.Generator(np.random.PCG64(TRAINED_BY_SEED))
    material = pictures("train")
    frames = np.empty((count, side, side, 3), dtype=np.uint8)
    labels = np.empty((count, 2), dtype=np.int64)
    for frame, row in zip(frames, labels, strict=True):
        picture = material[int(rng.integers(len(material)))]
        drawn = drawn_frame(picture.pixels, drawn_camera(rng), rng)
        frame[:] = shrunk(drawn[None], side)[0]
        row[:] = COLOURS.index(picture.labels.colour), SHAPES.index(picture.labels.shape)
    return frames, labels


def _train_head(model: str, count: int, side: int) -> Arrays:
    from sklearn.linear_model import LogisticRegression

    frames, labels = training_frames(count, side)
    F = features_of(frames, model)
    mean, scale = F.mean(axis=0), F.std(axis=0) + 1e-3
    heads = [
        LogisticRegression(C=0.05, max_iter=300).fit((F - mean) / scale, column)
        for column in labels.T
    ]
    return {
        "mean": mean,
        "scale": scale,
        "matrix": np.concatenate([head.coef_ for head in heads]).T.astype(np.float32),
        "offset": np.concatenate([head.intercept_ for head in heads]).astype(np.float32),
    }


def train_network(frames: UInt8Array, labels: NDArray[np.int64]) -> Arrays:
    """Return the weights of the small network, trained on frames and their labels, (n, 2)."""
    import torch

    samples, targets = torch.from_numpy(frames), torch.from_numpy(labels)

    def loss(network: torch.nn.ModuleDict, rows: torch.Tensor) -> torch.Tensor:
        return _loss(_scores(network, samples[rows]), targets[rows])

    return trained_network(lambda: _layers(frames.shape[1]), loss, len(samples), _TRAINING)


def _layers(side: int) -> torch.nn.ModuleDict:
    """Return the layers; large frames are looked at in larger steps first."""
    from torch import nn

    step = 4 if side > SIDES[1] else 2
    return nn.ModuleDict(
        {
            "0": nn.Conv2d(3, 16, 2 * step - 1, stride=step, padding=step - 1),
            "1": nn.Conv2d(16, 32, 3, stride=2, padding=1),
            "2": nn.Conv2d(32, 64, 3, stride=2, padding=1),
            "3": nn.Linear(128, CLASSES),
        }
    )


def _scores(network: torch.nn.ModuleDict, frames: torch.Tensor) -> torch.Tensor:
    """Return scores of the classes; means and maxima over the frame go into the last layer."""
    import torch

    values = frames.permute(0, 3, 1, 2).float() / 255 - 0.5
    for name in ("0", "1", "2"):
        values = network[name](values).relu()
    return network["3"](torch.cat([values.mean(dim=(2, 3)), values.amax(dim=(2, 3))], dim=1))  # type: ignore[no-any-return]  # torch leaves it untyped


def _loss(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from torch.nn.functional import cross_entropy

    colours, shapes = scores[:, : len(COLOURS)], scores[:, len(COLOURS) :]
    return cross_entropy(colours, labels[:, 0]) + cross_entropy(shapes, labels[:, 1])


def by_network(arrays: Arrays, frames: UInt8Array) -> FloatArray:
    """Return log-probabilities of frames by the weights of a small network."""
    import torch

    one_thread()
    network = _layers(frames.shape[1])
    network.load_state_dict({name: torch.from_numpy(value) for name, value in arrays.items()})
    with torch.inference_mode():
        # A copy: what operators get is read-only, and torch warns of memory it could write.
        scores = _scores(network, torch.from_numpy(np.array(frames, order="C")))
    return _normalised(scores.numpy())


TRAINING: Mapping[str, Callable[[int], Arrays]] = {
    "network": lambda side: train_network(*training_frames(NETWORK_FRAMES, side)),
    "detector": partial(_train_head, "detector", DETECTOR_FRAMES),
    **{name: partial(_train_head, name, HEAD_FRAMES) for name in LITE},
}
NAMES = tuple(TRAINING)
