"""The built-in pipeline `ocr`: read the two lines of text on a scanned page, on a CPU.

    sampler -> cleaner -> reader

One rule: every operator is a real algorithm and every page has exact ground truth; how hard the
pages are is a design choice (`scans`), so its accuracies say nothing about an engine.
"""

from pipelines.catalog.ocr.definition import pipeline

__all__ = ["pipeline"]
