"""Operator `features`: what a classifier gets of a crop.

One rule: features do not change when a crop gets brighter or gains contrast.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from circinus.pipelines.catalog.digits.geometry import CROP, FloatArray, UInt8Array
from circinus.pipelines.errors import InvalidInput

ORIENTATIONS = 8
CELLS = 4
SHAPES: Mapping[str, tuple[int, int, int]] = {
    "raw": (1, CROP, CROP),
    "pool8": (1, 8, 8),
    "hog": (ORIENTATIONS, CELLS, CELLS),
}
"""Features of each kind as an image: channels, height, width."""


def kind_of(n_features: int) -> str:
    """Return the kind of features that has that many; InvalidInput if none has."""
    sizes = {prod(shape): kind for kind, shape in SHAPES.items()}
    if n_features not in sizes:
        raise InvalidInput.of("features per crop", f"must be one of {sorted(sizes)}", n_features)
    return sizes[n_features]


def described_crops(crops: UInt8Array, *, kind: str) -> FloatArray:
    """Return features of crops (n, m, CROP, CROP): (n, m, the product of `SHAPES[kind]`)."""
    match kind:
        case "raw":
            images = crops.astype(np.float32)
            return _standardised(images.reshape(*crops.shape[:2], -1))
        case "pool8":
            return _standardised(_pooled(crops))
        case _:  # hog
            return _gradient_histograms(crops)


def _standardised(values: FloatArray) -> FloatArray:
    centred = values - values.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, keepdims=True) + 1.0  # a flat crop stays flat
    return np.asarray(centred / spread, dtype=np.float32)


def _pooled(crops: UInt8Array) -> FloatArray:
    """Return means of 2 x 2 blocks."""
    side = CROP // 2
    blocks = crops.reshape(*crops.shape[:2], side, 2, side, 2)
    means = np.asarray(blocks.mean(axis=(3, 5), dtype=np.float32))
    return means.reshape(*crops.shape[:2], -1)


def _gradient_histograms(crops: UInt8Array) -> FloatArray:
    """Return histograms of signed gradient directions in 4 x 4 cells, unit length.

    After Dalal and Triggs 2005 ("Histograms of oriented gradients for human detection"), with
    hard binning and one normalisation over the whole crop instead of over blocks.
    """
    image = crops.astype(np.float32)
    down, right = np.gradient(image, axis=(2, 3))
    strength = np.hypot(down, right)
    turn = np.arctan2(down, right) / (2 * np.pi) * ORIENTATIONS
    bins = np.rint(turn).astype(np.int8) % ORIENTATIONS
    cell = CROP // CELLS
    cells = (*crops.shape[:2], CELLS, cell, CELLS, cell)
    histograms = np.stack(
        [
            np.where(bins == orientation, strength, 0).reshape(cells).sum(axis=(3, 5))
            for orientation in range(ORIENTATIONS)
        ],
        axis=2,
    ).reshape(*crops.shape[:2], -1)
    length = np.linalg.norm(histograms, axis=-1, keepdims=True)
    return np.asarray(histograms / (length + 1.0) * np.sqrt(histograms.shape[-1]), np.float32)
