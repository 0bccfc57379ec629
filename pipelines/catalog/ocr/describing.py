"""How hard a page looks: its noise, and cheap features for stratified sampling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipelines.catalog.ocr.page import UInt8Array

BLOCKS = (4, 16)
"""Rows and columns of blocks whose brightness is compared."""


def page_features(page: UInt8Array) -> NDArray[np.float64]:
    """How hard a page looks.

    Args:
        page: uint8 (height, width), at least 16 pixels a side.

    Returns:
        (5,): noise level, mean brightness, shadow (brightest less darkest block), share of black
        and white pixels, share of the rows with text (their mean is nearer to that of the
        darkest row than to that of the brightest); the first three in grey levels.
    """
    height, width = (side - side % count for side, count in zip(page.shape, BLOCKS, strict=True))
    rows, columns = BLOCKS
    blocks = page[:height, :width].reshape(rows, height // rows, columns, width // columns)
    light = blocks.mean(axis=(1, 3))
    profile = page.mean(axis=1)
    return np.array(
        [
            noise_level(page),
            page.mean(),
            np.ptp(light),
            np.mean((page == 0) | (page == 255)),
            np.mean(profile < (profile.min() + profile.max()) / 2),
        ]
    )


def noise_level(page: UInt8Array) -> float:
    """Standard deviation of the noise, grey levels, as told by flat paper.

    The robust standard deviation of the difference of neighbouring pixels (Rousseeuw and Croux
    1993), over sqrt(2) because both have the noise; every other row is looked at.
    """
    rows = page[::2].astype(np.int16)
    steps = np.abs(rows[:, 1:] - rows[:, :-1])
    return float(1.4826 * np.median(steps) / np.sqrt(2))
