"""The built-in pipeline `ocr`: read the two lines of text on a scanned page, on a CPU.

Its chain is `sampler -> cleaner -> reader`.
"""

from __future__ import annotations

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import DrawnExamples, part_of
from circinus.pipelines.catalog.ocr.page import (
    ENGINES,
    KINDS,
    MODELS,
    SCALES,
    checked_page,
    checked_scaled_page,
    cleaned,
    page_features,
    read,
    resized,
)
from circinus.pipelines.catalog.ocr.scans import FONTS, all_lines, draw_scan
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import file, package, program
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

NAME = "ocr"
LONGEST_TEXT = 100_000  # characters that the metric compares

_PACKAGES = {"liberation": "fonts-liberation", "dejavu": "fonts-dejavu-core"}


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 80 configurations."""
    packages = (package(name, extra=NAME) for name in ("cv2", "PIL", "rapidfuzz", "tesserocr"))
    fonts = (file(font.name, (font,), debian=_PACKAGES[font.parent.name]) for font in FONTS)
    return Pipeline(
        name=NAME,
        metric="share of the text read (1 - character error rate)",
        operators=chain(
            {
                "sampler": step(checked_page, resized, scale=SCALES),
                "cleaner": step(checked_scaled_page, cleaned, kind=KINDS),
                "reader": step(checked_scaled_page, read, engine=ENGINES),
            }
        ),
        score=_score,
        features=lambda page: page_features(checked_page(page)),
        examples=DrawnExamples(
            f"{NAME} pages", lambda rng, seed: draw_scan(rng, part_of(all_lines(), seed))
        ),
        needs=(
            *packages,
            program("ocrad", debian="ocrad"),
            program("gocr", debian="gocr"),
            file("eng.traineddata", MODELS, debian="tesseract-ocr-eng"),
            *fonts,
        ),
    )


def _score(output: Payload, expected: Payload) -> float:
    """Return 1 less the character error rate, at least 0; white space counts as one space."""
    from rapidfuzz.distance import Levenshtein

    text = _one_spaced("expected", expected)
    if not text:
        raise InvalidInput.of("expected", "must not be blank", expected)
    edits = Levenshtein.distance(text, _one_spaced("output", output))
    return max(0.0, 1 - edits / len(text))


def _one_spaced(field: str, value: Payload) -> str:
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        return " ".join(value.split())
    raise InvalidInput.of(field, f"must be text of at most {LONGEST_TEXT} characters", value)
