"""The built-in pipeline `tracking`: follow moving objects in a clip, on a CPU.

Its chain is `sampler -> resizer -> denoiser -> detector -> tracker`.
"""

from __future__ import annotations

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import DrawnExamples, part_of
from circinus.pipelines.catalog.tracking.detecting import (
    FOREGROUNDS,
    KINDS,
    denoised,
    detected,
    resized,
    sampled,
)
from circinus.pipelines.catalog.tracking.footage import (
    checked_clip,
    checked_detections,
    checked_footage,
    checked_tracks,
    clip_features,
    draw_clip,
    tiles,
)
from circinus.pipelines.catalog.tracking.tracking import METHODS, idf1, tracked
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline

NAME = "tracking"


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 180 configurations."""
    return Pipeline(
        name=NAME,
        metric="IDF1 of the tracks, at an IoU of 0.5",
        operators=chain(
            {
                "sampler": step(checked_clip, sampled, stride=(1, 2, 4)),
                "resizer": step(checked_footage, resized, width=(480, 240)),
                "denoiser": step(checked_footage, denoised, kind=KINDS),
                "detector": step(checked_footage, detected, method=tuple(FOREGROUNDS)),
                "tracker": step(checked_detections, tracked, method=tuple(METHODS)),
            }
        ),
        score=lambda output, expected: idf1(
            checked_tracks("output", output), checked_tracks("expected", expected)
        ),
        features=lambda clip: clip_features(checked_clip(clip)),
        examples=DrawnExamples(
            f"{NAME} clips", lambda rng, seed: draw_clip(rng, part_of(tiles(), seed))
        ),
        needs=(package("cv2", extra=NAME),),
    )
