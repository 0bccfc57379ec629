"""Operator `cleaner`: five ways to clean a page, from nothing to non-local means.

One rule: a page in, a page of the same shape out.
"""

from __future__ import annotations

import numpy as np

from pipelines.catalog.ocr.describing import noise_level
from pipelines.catalog.ocr.page import UInt8Array
from pipelines.errors import InvalidInput

KINDS = ("none", "median", "otsu", "adaptive", "nlm")
MEDIAN = 3
"""Side of the median's window, pixels of the page as it is."""
NEIGHBOURHOOD = 31
"""Side of the window whose weighted mean a pixel is compared with; wider than letters."""
DARKER_BY = 25
"""Grey levels that ink is darker than that mean: less would make ink of noisy paper."""
FILTERING = 1.0
"""h / sigma of non-local means: how unlike patches may be, as a multiple of the page's noise."""
LEAST_NOISE = 2.0
"""Grey levels: a page without noise leaves nothing to divide by."""
PATCH = 5
REACH = 13
"""Sides of the patches compared and of the window searched for them."""


def cleaned(
    page: UInt8Array,  # (height, width)
    *,
    kind: str,
) -> UInt8Array:  # (height, width)
    """The page, cleaned in that way; `otsu` and `adaptive` leave only black and white."""
    import cv2

    cv2.setNumThreads(1)
    match kind:
        case "none":
            return page
        case "median":
            result = cv2.medianBlur(page, MEDIAN)
        case "otsu":
            _, result = cv2.threshold(page, 0, 255, cv2.THRESH_BINARY | cv2.THRESH_OTSU)
        case "adaptive":
            mean = cv2.ADAPTIVE_THRESH_GAUSSIAN_C
            result = cv2.adaptiveThreshold(
                page, 255, mean, cv2.THRESH_BINARY, NEIGHBOURHOOD, DARKER_BY
            )
        case "nlm":
            strength = FILTERING * max(noise_level(page), LEAST_NOISE)
            result = cv2.fastNlMeansDenoising(page, None, strength, PATCH, REACH)
        case _:
            raise InvalidInput.of("kind", f"must be one of {', '.join(KINDS)}", kind)
    return np.asarray(result, dtype=np.uint8)
