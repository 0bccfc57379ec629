"""Operator `sampler`: the page larger or smaller."""

from __future__ import annotations

import numpy as np

from pipelines.catalog.ocr.page import UInt8Array


def resized(
    page: UInt8Array,  # (height, width)
    *,
    scale: float,
) -> UInt8Array:  # (height * scale, width * scale), rounded
    """The page at that scale: mean of the area when smaller, cubic interpolation when larger."""
    import cv2  # the only other home of OpenCV is `cleaning`

    if scale == 1:
        return np.ascontiguousarray(page)
    cv2.setNumThreads(1)
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    larger = cv2.resize(page, None, fx=scale, fy=scale, interpolation=method)
    return np.asarray(larger, dtype=np.uint8)
