"""What classifiers learn from: crops of the training digits, drawn as a located digit looks.

One rule: crops are drawn directly, never through the operators, so every configuration meets
classifiers that know none of its faults.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import ndimage

from pipelines.catalog.digits.describing import described_crops
from pipelines.catalog.digits.geometry import CROP, GLYPH, WINDOW, FloatArray, IntArray, UInt8Array
from pipelines.catalog.digits.glyphs import training_glyphs

COPIES = 4
"""Crops per training digit, each distorted anew."""
TRAINING_SEED = 8


def training_set(
    kind: str,
) -> tuple[FloatArray, IntArray]:  # (n_samples, n_features), (n_samples,)
    """Features of that kind of the training crops, and the digits they show."""
    crops, labels = _crops()
    return described_crops(crops[:, None], kind=kind)[:, 0], labels


@cache
def _crops() -> tuple[UInt8Array, IntArray]:  # (n_samples, CROP, CROP), (n_samples,)
    rng = np.random.Generator(np.random.PCG64(TRAINING_SEED))
    glyphs = training_glyphs()
    crops = [_distorted(ink, rng) for _ in range(COPIES) for ink in glyphs.images]
    return np.stack(crops), np.tile(glyphs.labels, COPIES)


def _distorted(
    ink: FloatArray,  # (8, 8)
    rng: np.random.Generator,
) -> UInt8Array:  # (CROP, CROP)
    """A digit turned, moved, resized, under noise, and half of the time blurred as by a filter."""
    angle = np.deg2rad(rng.uniform(-15, 15))
    size = CROP * GLYPH / WINDOW / len(ink) * rng.uniform(0.88, 1.12)  # samples per ink pixel
    move = rng.normal(0, 0.9, size=2)
    cos, sin = np.cos(angle) / size, np.sin(angle) / size
    turn = np.array([[cos, -sin], [sin, cos]])
    centre = (len(ink) - 1) / 2 - turn @ ((CROP - 1) / 2 + move)
    light = ndimage.affine_transform(ink, turn, centre, output_shape=(CROP, CROP), order=1)
    image = rng.uniform(30, 80) + rng.uniform(100, 175) * light
    image += rng.uniform(5, 65) * rng.standard_normal(image.shape)
    if rng.random() < 0.5:
        image = ndimage.gaussian_filter(image, rng.uniform(0.3, 0.8))
    return np.asarray(np.clip(np.rint(image), 0, 255), dtype=np.uint8)
