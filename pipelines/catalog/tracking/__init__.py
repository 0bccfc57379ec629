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
    return _pipeline(NAME, (1, 2, 4), (480, 240), KINDS, tuple(FOREGROUNDS), tuple(METHODS))


def fine_pipeline() -> Pipeline:
    """Return the same operators with many values of ordered knobs: 140 configurations."""
    widths, one = (480, 420, 360, 300, 240), tuple(METHODS)[:1]
    strides = (1, 2, 3, 4, 5, 6, 8)
    return _pipeline(f"{NAME}_fine", strides, widths, KINDS[:2], tuple(FOREGROUNDS)[:2], one)


def _pipeline(
    name: str,
    strides: tuple[int, ...],
    widths: tuple[int, ...],
    kinds: tuple[str, ...],
    detectors: tuple[str, ...],
    trackers: tuple[str, ...],
) -> Pipeline:
    return Pipeline(
        name=name,
        metric="IDF1 of the tracks, at an IoU of 0.5",
        operators=chain(
            {
                "sampler": step(checked_clip, sampled, stride=strides),
                "resizer": step(checked_footage, resized, width=widths),
                "denoiser": step(checked_footage, denoised, kind=kinds),
                "detector": step(checked_footage, detected, method=detectors),
                "tracker": step(checked_detections, tracked, method=trackers),
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
