"""Operator `reader`: four engines that read a page, two of them programs of Debian.

An engine is given the page and nothing else, so that what it read before cannot matter. Tesseract
reads with its neural network alone: the older recogniser beside it adapts to the pages it has met,
and an operator has no memory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from circinus.pipelines.catalog.ocr.page import UInt8Array, resized
from circinus.pipelines.catalog.programs import output_of

if TYPE_CHECKING:
    from tesserocr import PyTessBaseAPI

ENGINES = ("ocrad", "gocr", "tess6", "tess6x2")
TIMEOUT_S = 10.0
"""A page takes either program milliseconds; `gocr` takes up to a second where it is all specks."""
DUST = 6
"""Pixels: smaller spots are no letters to `gocr`. Left to itself, it reads noise for seconds."""


def read(page: UInt8Array, *, engine: str) -> str:  # (height, width)
    """The text that the engine finds on the page, possibly none."""
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
    return output_of(command, given=image, timeout_s=TIMEOUT_S).decode(errors="replace")


MODELS = tuple(sorted(Path("/usr/share/tesseract-ocr").glob("*/tessdata/eng.traineddata")))
"""Empty where it is not installed; the folder between is named after the version."""

_DOTS_PER_INCH = "150"
"""Of any page: told, or else it guesses from the height of what it takes for letters."""
_in_use = Lock()  # the engine holds one page at a time, and threads may share the process


def read_by_tesseract(page: UInt8Array) -> str:  # (height, width)
    """The text on the page, taken as one block of lines (page segmentation mode 6)."""
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
