"""Operators `sampler`, `resizer` and `denoiser`, and `detector`: boxes around what moves.

There are five ways to split the foreground of frames from their background: frames in, one mask (0
or 255) per frame out, in order; whatever is learned is learned from these frames alone and
forgotten afterwards. Masks are cleaned at the same size in pixels of the clip, whatever the
frames' scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np

from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.catalog.tracking.footage import (
    LOOK,
    MOST_BOXES,
    Detections,
    FloatArray,
    Footage,
    UInt8Array,
)

KINDS = ("none", "gauss")
BLUR = 1.2
"""Standard deviation of the Gaussian, pixels of the frame as it is (so blurrier at half size)."""


def sampled(clip: UInt8Array, *, stride: int) -> Footage:  # (n_frames, height, width, ...)
    """Return every `stride`-th frame, from the first on."""
    frames = np.ascontiguousarray(clip[::stride])
    return Footage(frames=frames, stride=stride, length=len(clip))


def resized(footage: Footage, *, width: int) -> Footage:
    """Return frames of that width and in proportion; those that are no wider stay as they are."""
    height_now, width_now = footage.frames.shape[1:3]
    if width >= width_now:
        return footage
    height = max(1, round(height_now * width / width_now))
    frames = _shrunk(footage.frames, (width, height))
    return replace(footage, frames=frames, scale=footage.scale * width_now / width)


def _shrunk(frames: UInt8Array, size: tuple[int, int]) -> UInt8Array:
    """Return frames of that (width, height)."""
    cv2 = opencv()
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def denoised(footage: Footage, *, kind: str) -> Footage:
    """Return the frames as they are (`none`) or under a Gaussian (`gauss`)."""
    if kind == "none":
        return footage
    cv2 = opencv()
    smooth = np.stack([cv2.GaussianBlur(frame, (7, 7), BLUR) for frame in footage.frames])
    return replace(footage, frames=smooth)


SHIFTS_WIDTH = 240
"""Frames are shrunk to about this width first: cheaper, and noise is averaged away."""
FARTHEST = 0.05  # share of the width: a larger shift is a mistaken peak, and taken as none


def shifts(frames: UInt8Array) -> FloatArray:  # (n_frames, height, width) -> (n_frames, 2)
    """By how many pixels (x, y) each frame's content lies away from the first's."""
    cv2 = opencv()
    factor = max(1, frames.shape[2] // SHIFTS_WIDTH)
    size = (frames.shape[2] // factor, frames.shape[1] // factor)
    small = _shrunk(frames, size).astype(np.float32)
    window = cv2.createHanningWindow(size, cv2.CV_32F)
    candidates = np.array([cv2.phaseCorrelate(small[0], frame, window)[0] for frame in small])
    candidates[np.abs(candidates).max(axis=1) > FARTHEST * size[0]] = 0.0
    return np.asarray(candidates * factor)


Masks = Iterator[UInt8Array]

FLOOR, NOISES = 14.0, 4.5
"""A pixel has changed when it differs by more grey levels and more times the noise than these."""
KEYFRAMES = 9  # frames that a median background is made of
LESSONS = 12
"""Frames that a subtractor sees before it judges the first one: without them, whatever stands in
the first frame leaves a ghost there."""
RATE = 0.005
"""Share of the background that a frame renews afterwards: little, or what moves slowly fades."""
SEED = 48
"""OpenCV's K nearest neighbours draw from a global generator: it starts here for every clip."""


def _differences(frames: UInt8Array) -> Masks:
    """Return what differs from the frames before and after (Collins et al. 2000), filled."""
    cv2 = opencv()
    limit = _limit(frames)
    steps = [cv2.absdiff(before, frame) for before, frame in pairwise(frames)]
    whole = np.ones((1 + frames.shape[2] // 48 * 2,) * 2, dtype=np.uint8)  # odd: shifts nothing
    for before, after in zip([steps[0], *steps], [*steps, steps[-1]], strict=True):
        edges = cv2.threshold(cv2.min(before, after), limit, 255, cv2.THRESH_BINARY)[1]
        yield cv2.morphologyEx(edges, cv2.MORPH_CLOSE, whole)


def _from_median(frames: UInt8Array) -> Masks:
    """Return what differs from the median of some frames."""
    cv2 = opencv()
    limit = _limit(frames)
    background = _median(frames[_spread(len(frames), KEYFRAMES)])
    for frame in frames:
        yield cv2.threshold(cv2.absdiff(frame, background), limit, 255, cv2.THRESH_BINARY)[1]


def _from_steady_median(frames: UInt8Array) -> Masks:
    """Return the same, the background moved with the camera and lit as the frame."""
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
    """Return what no likely Gaussian of its pixel explains (Zivkovic 2004)."""
    cv2 = opencv()
    variance = max(15.0, 1.2 * _noise(frames) ** 2)
    subtractor = cv2.createBackgroundSubtractorMOG2(2 * LESSONS, 12, False)
    subtractor.setVarInit(variance)
    subtractor.setVarMin(variance)
    subtractor.setVarMax(2 * variance)
    subtractor.setBackgroundRatio(0.6)
    return _subtracted(subtractor.apply, frames)


def _neighbours(frames: UInt8Array) -> Masks:
    """Return what has few neighbours among earlier values (Zivkovic, van der Heijden 2006)."""
    cv2 = opencv()
    cv2.setRNGSeed(SEED)
    distance2 = max(200.0, 8 * _noise(frames) ** 2)
    subtractor = cv2.createBackgroundSubtractorKNN(2 * LESSONS, distance2, False)
    return _subtracted(subtractor.apply, frames)


FOREGROUNDS: Mapping[str, Callable[[UInt8Array], Masks]] = {
    "diff": _differences,
    "medbg": _from_median,
    "mog2": _mixtures,
    "knn": _neighbours,
    "medbg+": _from_steady_median,
}
"""Method -> frames, uint8 (n_frames, height, width) -> masks, uint8 (height, width) each."""


def _subtracted(apply: Callable[..., UInt8Array], frames: UInt8Array) -> Masks:
    """Return the masks of one of OpenCV's background subtractors, as it learns."""
    for index in _spread(len(frames), LESSONS):
        apply(frames[index])
    for frame in frames:
        yield apply(frame, learningRate=RATE)


def _limit(frames: UInt8Array) -> float:
    """Return grey levels from which on a difference is more than noise."""
    return max(FLOOR, NOISES * _noise(frames))


def _noise(frames: UInt8Array) -> float:
    """Return grey levels: robust standard deviation of the steps between the first two frames."""
    steps = frames[1, ::2, ::2].astype(np.float32) - frames[0, ::2, ::2]
    return 1.4826 / 2**0.5 * float(np.median(np.abs(steps - np.median(steps))))


def _spread(n_frames: int, most: int) -> list[int]:
    """Return indices of at most so many frames, evenly spread from the first to the last."""
    return sorted({round(index) for index in np.linspace(0, n_frames - 1, most).tolist()})


def _median(frames: UInt8Array) -> UInt8Array:
    """Return the middle value of each pixel; of an even number of frames, the lower of the two."""
    middle = (len(frames) - 1) // 2
    return np.asarray(np.partition(frames, middle, axis=0)[middle])


def _moved(image: UInt8Array, way: FloatArray, gain: float) -> UInt8Array:
    """Return the image moved by (x, y) pixels, times a gain."""
    cv2 = opencv()
    size = image.shape[::-1]
    turn = np.array([[1, 0, way[0]], [0, 1, way[1]]], dtype=np.float32)
    there = cv2.warpAffine(image, turn, size, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(cv2.convertScaleAbs(there, alpha=gain), dtype=np.uint8)


SPECK, GAP = 5, 11
"""Pixels of the clip: what is thinner is wiped away, holes and gaps narrower than that closed."""
SMALLEST = 80  # pixels of the clip that a region must cover


def detected(footage: Footage, *, method: str) -> Detections:
    """Return boxes of the regions that move, found by a method of `FOREGROUNDS`."""
    boxes: list[list[int]] = []
    looks: list[UInt8Array] = []
    masks = FOREGROUNDS[method](footage.frames)
    for index, (frame, mask) in enumerate(zip(footage.frames, masks, strict=True)):
        for x, y, width, height in _regions(mask, footage.scale):
            there = [round(side * footage.scale) for side in (x, y, width, height)]
            boxes.append([index * footage.stride, *there])
            box = frame[y : y + height, x : x + width]
            counts = np.bincount(box.ravel() // (256 // LOOK), minlength=LOOK)
            looks.append((counts * 255 // box.size).astype(np.uint8))
    return Detections(
        boxes=np.array(boxes, dtype=np.int16).reshape(-1, 5),
        looks=np.array(looks, dtype=np.uint8).reshape(-1, LOOK),
        stride=footage.stride,
        length=footage.length,
    )


def _regions(mask: UInt8Array, scale: float) -> Iterator[tuple[int, int, int, int]]:
    """Return boxes (x, y, w, h), pixels of the mask, of its largest regions, largest first."""
    cv2 = opencv()
    opened = cv2.morphologyEx(mask, cv2.MORPH_OPEN, _square(SPECK / scale))
    closed = cv2.morphologyEx(opened, cv2.MORPH_CLOSE, _square(GAP / scale))
    stats = cv2.connectedComponentsWithStats(closed)[2][1:]  # the first one is the background
    for row in stats[np.argsort(-stats[:, 4], kind="stable")][:MOST_BOXES].tolist():
        if row[4] * scale**2 >= SMALLEST:
            yield row[0], row[1], row[2], row[3]


def _square(side: float) -> UInt8Array:
    odd = max(1, 2 * round((side - 1) / 2) + 1)
    return np.ones((odd, odd), dtype=np.uint8)
