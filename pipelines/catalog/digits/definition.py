"""Pipeline `digits` put together: its operators, knobs, metric and data.

One rule: what operators exchange is checked here, on the way in; the functions behind trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

import numpy as np

from pipelines.catalog.chaining import Grid, chain
from pipelines.catalog.digits.classifying import CLASSIFIERS, classified, prepare_models
from pipelines.catalog.digits.clips import clip_features, draw_clip
from pipelines.catalog.digits.denoising import denoised
from pipelines.catalog.digits.describing import SHAPES, described_crops
from pipelines.catalog.digits.geometry import (
    CLASSES,
    DIGITS,
    SCALES,
    checked_clip,
    checked_crops,
    checked_frames,
    checked_numbers,
)
from pipelines.catalog.digits.locating import located
from pipelines.catalog.digits.model_store import models_version
from pipelines.catalog.digits.sampling import sampled
from pipelines.catalog.digits.voting import share_read, voted
from pipelines.dataset import Dataset, Example
from pipelines.errors import InvalidInput
from pipelines.operators import OperatorFunction, Settings
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.profile import FloatArray

NAME = "digits"
METRIC = "fraction of digits read"

FULL_GRID: Grid = MappingProxyType(
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

SMALL_GRID: Grid = MappingProxyType(
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


def _pipeline(name: str, grid: Grid, *, light: float = 1.0) -> Pipeline:
    return Pipeline(
        name=name,
        metric=METRIC,
        operators=chain(grid, _FUNCTIONS, {"classifier": f"1-{models_version()}"}),
        score=_score,
        features=_features,
        examples=partial(_examples, light=light),
        prepare=prepare_models,
    )


def _sample(inputs: Payload, knobs: Settings) -> Payload:
    clip = checked_clip(inputs)
    return sampled(clip, stride=int(knobs["stride"]), scale=float(knobs["scale"]))


def _denoise(inputs: Payload, knobs: Settings) -> Payload:
    return denoised(checked_frames(inputs), kind=str(knobs["kind"]))


def _locate(inputs: Payload, knobs: Settings) -> Payload:
    return located(checked_frames(inputs), method=str(knobs["method"]))


def _describe(inputs: Payload, knobs: Settings) -> Payload:
    return described_crops(checked_crops(inputs), kind=str(knobs["kind"]))


def _classify(inputs: Payload, knobs: Settings) -> Payload:
    return classified(checked_numbers(inputs, "features"), model=str(knobs["model"]))


def _vote(inputs: Payload, knobs: Settings) -> Payload:
    if knobs["rule"] != "logprob":
        raise InvalidInput.of("rule", "must be 'logprob'", knobs["rule"])
    return voted(checked_numbers(inputs, "log-probabilities", CLASSES))


_FUNCTIONS: Mapping[str, OperatorFunction] = MappingProxyType(
    {
        "sampler": _sample,
        "denoiser": _denoise,
        "locator": _locate,
        "features": _describe,
        "classifier": _classify,
        "voter": _vote,
    }
)


def _score(output: Payload, expected: Payload) -> float:
    return share_read(_reading("output", output), _reading("expected", expected))


def _reading(field: str, value: Payload) -> str:
    if isinstance(value, str) and len(value) == DIGITS and value.isdecimal():
        return value
    raise InvalidInput.of(field, f"must be a text of {DIGITS} digits", value)


def _features(clip: Payload) -> FloatArray:
    return clip_features(checked_clip(clip))


def _examples(count: int, seed: int, *, light: float) -> Dataset:
    """Clips drawn from a seed; a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    clips = [draw_clip(rng, light) for _ in range(count)]
    dimmed = "" if light == 1.0 else f", light {light:g}"
    return Dataset(
        name=f"{NAME} clips, seed {seed}{dimmed}",
        examples=[Example(input=clip.frames, expected=clip.digits) for clip in clips],
    )
