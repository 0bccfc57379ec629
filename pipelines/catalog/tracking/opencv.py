"""The only home of OpenCV in this pipeline: imported when first used, on one thread."""

from __future__ import annotations

from types import ModuleType


def opencv() -> ModuleType:
    """OpenCV, kept to one thread: operators are timed, and worker processes share the cores."""
    import cv2

    if cv2.getNumThreads() != 1:
        cv2.setNumThreads(1)
    return cv2
