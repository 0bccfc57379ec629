"""Operators `sampler`, `cleaner` and `reader` of pages: grey levels, dark text on light paper.

Pages are checked on the way in; the functions behind trust them. An engine gets the page and
nothing else: an operator has no memory. Tesseract therefore reads with its neural network alone,
as the older recogniser beside it adapts to earlier pages.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from circinus.pipelines.catalog.chaining import checked_array
from circinus.pipelines.catalog.material import opencv
from circinus.pipelines.catalog.programs import output_of
from circinus.pipelines.model.payload import Payload

if TYPE_CHECKING:
    from tesserocr import PyTessBaseAPI

WIDTH = 680
HEIGHT = 140  # of the pages that are drawn here; pages of users may be of any size allowed below

SCALES = (0.5, 0.75, 1.0, 1.5)
SHORTEST_SIDE = 16
LONGEST_SIDE = 2048
"""Sides of a page as it comes, pixels: at most 4 megabytes, so that no engine runs for minutes."""

UInt8Array: TypeAlias = NDArray[np.uint8]


def checked_page(value: Payload) -> UInt8Array:  # (height, width)
    """Return the value as a page; InvalidInput unless it has sides of 16 to 2048 pixels."""
    return _checked(value, SHORTEST_SIDE, LONGEST_SIDE)


def checked_scaled_page(value: Payload) -> UInt8Array:  # (height, width)
    """Return the value as a scaled page; InvalidInput unless of 8 to 3072 pixels a side."""
    return _checked(value, int(SHORTEST_SIDE * min(SCALES)), int(LONGEST_SIDE * max(SCALES)))


def _checked(value: Payload, shortest: int, longest: int) -> UInt8Array:
    def fits(sides: tuple[int, ...]) -> bool:
        return len(sides) == 2 and all(shortest <= side <= longest for side in sides)

    rule = f"a uint8 array (height, width) of {shortest} to {longest} pixels a side"
    return checked_array("page", value, np.uint8, fits, rule)


def resized(page: UInt8Array, *, scale: float) -> UInt8Array:  # sides times the scale, rounded
    """Return the page at that scale: area means when smaller, cubic interpolation when larger."""
    if scale == 1:
        return np.ascontiguousarray(page)
    cv2 = opencv()
    method = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    larger = cv2.resize(page, None, fx=scale, fy=scale, interpolation=method)
    return np.asarray(larger, dtype=np.uint8)


KINDS = ("none", "median", "otsu", "adaptive", "nlm")
MEDIAN = 3  # side of the median's window, pixels of the page as it is
NEIGHBOURHOOD = 31
"""Side of the window whose weighted mean a pixel is compared with; wider than letters."""
DARKER_BY = 25  # grey levels that ink is darker than that mean: less would make ink of noisy paper
FILTERING = 1.0
"""h / sigma of non-local means: how unlike patches may be, as a multiple of the page's noise."""
LEAST_NOISE = 2.0  # grey levels: a page without noise leaves nothing to divide by
PATCH = 5
REACH = 13  # sides of the patches compared and of the window searched for them


def cleaned(page: UInt8Array, *, kind: str) -> UInt8Array:  # (height, width), as the page
    """Return the page, cleaned in that way; `otsu` and `adaptive` leave only black and white."""
    cv2 = opencv()
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
        case _:  # nlm
            strength = FILTERING * max(noise_level(page), LEAST_NOISE)
            result = cv2.fastNlMeansDenoising(page, None, strength, PATCH, REACH)
    return np.asarray(result, dtype=np.uint8)


BLOCKS = (4, 16)  # rows and columns of blocks whose brightness is compared


def page_features(page: UInt8Array) -> NDArray[np.float64]:  # (height, width), >= 16 a side
    """Return how hard a page looks.

    Shape (5,): noise level, mean brightness, shadow (brightest less darkest block), share of black
    and white pixels, share of the rows with text (their mean is nearer to that of the darkest row
    than to that of the brightest); the first three in grey levels.
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
    """Return standard deviation of the noise, grey levels, as measured on flat paper.

    The robust standard deviation of the difference of neighbouring pixels (Rousseeuw and Croux
    1993), over sqrt(2) because both have the noise; every other row is looked at.
    """
    rows = page[::2].astype(np.int16)
    steps = np.abs(rows[:, 1:] - rows[:, :-1])
    return float(1.4826 * np.median(steps) / np.sqrt(2))


ENGINES = ("ocrad", "gocr", "tess6", "tess6x2")
TIMEOUT_S = 10.0
"""A page takes either program milliseconds; `gocr` takes up to a second where it is all specks."""
DUST = 6
"""Pixels: smaller spots are no letters to `gocr`. Left to itself, it reads noise for seconds."""


def read(page: UInt8Array, *, engine: str) -> str:  # (height, width)
    """Return the text that the engine finds on the page, possibly none."""
    match engine:
        case "ocrad":
            return _read_by_program(page, "ocrad", "--format=utf8", "-")
        case "gocr":
            return _read_by_program(page, "gocr", "-d", str(DUST), "-f", "UTF8", "-")
        case "tess6":
            return read_by_tesseract(page)
        case _:  # tess6x2
            return read_by_tesseract(resized(page, scale=2))


def _read_by_program(page: UInt8Array, *command: str) -> str:
    height, width = page.shape
    image = f"P5 {width} {height} 255\n".encode() + page.tobytes()  # the format PGM
    return output_of(command, inputs=image, timeout_s=TIMEOUT_S).decode(errors="replace")


MODELS = tuple(sorted(Path("/usr/share/tesseract-ocr").glob("*/tessdata/eng.traineddata")))
"""Empty where it is not installed; the folder between is named after the version."""

_DOTS_PER_INCH = "150"
"""Of any page: Tesseract would else guess it from the height of what it takes for letters."""
_in_use = Lock()  # the engine holds one page at a time, and threads may share the process


def read_by_tesseract(page: UInt8Array) -> str:  # (height, width)
    """Return the text on the page, taken as one block of lines (page segmentation mode 6)."""
    height, width = page.shape
    with _in_use:
        engine = _engine(MODELS[-1].parent)
        engine.SetImageBytes(page.tobytes(), width, height, 1, width)
        text = engine.GetUTF8Text()
        engine.Clear()
    return str(text)


@cache
def _engine(models: Path) -> PyTessBaseAPI:
    import tesserocr

    engine = tesserocr.PyTessBaseAPI(
        path=str(models),
        lang="eng",
        psm=tesserocr.PSM.SINGLE_BLOCK,
        oem=tesserocr.OEM.LSTM_ONLY,
        variables={"user_defined_dpi": _DOTS_PER_INCH},
    )
    # The wheels of tesserocr know no OpenMP; a build of one's own may, and would use all cores.
    threadpool_limits(limits=1)
    return engine
