"""Pictures that clips are made of: backgrounds, and cut-outs of photographs and a recording.

One rule: pixels that belong to an object are chosen once and by no detector that is measured, so
that its box is exact. A person is what differs from the median of the recording; what a photograph
shows is split from its background by graph cuts (Rother et al. 2004, "GrabCut").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import opencv, part_of
from circinus.pipelines.catalog.tracking.footage import UInt8Array
from circinus.pipelines.errors import InvalidInput

FOLDER = Path("/usr/share/doc/opencv-doc/examples")
RECORDING = FOLDER / "data" / "vtest.avi"
"""Persons cross a place, in front of a camera that stands still."""
_LISTED = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOut:
    """A picture of one object; its edges are those of the object."""

    image: UInt8Array  # (height, width, 3), blue, green and red
    shape: UInt8Array  # (height, width), 255 on the object, 0 beside it


def persons(part: int) -> Sequence[CutOut]:
    """Return the persons of a part, cut out of the recording."""
    return part_of(_persons(), part)


@cache
def _persons() -> tuple[CutOut, ...]:
    """Return those of all parts: the recording is read once."""
    rows = _LISTED["persons"]
    frames, spread = _recorded({row[0] for row in rows})
    return tuple(_person(frames[number], spread, box) for number, *box in rows)


@cache
def objects(part: int) -> tuple[CutOut, ...]:
    """Return the other objects of a part, cut out of photographs."""
    rows = part_of(_LISTED["objects"], part)
    return tuple(_object(*_around(_photograph(row["photograph"]), row["box"])) for row in rows)


@cache
def backgrounds(part: int) -> tuple[UInt8Array, ...]:
    """Return the photographs of a part in front of which objects move."""
    rows = part_of(_LISTED["backgrounds"], part)
    return tuple(_within(_photograph(row["photograph"]), row.get("box")) for row in rows)


def read_recording(path: Path = RECORDING) -> Iterator[UInt8Array]:
    """Yield the frames of a recording (height, width, 3); InvalidInput if it cannot be read."""
    cv2 = opencv()
    recording = cv2.VideoCapture(str(path))
    if not recording.isOpened():
        raise InvalidInput.of("recording", "must be a file that OpenCV can read", str(path))
    try:
        while (read := recording.read())[0]:
            yield np.asarray(read[1], dtype=np.uint8)
    finally:
        recording.release()


_STEP = 60  # frames from one to the next of those whose median is the place without persons


def _recorded(numbers: set[int]) -> tuple[Mapping[int, UInt8Array], UInt8Array]:
    """Return some frames of the recording by their numbers, and others that spread over it."""
    frames, spread = {}, []
    for number, frame in enumerate(read_recording()):
        if number in numbers:
            frames[number] = frame
        if number % _STEP == 0:
            spread.append(frame)
    return frames, np.stack(spread)


_CHANGED = 26  # grey levels from which on a pixel differs from the place without persons
_MARGIN = 12  # pixels around a box that are looked at, too


def _person(frame: UInt8Array, spread: UInt8Array, box: Sequence[int]) -> CutOut:
    cv2 = opencv()
    x, y, width, height = box
    top, left = max(0, y - _MARGIN), max(0, x - _MARGIN)
    place = slice(top, y + height + _MARGIN), slice(left, x + width + _MARGIN)
    empty = np.median(spread[:, *place], axis=0).astype(np.uint8)
    change = cv2.GaussianBlur(cv2.absdiff(frame[place], empty).max(axis=2), (5, 5), 0)
    mask = cv2.threshold(change, _CHANGED, 255, cv2.THRESH_BINARY)[1]
    mask = cv2.morphologyEx(mask, cv2.MORPH_CLOSE, np.ones((5, 5), np.uint8))
    inside = slice(y - top, y - top + height), slice(x - left, x - left + width)
    return _trimmed(frame[place][inside], mask[inside])


_LARGEST = 160  # pixels of the longer side of what is cut out
_AROUND = 0.25  # of a box's sides: how far around it its background is learned
_ROUNDS = 4
_SEED = 47  # OpenCV draws the first colours of foreground and background


def _around(photograph: UInt8Array, box: Sequence[int]) -> tuple[UInt8Array, tuple[int, ...]]:
    """Return the part of a photograph around a box, made small, and the box in it."""
    cv2 = opencv()
    x, y, width, height = box
    left, top = max(0, x - int(_AROUND * width)), max(0, y - int(_AROUND * height))
    part = photograph[top : y + int((1 + _AROUND) * height), left : x + int((1 + _AROUND) * width)]
    factor = min(1.0, _LARGEST / max(width, height))
    small = cv2.resize(part, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    inside = (int(side * factor) for side in (x - left, y - top, width, height))
    return np.asarray(small, dtype=np.uint8), tuple(inside)


def _object(image: UInt8Array, box: tuple[int, ...]) -> CutOut:
    cv2 = opencv()
    labels = np.zeros(image.shape[:2], np.uint8)
    models = np.zeros((2, 1, 65))
    cv2.setRNGSeed(_SEED)
    cv2.grabCut(image, labels, box, *models, _ROUNDS, cv2.GC_INIT_WITH_RECT)
    mask = np.isin(labels, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8) * 255
    return _trimmed(image, mask)


def _trimmed(image: UInt8Array, mask: UInt8Array) -> CutOut:
    """Return the largest region of a mask, without holes, and its picture."""
    cv2 = opencv()
    contours = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)[0]
    largest = max(contours, key=cv2.contourArea)
    x, y, width, height = cv2.boundingRect(largest)
    shape = cv2.drawContours(np.zeros_like(mask), [largest], -1, 255, cv2.FILLED)
    place = slice(y, y + height), slice(x, x + width)
    return CutOut(image=image[place].copy(), shape=shape[place].copy())


def _within(photograph: UInt8Array, box: Sequence[int] | None) -> UInt8Array:
    """Return a part of a photograph; None: all of it."""
    if box is None:
        return photograph
    x, y, width, height = box
    return photograph[y : y + height, x : x + width]


def _photograph(name: str) -> UInt8Array:
    """Read one in colours; scikit-learn is not imported for its own, which takes a second."""
    cv2 = opencv()
    path = FOLDER / name
    if "/" not in name:
        spec = find_spec("sklearn")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("sklearn")
        path = Path(spec.origin).parent / "datasets" / "images" / name
    image = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if image is None:
        raise InvalidInput.of("photograph", "must be a file that OpenCV can read", str(path))
    pixels: NDArray[np.uint8] = np.asarray(image, dtype=np.uint8)
    return pixels
