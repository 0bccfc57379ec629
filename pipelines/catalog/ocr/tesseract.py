"""The engine Tesseract, with the English model of Debian.

One rule: it reads with its neural network alone. The older recogniser beside it adapts to the
pages it has met, and an operator has no memory.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from pipelines.catalog.ocr.page import UInt8Array

if TYPE_CHECKING:
    from tesserocr import PyTessBaseAPI

MODELS = tuple(sorted(Path("/usr/share/tesseract-ocr").glob("*/tessdata/eng.traineddata")))
"""Empty where it is not installed; the folder between is named after the version."""

_DOTS_PER_INCH = "150"
"""Of any page: told, or else it guesses from the height of what it takes for letters."""
_in_use = Lock()
"""The engine holds one page at a time, and threads may share the process."""


def read_by_tesseract(
    page: UInt8Array,  # (height, width)
) -> str:
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
