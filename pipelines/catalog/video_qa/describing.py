"""Operators `sampler`, `processor` and `describer`: from a clip to what its pictures show.

A frame may show little, as something stands before it or noise is strong. So what pictures show is
decided over all frames, see `pipelines.catalog.sequences`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from circinus.pipelines.catalog.chaining import described
from circinus.pipelines.catalog.picture_models import SIDES, log_probabilities
from circinus.pipelines.catalog.pictures import Labels, UInt8Array, shrunk
from circinus.pipelines.catalog.sequences import LABELS, likeliest, runs_of
from circinus.pipelines.catalog.video_qa.clips import (
    MOST_FRAMES,
    ClipQuestion,
    DescribedPicture,
    checked_question,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.model.payload import Payload

READERS = ("none", "band", "page")
BAND = 0.25  # of the height of a frame, at its bottom, where words mostly are
SUREST, SHORTEST_WORD = 0.6, 3
_READER_BYTES = 2e8
_LONGEST_WORD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedClip:
    """What the pictures of a clip show, with the question about it."""

    pictures: tuple[DescribedPicture, ...]
    question: str
    options: tuple[str, ...]


def sampled(request: ClipQuestion, *, frames: int) -> dict[str, Payload]:
    """Return so many frames, in the middle of as many equal parts of the clip; at most all."""
    length = len(request.frames)
    count = min(frames, length)
    rows = ((np.arange(count) + 0.5) * length / count).astype(np.intp)
    return request.handing_on(request.frames[rows])


def processed(request: ClipQuestion, *, side: int) -> dict[str, Payload]:
    """Return frames of that side, in pixels."""
    return request.handing_on(shrunk(request.frames, side))


def described_clip(request: ClipQuestion, *, model: str, text: str) -> dict[str, Payload]:
    """Return what the pictures show by a model of what they have, and a reader of what is written.

    InvalidInput unless frames have a side that the model is trained for.
    """
    side = request.frames.shape[1]
    if side not in SIDES:  # at the shape, not the type
        raise InvalidInput.of("frames", f"must have a side of {SIDES}", side)
    rows = likeliest(log_probabilities(request.frames, model))
    pictures: list[Payload] = []
    for run in runs_of(rows):
        colour, shape = LABELS[run.label]
        word = read_word(request.frames[(run.start + run.end) // 2], text)
        pictures.append({"colour": colour, "shape": shape, "word": word})
    return {
        "pictures": pictures,
        "question": request.question,
        "options": list(request.options),
    }


def checked_description(value: Payload) -> DescribedClip:
    """Return the value as a description; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    question, options = checked_question(parts)
    rows = parts.get("pictures")
    if not (isinstance(rows, list) and 1 <= len(rows) <= MOST_FRAMES):
        rule = f"must be a list of 1 to {MOST_FRAMES}"
        raise InvalidInput.of("description.pictures", rule, described(rows))
    pictures = tuple(_picture(row) for row in rows)
    return DescribedClip(pictures=pictures, question=question, options=options)


def _picture(row: Payload) -> DescribedPicture:
    parts = row if isinstance(row, dict) else {}
    colour, shape, word = (parts.get(name) for name in ("colour", "shape", "word"))
    good = isinstance(word, str) and len(word) <= _LONGEST_WORD
    if good and isinstance(colour, str) and isinstance(shape, str):
        labels = Labels(colour, shape)
        if labels in LABELS:
            return DescribedPicture(labels=labels, word=str(word))
    rule = "must be dicts of a known colour, a known shape and a word"
    raise InvalidInput.of("description.pictures", rule, row)


def read_word(frame: UInt8Array, reader: str) -> str:
    """Return the longest word that a frame has, in capitals; empty where none is read.

    The reader `band` looks at the bottom of the frame alone, where `page` also finds words.
    """
    if reader == "none":
        return ""
    side = frame.shape[0]
    part = frame[round(side * (1 - BAND)) :] if reader == "band" else frame
    engine = MODELS.get(("rapidocr", reader), _READER_BYTES, partial(_engine, reader))
    result = engine(np.ascontiguousarray(part[:, :, ::-1]))
    texts, scores = result.txts or (), result.scores or ()
    words = [
        word.upper()
        for text, score in zip(texts, scores, strict=True)
        for word in str(text).split()
        if score >= SUREST and word.isascii() and word.isalpha() and len(word) >= SHORTEST_WORD
    ]
    return max(words, key=len, default="")[:_LONGEST_WORD]


def _engine(reader: str) -> Any:  # noqa: ANN401 - imported where it is used
    from rapidocr import RapidOCR

    runtime = "EngineConfig.onnxruntime"
    settings = {
        f"{runtime}.intra_op_num_threads": 1,
        f"{runtime}.inter_op_num_threads": 1,
        "Global.log_level": "critical",
        "Global.use_cls": False,
        "Global.use_det": reader == "page",
    }
    return RapidOCR(params=settings)
