"""The built-in pipeline `track-objects`: follow persons and things in a clip, by neural networks.

Its chain is `sampler -> resizer -> detector -> appearance -> tracker`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.detectors import SIDES, SSD, ObjectDetector
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.track_objects.appearance import (
    LOOKS,
    MOBILENET,
    checked_looks,
    unlike_vectors,
    with_looks,
)
from circinus.pipelines.catalog.track_objects.detecting import (
    THRESHOLDS,
    checked_crops,
    detecting,
)
from circinus.pipelines.catalog.track_objects.pictures import RECORDING
from circinus.pipelines.catalog.track_objects.scenes import draw_clip
from circinus.pipelines.catalog.tracking.detecting import resized, sampled
from circinus.pipelines.catalog.tracking.footage import (
    COLOURED,
    BoxArray,
    Detections,
    checked_clip,
    checked_footage,
    checked_tracks,
    clip_features,
)
from circinus.pipelines.catalog.tracking.mota import mota
from circinus.pipelines.catalog.tracking.tracking import METHODS, idf1, tracks_of
from circinus.pipelines.execution.needs import file, package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

NAME = "track-objects"
STRIDES = (1, 2, 4, 8)
WIDTHS = (384, 256)
GATES = (0.6, 0.8, 1.0)


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 2,592 configurations."""
    return with_detectors({"ssd-mobilenet-v2": SSD})


def with_detectors(
    detectors: Mapping[str, ObjectDetector], *, sides: tuple[int, ...] = SIDES
) -> Pipeline:
    """Return the pipeline with detectors by name, `YoloNetwork(path=...)` say, and their sides."""
    checked_frames = partial(checked_footage, pixel=COLOURED)
    return Pipeline(
        name=NAME,
        metric="IDF1 of the tracks, at an IoU of 0.5",
        operators=chain(
            {
                "sampler": step(checked_coloured, sampled, stride=STRIDES),
                "resizer": step(checked_frames, resized, width=WIDTHS),
                "detector": step(
                    checked_frames,
                    detecting(detectors),
                    model=tuple(detectors),
                    side=sides,
                    threshold=THRESHOLDS,
                ),
                "appearance": step(checked_crops, with_looks, model=tuple(LOOKS)),
                "tracker": step(checked_looks, tracked, method=tuple(METHODS), gate=GATES),
            }
        ),
        score=idf1_score,
        features=lambda clip: clip_features(checked_coloured(clip)[..., 1]),
        examples=DrawnExamples(f"{NAME} clips", draw_clip),
        request_size=lambda clip: float(len(checked_coloured(clip))),
        needs=(
            package("cv2", extra=NAME),
            file("pictures of opencv-doc", (RECORDING,), debian="opencv-doc"),
            *(need for detector in detectors.values() for need in detector.needs),
        ),
        weights=(*(each for one in detectors.values() for each in one.weights), MOBILENET),
    )


checked_coloured = partial(checked_clip, pixel=COLOURED)


def tracked(detections: Detections, *, method: str, gate: float) -> BoxArray:  # (n, 6)
    """Return rows of frame, identity, x, y, w, h; the gate is a share of the method's limit."""
    chosen = METHODS[method]
    unlike = unlike_vectors if chosen.unlike else None
    shorter = replace(
        chosen, limit=gate * chosen.limit, unlike=unlike, fewest_sights=2, shortest=4
    )
    return tracks_of(detections, shorter)


def idf1_score(output: Payload, expected: Payload) -> float:
    """Return the IDF1 of tracks."""
    return idf1(checked_tracks("output", output), checked_tracks("expected", expected))


def mota_score(output: Payload, expected: Payload) -> float:
    """Return the MOTA of tracks, at least 0: a metric in place of IDF1."""
    return max(0.0, mota(checked_tracks("output", output), checked_tracks("expected", expected)))
