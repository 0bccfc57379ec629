"""What a page is: grey levels of a scan, dark text on light paper.

One rule: operators check pages here, on the way in; the functions behind trust them.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.errors import InvalidInput
from pipelines.payload import Payload

WIDTH = 680
HEIGHT = 140
"""Of the pages that are drawn here; pages of users may be of any size allowed below."""

SCALES = (0.5, 0.75, 1.0, 1.5)
SHORTEST_SIDE = 16
LONGEST_SIDE = 2048
"""Sides of a page as it comes, pixels: at most 4 megabytes, so that no engine runs for minutes."""

UInt8Array: TypeAlias = NDArray[np.uint8]


def checked_page(value: Payload) -> UInt8Array:  # (height, width)
    """The value as a page as it comes.

    Raises:
        InvalidInput: It is not a uint8 array of two sides of 16 to 2048 pixels each.
    """
    return _checked(value, SHORTEST_SIDE, LONGEST_SIDE)


def checked_scaled_page(value: Payload) -> UInt8Array:  # (height, width)
    """The value as a page at one of the scales.

    Raises:
        InvalidInput: It is not a uint8 array of two sides of 8 to 3072 pixels each.
    """
    return _checked(value, int(SHORTEST_SIDE * min(SCALES)), int(LONGEST_SIDE * max(SCALES)))


def _checked(value: Payload, shortest: int, longest: int) -> UInt8Array:
    if (
        isinstance(value, np.ndarray)
        and value.dtype == np.uint8
        and value.ndim == 2
        and all(shortest <= side <= longest for side in value.shape)
    ):
        return value.view(np.uint8)
    rule = f"must be a uint8 array (height, width) of {shortest} to {longest} pixels a side"
    raise InvalidInput.of("page", rule, _described(value))


def _described(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} array of shape {value.shape}"
    return type(value).__name__
