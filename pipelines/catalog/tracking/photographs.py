"""What clips are made of: scikit-learn's two sample photographs, cut into tiles."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from pipelines.catalog.tracking.handed_over import UInt8Array
from pipelines.catalog.tracking.opencv import opencv

PHOTOGRAPHS = ("china.jpg", "flower.jpg")
ROWS, COLUMNS = 2, 3
"""Tiles of a photograph: 213 x 213 pixels, twelve in all, so four for a seed to draw from."""


@cache
def tiles() -> tuple[UInt8Array, ...]:
    """The tiles in grey, disjoint, in a fixed order; read-only."""
    return tuple(
        tile
        for photograph in map(_photograph, PHOTOGRAPHS)
        for row in np.array_split(photograph, ROWS, axis=0)
        for tile in np.array_split(row, COLUMNS, axis=1)
    )


def _photograph(name: str) -> UInt8Array:
    cv2 = opencv()
    grey = np.asarray(cv2.imread(str(_folder() / name), cv2.IMREAD_GRAYSCALE), dtype=np.uint8)
    grey.flags.writeable = False
    return grey


def _folder() -> Path:
    """Where scikit-learn has them; found without importing it, which takes a second."""
    spec = find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("sklearn")
    return Path(spec.origin).parent / "datasets" / "images"
