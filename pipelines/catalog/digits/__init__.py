"""The built-in pipeline `digits`: read a three-digit display in a noisy clip, on a CPU.

Its chain is `sampler -> denoiser -> locator -> features -> classifier -> voter`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import Knobs, chain, step
from circinus.pipelines.catalog.digits.classifying import (
    CLASSIFIERS,
    classified,
    models_version,
    prepare_models,
)
from circinus.pipelines.catalog.digits.clips import clip_features, draw_clip
from circinus.pipelines.catalog.digits.describing import SHAPES, described_crops
from circinus.pipelines.catalog.digits.frames import denoised, located, sampled
from circinus.pipelines.catalog.digits.geometry import (
    CLASSES,
    DIGITS,
    SCALES,
    checked_clip,
    checked_crops,
    checked_frames,
    checked_numbers,
)
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload

NAME = "digits"
NIGHT_SEED, NIGHT = 100, 0.25
"""Of `nightfall`: the first seed of dark clips, and the part of the light that they are in."""

FULL_GRID: Mapping[str, Knobs] = {
    "sampler": {"stride": (1, 2, 4, 12), "scale": SCALES},
    "denoiser": {"kind": ("none", "gauss", "median3", "nlm")},
    "locator": {"method": ("fixed", "project", "match")},
    "features": {"kind": tuple(SHAPES)},
    "classifier": {"model": tuple(CLASSIFIERS)},
    "voter": {"rule": ("logprob",)},
}
"""2,016 configurations."""

SMALL_GRID: Mapping[str, Knobs] = {
    "sampler": {"stride": (1, 4, 12), "scale": (1.0,)},
    "denoiser": {"kind": ("none", "gauss", "median3")},
    "locator": {"method": ("fixed", "match")},
    "features": {"kind": ("raw",)},
    "classifier": {"model": ("mlp", "knn", "svm", "cnn")},
    "voter": {"rule": ("logprob",)},
}
"""72 configurations, small enough to measure them all."""

FINE_GRID: Mapping[str, Knobs] = {
    **SMALL_GRID,
    "sampler": {"stride": tuple(range(1, 13)), "scale": SCALES},
    "classifier": {"model": ("mlp", "knn", "svm")},
}
"""432 configurations: many values of a knob that is ordered."""


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices."""
    return _pipeline(NAME, FULL_GRID)


def small_pipeline() -> Pipeline:
    """Return the same operators with fewer choices, for trying things out."""
    return _pipeline(f"{NAME}_small", SMALL_GRID)


def fine_pipeline() -> Pipeline:
    """Return the same operators with many values of ordered knobs, for studies of their order."""
    return _pipeline(f"{NAME}_fine", FINE_GRID)


def half_light() -> Pipeline:
    """Return the pipeline with all its choices on clips in half of the light: after a drift."""
    return _pipeline(NAME, FULL_GRID, light=0.5)


def three_quarter_light() -> Pipeline:
    """Return the same in three quarters of the light."""
    return _pipeline(NAME, FULL_GRID, light=0.75)


def nightfall() -> Pipeline:
    """Return the pipeline whose clips are in `NIGHT` of the light from seed `NIGHT_SEED` on."""
    return replace(_pipeline(f"{NAME}_nightfall", FULL_GRID), examples=_NIGHTFALL)


def _pipeline(name: str, grid: Mapping[str, Knobs], *, light: float = 1.0) -> Pipeline:
    steps = {operator: step(*_FUNCTIONS[operator], **knobs) for operator, knobs in grid.items()}
    dimmed = "" if light == 1.0 else f", light {light:g}"
    return Pipeline(
        name=name,
        metric="fraction of digits read",
        operators=chain(steps, classifier=f"1-{models_version()}"),
        score=_score,
        features=lambda clip: clip_features(checked_clip(clip)),
        examples=DrawnExamples(f"{NAME} clips", partial(_draw, light=light), note=dimmed),
        prepare=prepare_models,
    )


def voted(log_probabilities: NDArray[np.float32], *, rule: str) -> str:  # (frames, digits, 10)
    """Return the most probable digits, were the frames independent: log-probabilities add up."""
    return "".join(str(digit) for digit in log_probabilities.sum(axis=0).argmax(axis=1))


_FUNCTIONS: Mapping[str, tuple[Callable[[Payload], Any], Callable[..., Payload]]] = {
    "sampler": (checked_clip, sampled),
    "denoiser": (checked_frames, denoised),
    "locator": (checked_frames, located),
    "features": (checked_crops, described_crops),
    "classifier": (partial(checked_numbers, "features"), classified),
    "voter": (partial(checked_numbers, "log-probabilities", length=CLASSES), voted),
}


def _score(output: Payload, expected: Payload) -> float:
    """Return the share of the shown digits that were read, in [0, 1]."""
    pairs = zip(_reading("output", output), _reading("expected", expected), strict=True)
    return sum(read == digit for read, digit in pairs) / DIGITS


def _reading(field: str, value: Payload) -> str:
    if isinstance(value, str) and len(value) == DIGITS and value.isdecimal():
        return value
    raise InvalidInput.of(field, f"must be a text of {DIGITS} digits", value)


def _draw(rng: np.random.Generator, seed: int, *, light: float) -> Example:
    clip = draw_clip(rng, light)
    return Example(input=clip.frames, expected=clip.digits)


def _draw_until_night(rng: np.random.Generator, seed: int) -> Example:
    return _draw(rng, seed, light=1.0 if seed < NIGHT_SEED else NIGHT)


_NIGHTFALL = DrawnExamples(f"{NAME} clips", _draw_until_night)
