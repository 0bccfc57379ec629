"""The built-in pipeline `ocr`: read the two lines of text on a scanned page, on a CPU.

Its chain is `sampler -> cleaner -> reader`.
"""

from circinus.pipelines.catalog.ocr.definition import pipeline

__all__ = ["pipeline"]
