"""The handwritten digits, split once into those to learn from and those to show.

One rule: a digit that is shown in a clip was never seen by a classifier.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from pipelines.catalog.digits.geometry import FloatArray, IntArray

SPLIT_SEED = 1797
TRAINING_DIGITS = 1000
"""Of the 1,797; the other 797 are shown in clips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Handwritten digits with their labels.

    Attributes:
        images: Ink in [0, 1], float32 (n_glyphs, 8, 8).
        labels: Digit shown, 0-9, int64 (n_glyphs,).
        indices: Row of each in scikit-learn's digits, int64 (n_glyphs,).
    """

    images: FloatArray
    labels: IntArray
    indices: IntArray


def training_glyphs() -> Glyphs:
    """The digits that classifiers learn from."""
    return _split()[0]


def held_out_glyphs() -> Glyphs:
    """The digits that clips show."""
    return _split()[1]


@cache
def _split() -> tuple[Glyphs, Glyphs]:
    from sklearn.datasets import load_digits  # slow to import: only where digits are drawn

    images, labels = load_digits(return_X_y=True)
    ink = (images.reshape(-1, 8, 8) / 16).astype(np.float32)
    order = np.random.Generator(np.random.PCG64(SPLIT_SEED)).permutation(len(ink))
    first, second = (
        Glyphs(images=ink[rows], labels=labels[rows].astype(np.int64), indices=rows)
        for rows in (np.sort(order[:TRAINING_DIGITS]), np.sort(order[TRAINING_DIGITS:]))
    )
    return first, second
