"""Where something moves: five ways to tell the foreground of frames from their background.

One rule: frames in, one mask (0 or 255) per frame out, in order; whatever is learned is learned
from these frames alone and forgotten afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

import numpy as np

from pipelines.catalog.tracking.handed_over import FloatArray, UInt8Array
from pipelines.catalog.tracking.opencv import opencv
from pipelines.catalog.tracking.steadying import shifts

Masks = Iterator[UInt8Array]

FLOOR, NOISES = 14.0, 4.5
"""A pixel has changed when it differs by more grey levels and more times the noise than these."""
KEYFRAMES = 9
"""Frames that a median background is made of."""
LESSONS = 12
"""Frames that a subtractor sees before it judges the first one: without them, whatever stands in
the first frame leaves a ghost there."""
RATE = 0.005
"""Share of the background that a frame renews afterwards: little, or what moves slowly fades."""
SEED = 48
"""OpenCV's K nearest neighbours draw from a global generator: it starts here for every clip."""


def _differences(frames: UInt8Array) -> Masks:
    """What differs from the frame before and from the one after (Collins et al. 2000), filled."""
    cv2 = opencv()
    limit = _limit(frames)
    steps = [cv2.absdiff(before, frame) for before, frame in pairwise(frames)]
    whole = np.ones((1 + frames.shape[2] // 48 * 2,) * 2, dtype=np.uint8)  # odd: shifts nothing
    for before, after in zip([steps[0], *steps], [*steps, steps[-1]], strict=True):
        edges = cv2.threshold(cv2.min(before, after), limit, 255, cv2.THRESH_BINARY)[1]
        yield cv2.morphologyEx(edges, cv2.MORPH_CLOSE, whole)


def _from_median(frames: UInt8Array) -> Masks:
    """What differs from the median of some frames."""
    cv2 = opencv()
    limit = _limit(frames)
    background = _median(frames[_spread(len(frames), KEYFRAMES)])
    for frame in frames:
        yield cv2.threshold(cv2.absdiff(frame, background), limit, 255, cv2.THRESH_BINARY)[1]


def _from_steady_median(frames: UInt8Array) -> Masks:
    """The same, with the background moved to where the camera looks, in the light of the frame."""
    cv2 = opencv()
    limit = _limit(frames)
    ways = shifts(frames)
    brightness = frames[:, ::3, ::3].mean(axis=(1, 2)) + 1.0  # never 0
    keys = _spread(len(frames), KEYFRAMES)
    gains = (brightness[0] / brightness).tolist()
    background = _median(np.stack([_moved(frames[key], -ways[key], gains[key]) for key in keys]))
    for frame, way, gain in zip(frames, ways, gains, strict=True):
        expected = _moved(background, way, 1 / gain)
        yield cv2.threshold(cv2.absdiff(frame, expected), limit, 255, cv2.THRESH_BINARY)[1]


def _mixtures(frames: UInt8Array) -> Masks:
    """What no likely Gaussian of its pixel explains (Zivkovic 2004)."""
    cv2 = opencv()
    variance = max(15.0, 1.2 * _noise(frames) ** 2)
    subtractor = cv2.createBackgroundSubtractorMOG2(2 * LESSONS, 12, False)
    subtractor.setVarInit(variance)
    subtractor.setVarMin(variance)
    subtractor.setVarMax(2 * variance)
    subtractor.setBackgroundRatio(0.6)
    return _subtracted(subtractor, frames)


def _neighbours(frames: UInt8Array) -> Masks:
    """What has too few neighbours among earlier values (Zivkovic and van der Heijden 2006)."""
    cv2 = opencv()
    cv2.setRNGSeed(SEED)
    distance2 = max(200.0, 8 * _noise(frames) ** 2)
    return _subtracted(cv2.createBackgroundSubtractorKNN(2 * LESSONS, distance2, False), frames)


FOREGROUNDS: Mapping[str, Callable[[UInt8Array], Masks]] = MappingProxyType(
    {
        "diff": _differences,
        "medbg": _from_median,
        "mog2": _mixtures,
        "knn": _neighbours,
        "medbg+": _from_steady_median,
    }
)
"""Method -> frames, uint8 (n_frames, height, width) -> masks, uint8 (height, width) each."""


class _Subtractor(Protocol):
    """What OpenCV's background subtractors are."""

    def apply(self, image: UInt8Array, *, learningRate: float = -1) -> UInt8Array:
        """Give the mask of an image, and learn from it."""


def _subtracted(subtractor: _Subtractor, frames: UInt8Array) -> Masks:
    for index in _spread(len(frames), LESSONS):
        subtractor.apply(frames[index])
    for frame in frames:
        yield subtractor.apply(frame, learningRate=RATE)


def _limit(frames: UInt8Array) -> float:
    """Grey levels from which on a difference is more than noise."""
    return max(FLOOR, NOISES * _noise(frames))


def _noise(frames: UInt8Array) -> float:
    """Grey levels: robust standard deviation of the steps between the first two frames."""
    steps = frames[1, ::2, ::2].astype(np.float32) - frames[0, ::2, ::2]
    return 1.4826 / 2**0.5 * float(np.median(np.abs(steps - np.median(steps))))


def _spread(n_frames: int, most: int) -> list[int]:
    """Indices of at most so many frames, evenly spread from the first to the last."""
    return sorted({round(index) for index in np.linspace(0, n_frames - 1, most).tolist()})


def _median(frames: UInt8Array) -> UInt8Array:
    """The middle value of each pixel; of an even number of frames, the lower of the two."""
    middle = (len(frames) - 1) // 2
    return np.asarray(np.partition(frames, middle, axis=0)[middle])


def _moved(image: UInt8Array, way: FloatArray, gain: float) -> UInt8Array:
    """The image moved by (x, y) pixels, times a gain."""
    cv2 = opencv()
    size = image.shape[::-1]
    turn = np.array([[1, 0, way[0]], [0, 1, way[1]]], dtype=np.float32)
    there = cv2.warpAffine(image, turn, size, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.convertScaleAbs(there, alpha=gain), dtype=np.uint8)
