"""Pipeline `ocr` put together: its operators, knobs, metric, data and needs.

One rule: what operators exchange is checked here, on the way in; the functions behind trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from pipelines.catalog.chaining import Grid, chain
from pipelines.catalog.material import part_of
from pipelines.catalog.ocr.cleaning import KINDS, cleaned
from pipelines.catalog.ocr.describing import page_features
from pipelines.catalog.ocr.lines import all_lines
from pipelines.catalog.ocr.page import SCALES, checked_page, checked_scaled_page
from pipelines.catalog.ocr.reading import ENGINES, read
from pipelines.catalog.ocr.resizing import resized
from pipelines.catalog.ocr.scans import FONTS, draw_scan
from pipelines.catalog.ocr.scoring import share_read
from pipelines.catalog.ocr.tesseract import MODELS
from pipelines.dataset import Dataset, Example
from pipelines.errors import InvalidInput
from pipelines.needs import Need, file, package, program
from pipelines.operators import OperatorFunction, Settings
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.profile import FloatArray

NAME = "ocr"
METRIC = "share of the text read (1 - character error rate)"
LONGEST_TEXT = 100_000
"""Characters that the metric compares."""


GRID: Grid = MappingProxyType(
    {
        "sampler": {"scale": SCALES},
        "cleaner": {"kind": KINDS},
        "reader": {"engine": ENGINES},
    }
)
"""80 configurations."""


def pipeline() -> Pipeline:
    """The pipeline with all its choices."""
    return Pipeline(
        name=NAME,
        metric=METRIC,
        operators=chain(GRID, _FUNCTIONS),
        score=_score,
        features=_features,
        examples=_examples,
        needs=_needs(),
    )


def _needs() -> tuple[Need, ...]:
    return (
        *(package(name, extra=NAME) for name in ("cv2", "PIL", "rapidfuzz", "tesserocr")),
        program("ocrad", debian="ocrad"),
        program("gocr", debian="gocr"),
        file("eng.traineddata", MODELS, debian="tesseract-ocr-eng"),
        *(file(font.name, (font,), debian=_package_of(font.parent.name)) for font in FONTS),
    )


def _package_of(family: str) -> str:
    return {"liberation": "fonts-liberation", "dejavu": "fonts-dejavu-core"}[family]


def _sample(inputs: Payload, knobs: Settings) -> Payload:
    return resized(checked_page(inputs), scale=float(knobs["scale"]))


def _clean(inputs: Payload, knobs: Settings) -> Payload:
    return cleaned(checked_scaled_page(inputs), kind=str(knobs["kind"]))


def _read(inputs: Payload, knobs: Settings) -> Payload:
    return read(checked_scaled_page(inputs), engine=str(knobs["engine"]))


_FUNCTIONS: Mapping[str, OperatorFunction] = MappingProxyType(
    {"sampler": _sample, "cleaner": _clean, "reader": _read}
)


def _score(output: Payload, expected: Payload) -> float:
    shown = _checked_text("expected", expected)
    if not shown.strip():
        raise InvalidInput.of("expected", "must not be blank", shown)
    return share_read(_checked_text("output", output), shown)


def _checked_text(field: str, value: Payload) -> str:
    if isinstance(value, str) and len(value) <= LONGEST_TEXT:
        return value
    raise InvalidInput.of(field, f"must be text of at most {LONGEST_TEXT} characters", value)


def _features(page: Payload) -> FloatArray:
    return page_features(checked_page(page))


def _examples(count: int, seed: int) -> Dataset:
    """Pages drawn from a seed; a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    lines = part_of(all_lines(), seed)
    scans = [draw_scan(rng, lines) for _ in range(count)]
    return Dataset(
        name=f"{NAME} pages, seed {seed}",
        examples=[Example(input=scan.page, expected=scan.text) for scan in scans],
    )
