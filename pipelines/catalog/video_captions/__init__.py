"""The built-in pipeline `video-captions`: caption a clip with a voice, by neural networks.

It has two branches: `transcript`, and `sampler -> vision`; `captioner` joins them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from circinus.pipelines.catalog.chaining import ChainStep, step
from circinus.pipelines.catalog.language import GGUFS, ChatEndpoint, calling, chat_models
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.picture_models import (
    NAMES,
    SIDES,
    WEIGHTS,
    models_version,
    prepare_models,
)
from circinus.pipelines.catalog.prompts import NEEDS
from circinus.pipelines.catalog.video_captions.captioning import (
    Writer,
    by_model,
    captioned,
    checked_frames,
    checked_material,
    extract,
    sampled,
    transcribed,
    viewed,
)
from circinus.pipelines.catalog.video_captions.footage import (
    FPS,
    SIDE,
    checked_clip,
    clip_features,
    draw_example,
)
from circinus.pipelines.catalog.video_captions.scoring import caption_score, rouge_over_set
from circinus.pipelines.catalog.whisper import BEAMS, COMPUTE_TYPES, WHISPER
from circinus.pipelines.execution.metrics import SetMetric
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.operators import Knob, Operator, OperatorSpec

NAME = "video-captions"
MODULES = ("cv2", "faster_whisper", "rouge_score", "xllamacpp")
RATES = (1, 2, 4, FPS)  # frames per second that are looked at


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 768 configurations."""
    return with_models({})


def over_set() -> Pipeline:
    """Return the same, scored by the words of all clips together."""
    return replace(pipeline(), score=SetMetric(function=rouge_over_set), metric="ROUGE-L")


def with_models(ggufs: Mapping[str, Path], endpoints: tuple[ChatEndpoint, ...] = ()) -> Pipeline:
    """Return the pipeline with further captioners: GGUF files by name, and hosted models."""
    writers: dict[str, Writer] = {
        "extract": extract,
        **{
            name: partial(by_model, model) for name, model in chat_models(ggufs, endpoints).items()
        },
    }
    sides = tuple(side for side in SIDES if side <= SIDE)
    speaking = step(
        checked_clip, transcribed, model=tuple(WHISPER), compute=COMPUTE_TYPES, beam=BEAMS
    )
    writing = step(checked_material, partial(captioned, writers), model=tuple(writers))
    return Pipeline(
        name=NAME,
        metric="temporal IoU times ROUGE-L of matched captions, F-measure",
        operators=(
            _operator("transcript", speaking),
            _operator("sampler", step(checked_clip, sampled, fps=RATES, side=sides)),
            _operator("vision", step(checked_frames, viewed, model=NAMES), "sampler"),
            calling(_operator("captioner", writing, "transcript", "vision"), endpoints),
        ),
        score=caption_score,
        features=lambda clip: clip_features(checked_clip(clip)),
        examples=DrawnExamples(f"{NAME} clips", draw_example),
        prepare=prepare_models,
        request_size=lambda clip: checked_clip(clip).seconds,
        needs=(*(package(module, extra=NAME) for module in MODULES), *NEEDS),
        weights=(*WEIGHTS, *WHISPER.values(), *GGUFS.values()),
    )


def _operator(name: str, does: ChainStep, *after: str) -> Operator:
    knobs = tuple(Knob(name=knob, values=values) for knob, values in does.knobs.items())
    spec = OperatorSpec(name=name, after=after, knobs=knobs)
    return Operator(spec=spec, run=does.run, version=f"1-{models_version()}")
