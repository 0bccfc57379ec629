"""The built-in pipeline `video-qa`: answer a question about a clip, by neural networks on a CPU.

Its chain is `sampler -> processor -> describer -> answerer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.language import GGUFS, ChatEndpoint, calling, chat_models
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.picture_models import (
    NAMES,
    SIDES,
    WEIGHTS,
    models_version,
    prepare_models,
)
from circinus.pipelines.catalog.video_qa.answering import (
    IN_HOUSE,
    Answerer,
    answered,
    by_model,
    trained,
)
from circinus.pipelines.catalog.video_qa.clips import (
    MOST_CHARACTERS,
    checked_request,
    clip_features,
    draw_example,
)
from circinus.pipelines.catalog.video_qa.describing import (
    READERS,
    checked_description,
    described_clip,
    processed,
    sampled,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

NAME = "video-qa"
COUNTS = (1, 2, 4, 8, 16)  # of frames
MODULES = ("cv2", "rapidocr", "xllamacpp")


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 720 configurations."""
    return with_models({}, ())


def with_models(ggufs: Mapping[str, Path], endpoints: tuple[ChatEndpoint, ...] = ()) -> Pipeline:
    """Return the pipeline with further answerers: GGUF files by name, and hosted models."""
    answerers: dict[str, Answerer] = {
        **IN_HOUSE,
        **{
            name: partial(by_model, model) for name, model in chat_models(ggufs, endpoints).items()
        },
    }
    checked_small = partial(checked_request, smallest=min(SIDES))
    *before, answerer = chain(
        {
            "sampler": step(checked_request, sampled, frames=COUNTS),
            "processor": step(checked_request, processed, side=SIDES),
            "describer": step(checked_small, described_clip, model=NAMES, text=READERS),
            "answerer": step(
                checked_description, partial(answered, answerers), model=tuple(answerers)
            ),
        },
        describer=f"1-{models_version()}",
        answerer=f"1-{models_version()}",
    )
    return Pipeline(
        name=NAME,
        metric="share of questions answered right",
        operators=(*before, calling(answerer, endpoints)),
        score=_score,
        features=lambda request: clip_features(checked_request(request)),
        examples=DrawnExamples(f"{NAME} clips with questions", draw_example),
        prepare=_prepare,
        request_size=lambda request: float(len(checked_request(request).frames)),
        needs=tuple(package(module, extra=NAME) for module in MODULES),
        weights=(*WEIGHTS, *GGUFS.values()),
    )


def _prepare() -> None:
    prepare_models()
    trained()


def _score(output: Payload, expected: Payload) -> float:
    """Return whether the answer is the right one, 1 or 0."""
    return float(_answer("output", output) == _answer("expected", expected))


def _answer(field: str, value: Payload) -> str:
    if isinstance(value, str) and 0 < len(value) <= MOST_CHARACTERS:
        return value
    rule = f"must be a text of 1 to {MOST_CHARACTERS} characters"
    raise InvalidInput.of(field, rule, value)
