"""Operator `reader`: four engines that read a page, two of them programs of Debian.

One rule: an engine is given the page and nothing else, so that what it read before cannot matter.
"""

from __future__ import annotations

from pipelines.catalog.ocr.page import UInt8Array
from pipelines.catalog.ocr.resizing import resized
from pipelines.catalog.ocr.tesseract import read_by_tesseract
from pipelines.catalog.programs import output_of
from pipelines.errors import InvalidInput

ENGINES = ("ocrad", "gocr", "tess6", "tess6x2")
TIMEOUT_S = 10.0
"""A page takes either program milliseconds; `gocr` takes up to a second where it is all specks."""
DUST = 6
"""Pixels: smaller spots are no letters to `gocr`. Left to itself, it reads noise for seconds."""


def read(
    page: UInt8Array,  # (height, width)
    *,
    engine: str,
) -> str:
    """The text that the engine finds on the page, possibly none."""
    match engine:
        case "ocrad":
            return _read_by_program(page, "ocrad", "--format=utf8", "-")
        case "gocr":
            return _read_by_program(page, "gocr", "-d", str(DUST), "-f", "UTF8", "-")
        case "tess6":
            return read_by_tesseract(page)
        case "tess6x2":
            return read_by_tesseract(resized(page, scale=2))
        case _:
            raise InvalidInput.of("engine", f"must be one of {', '.join(ENGINES)}", engine)


def _read_by_program(page: UInt8Array, *command: str) -> str:
    height, width = page.shape
    image = f"P5 {width} {height} 255\n".encode() + page.tobytes()  # the format PGM
    return output_of(command, given=image, timeout_s=TIMEOUT_S).decode(errors="replace")
