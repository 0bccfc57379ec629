"""The handwritten digits, split once into those to learn from and those to show.

A digit that is shown in a clip was never seen by a classifier. What classifiers learn from are
crops drawn as a located digit looks, directly and never through the operators, so every
configuration meets classifiers that know none of its violations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from circinus.pipelines.catalog.digits.describing import described_crops
from circinus.pipelines.catalog.digits.geometry import (
    CROP,
    GLYPH,
    WINDOW,
    FloatArray,
    IntArray,
    UInt8Array,
)
from circinus.pipelines.catalog.material import grey

SPLIT_SEED = 1797
TRAINING_DIGITS = 1000  # of the 1,797; the other 797 are shown in clips


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Handwritten digits with their labels."""

    images: FloatArray  # ink in [0, 1], float32 (n_glyphs, 8, 8)
    labels: IntArray  # digit shown, 0-9, int64 (n_glyphs,)
    indices: IntArray  # row of each in scikit-learn's digits, int64 (n_glyphs,)


@cache
def split_glyphs() -> tuple[Glyphs, Glyphs]:
    """The digits that classifiers learn from, and those that clips show."""
    images, labels = _scikit_learn_digits()
    ink = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(ink))
    first, second = (
        Glyphs(images=ink[rows], labels=labels[rows].astype(np.int64), indices=rows)
        for rows in (np.sort(order[:TRAINING_DIGITS]), np.sort(order[TRAINING_DIGITS:]))
    )
    return first, second


def _scikit_learn_digits() -> tuple[NDArray[np.float64], IntArray]:  # (1797, 64), (1797,)
    """Images and labels; from the library's file, if it is there: importing it takes a second."""
    spec = find_spec("sklearn")
    for folder in (spec and spec.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            rows = np.loadtxt(file, delimiter=",")
            return rows[:, :-1], rows[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return images, labels


COPIES = 4  # crops per training digit, each distorted anew
TRAINING_SEED = 8


def training_set(kind: str) -> tuple[FloatArray, IntArray]:  # (n, n_features), (n,)
    """Features of that kind of the training crops, and the digits they show."""
    crops, labels = _crops()
    return described_crops(crops[:, None], kind=kind)[:, 0], labels


@cache
def _crops() -> tuple[UInt8Array, IntArray]:  # (n_samples, CROP, CROP), (n_samples,)
    rng = np.random.Generator(np.random.PCG64(TRAINING_SEED))
    glyphs, _ = split_glyphs()
    crops = [_distorted(ink, rng) for _ in range(COPIES) for ink in glyphs.images]
    return np.stack(crops), np.tile(glyphs.labels, COPIES)


def _distorted(ink: FloatArray, rng: np.random.Generator) -> UInt8Array:  # -> (CROP, CROP)
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
    return grey(image)
