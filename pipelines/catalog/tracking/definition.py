"""Pipeline `tracking` put together: its operators, knobs, metric and data.

One rule: what operators exchange is checked here, on the way in; the functions behind trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from pipelines.catalog.chaining import Grid, chain
from pipelines.catalog.material import part_of
from pipelines.catalog.tracking.checking import (
    checked_clip,
    checked_detections,
    checked_footage,
    checked_tracks,
)
from pipelines.catalog.tracking.detecting import detected
from pipelines.catalog.tracking.foreground import FOREGROUNDS
from pipelines.catalog.tracking.identity import idf1
from pipelines.catalog.tracking.looking import clip_features
from pipelines.catalog.tracking.photographs import tiles
from pipelines.catalog.tracking.preparing import denoised, resized, sampled
from pipelines.catalog.tracking.scenes import draw_clip
from pipelines.catalog.tracking.tracking import METHODS, tracked
from pipelines.dataset import Dataset, Example
from pipelines.needs import package
from pipelines.operators import OperatorFunction, Settings
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.profile import FloatArray

NAME = "tracking"

GRID: Grid = MappingProxyType(
    {
        "sampler": {"stride": (1, 2, 4)},
        "resizer": {"width": (480, 240)},
        "denoiser": {"kind": ("none", "gauss")},
        "detector": {"method": tuple(FOREGROUNDS)},
        "tracker": {"method": tuple(METHODS)},
    }
)
"""180 configurations."""


def pipeline() -> Pipeline:
    """The pipeline with all its choices."""
    return Pipeline(
        name=NAME,
        metric="IDF1 of the tracks, at an IoU of 0.5",
        operators=chain(GRID, _FUNCTIONS),
        score=_score,
        features=_features,
        examples=_examples,
        needs=(package("cv2", extra=NAME),),
    )


def _sample(inputs: Payload, knobs: Settings) -> Payload:
    return sampled(checked_clip(inputs), stride=int(knobs["stride"])).payload()


def _resize(inputs: Payload, knobs: Settings) -> Payload:
    return resized(checked_footage(inputs), width=int(knobs["width"])).payload()


def _denoise(inputs: Payload, knobs: Settings) -> Payload:
    return denoised(checked_footage(inputs), kind=str(knobs["kind"])).payload()


def _detect(inputs: Payload, knobs: Settings) -> Payload:
    return detected(checked_footage(inputs), method=str(knobs["method"])).payload()


def _track(inputs: Payload, knobs: Settings) -> Payload:
    return tracked(checked_detections(inputs), method=str(knobs["method"]))


_FUNCTIONS: Mapping[str, OperatorFunction] = MappingProxyType(
    {
        "sampler": _sample,
        "resizer": _resize,
        "denoiser": _denoise,
        "detector": _detect,
        "tracker": _track,
    }
)


def _score(output: Payload, expected: Payload) -> float:
    return idf1(checked_tracks("output", output), checked_tracks("expected", expected))


def _features(clip: Payload) -> FloatArray:
    return clip_features(checked_clip(clip))


def _examples(count: int, seed: int) -> Dataset:
    """Clips drawn from a seed; a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    material = part_of(tiles(), seed)
    clips = [draw_clip(rng, material) for _ in range(count)]
    return Dataset(
        name=f"{NAME} clips, seed {seed}",
        examples=[Example(input=clip.frames, expected=clip.tracks) for clip in clips],
    )
