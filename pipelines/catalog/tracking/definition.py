"""Pipeline `tracking` put together: its operators, knobs, metric and data."""

from __future__ import annotations

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import drawn, part_of
from circinus.pipelines.catalog.tracking.boxes import idf1
from circinus.pipelines.catalog.tracking.detecting import (
    FOREGROUNDS,
    denoised,
    detected,
    resized,
    sampled,
)
from circinus.pipelines.catalog.tracking.footage import (
    Detections,
    Footage,
    checked_clip,
    checked_detections,
    checked_footage,
    checked_tracks,
)
from circinus.pipelines.catalog.tracking.scenes import clip_features, draw_clip, tiles
from circinus.pipelines.catalog.tracking.tracking import METHODS, tracked
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.needs import package
from circinus.pipelines.pipeline import Pipeline

NAME = "tracking"


def pipeline() -> Pipeline:
    """The pipeline with all its choices: 180 configurations."""
    sampler = step(checked_clip, sampled, Footage.payload)
    resizer = step(checked_footage, resized, Footage.payload)
    denoiser = step(checked_footage, denoised, Footage.payload)
    detector = step(checked_footage, detected, Detections.payload)
    return Pipeline(
        name=NAME,
        metric="IDF1 of the tracks, at an IoU of 0.5",
        operators=chain(
            {
                "sampler": (sampler, {"stride": (1, 2, 4)}),
                "resizer": (resizer, {"width": (480, 240)}),
                "denoiser": (denoiser, {"kind": ("none", "gauss")}),
                "detector": (detector, {"method": tuple(FOREGROUNDS)}),
                "tracker": (step(checked_detections, tracked), {"method": tuple(METHODS)}),
            }
        ),
        score=lambda output, expected: idf1(
            checked_tracks("output", output), checked_tracks("expected", expected)
        ),
        features=lambda clip: clip_features(checked_clip(clip)),
        examples=_examples,
        needs=(package("cv2", extra=NAME),),
    )


def _examples(count: int, seed: int) -> Dataset:
    material = part_of(tiles(), seed)
    return drawn(f"{NAME} clips, seed {seed}", count, seed, lambda rng: draw_clip(rng, material))
