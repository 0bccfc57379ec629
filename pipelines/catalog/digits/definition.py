"""Pipeline `digits` put together: its operators, knobs, metric and data."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

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
from circinus.pipelines.catalog.material import drawn
from circinus.pipelines.dataset import Dataset, Example
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.operators import OperatorFunction, Settings
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline

NAME = "digits"
METRIC = "fraction of digits read"

FULL_GRID: Mapping[str, Knobs] = MappingProxyType(
    {
        "sampler": {"stride": (1, 2, 4, 12), "scale": SCALES},
        "denoiser": {"kind": ("none", "gauss", "median3", "nlm")},
        "locator": {"method": ("fixed", "project", "match")},
        "features": {"kind": tuple(SHAPES)},
        "classifier": {"model": tuple(CLASSIFIERS)},
        "voter": {"rule": ("logprob",)},
    }
)
"""2,016 configurations."""

SMALL_GRID: Mapping[str, Knobs] = MappingProxyType(
    {
        "sampler": {"stride": (1, 4, 12), "scale": (1.0,)},
        "denoiser": {"kind": ("none", "gauss", "median3")},
        "locator": {"method": ("fixed", "match")},
        "features": {"kind": ("raw",)},
        "classifier": {"model": ("mlp", "knn", "svm", "cnn")},
        "voter": {"rule": ("logprob",)},
    }
)
"""72 configurations, small enough to measure them all."""


def pipeline() -> Pipeline:
    """The pipeline with all its choices."""
    return _pipeline(NAME, FULL_GRID)


def small_pipeline() -> Pipeline:
    """The same operators with fewer choices, for trying things out."""
    return _pipeline(f"{NAME}_small", SMALL_GRID)


def half_light() -> Pipeline:
    """The pipeline with all its choices on clips in half of the light: the world after a drift."""
    return _pipeline(NAME, FULL_GRID, light=0.5)


def three_quarter_light() -> Pipeline:
    """The same in three quarters of the light."""
    return _pipeline(NAME, FULL_GRID, light=0.75)


def _pipeline(name: str, grid: Mapping[str, Knobs], *, light: float = 1.0) -> Pipeline:
    steps = {operator: (_FUNCTIONS[operator], knobs) for operator, knobs in grid.items()}
    return Pipeline(
        name=name,
        metric=METRIC,
        operators=chain(steps, {"classifier": f"1-{models_version()}"}),
        score=_score,
        features=lambda clip: clip_features(checked_clip(clip)),
        examples=partial(_examples, light=light),
        prepare=prepare_models,
    )


def _vote(inputs: Payload, knobs: Settings) -> Payload:
    if knobs["rule"] != "logprob":
        raise InvalidInput.of("rule", "must be 'logprob'", knobs["rule"])
    return voted(checked_numbers(inputs, "log-probabilities", CLASSES))


_FUNCTIONS: Mapping[str, OperatorFunction] = MappingProxyType(
    {
        "sampler": step(checked_clip, sampled),
        "denoiser": step(checked_frames, denoised),
        "locator": step(checked_frames, located),
        "features": step(checked_crops, described_crops),
        "classifier": step(partial(checked_numbers, field="features"), classified),
        "voter": _vote,
    }
)


def _score(output: Payload, expected: Payload) -> float:
    """Share of the shown digits that were read, in [0, 1]."""
    pairs = zip(_reading("output", output), _reading("expected", expected), strict=True)
    return sum(read == shown for read, shown in pairs) / DIGITS


def _reading(field: str, value: Payload) -> str:
    if isinstance(value, str) and len(value) == DIGITS and value.isdecimal():
        return value
    raise InvalidInput.of(field, f"must be a text of {DIGITS} digits", value)


def _examples(count: int, seed: int, *, light: float) -> Dataset:
    def draw(rng: np.random.Generator) -> Example:
        clip = draw_clip(rng, light)
        return Example(input=clip.frames, expected=clip.digits)

    dimmed = "" if light == 1.0 else f", light {light:g}"
    return drawn(f"{NAME} clips, seed {seed}{dimmed}", count, seed, draw)


def voted(
    log_probabilities: NDArray[np.float32],  # (n_frames, n_digits, n_classes)
) -> str:
    """The most probable digits, were the frames independent: log-probabilities add up."""
    return "".join(str(digit) for digit in log_probabilities.sum(axis=0).argmax(axis=1))
