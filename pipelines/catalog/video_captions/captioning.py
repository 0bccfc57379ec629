"""Operators `transcript`, `sampler`, `vision` and `captioner`, from a clip to its captions.

What is shown decides where a segment begins and ends, so the seconds between frames limit how
exact that is. A word belongs to the segment that the middle of its seconds is in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.catalog.chaining import checked_array, described
from circinus.pipelines.catalog.language import ChatMessage, ChatModel, Generation
from circinus.pipelines.catalog.picture_models import SIDES, log_probabilities
from circinus.pipelines.catalog.pictures import Labels, UInt8Array, shrunk
from circinus.pipelines.catalog.prompts import RATE
from circinus.pipelines.catalog.sequences import LABELS, likeliest, runs_of
from circinus.pipelines.catalog.video_captions.footage import (
    FPS,
    LONGEST_S,
    MOST_CAPTIONS,
    MOST_CHARACTERS,
    SpokenClip,
    caption_of,
)
from circinus.pipelines.catalog.whisper import RATE as WHISPER_RATE
from circinus.pipelines.catalog.whisper import TimedWord, WhisperSettings, timed_words
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.payload import Payload

MOST_WORDS = 1000  # of a transcript
MOST_TOKENS = 64  # of a caption


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledFrames:
    """Some frames of a clip."""

    frames: UInt8Array  # (n, side, side, 3)
    fps: float  # of them a second
    seconds: float  # that the clip lasts


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedPicture:
    """What is shown from one second to another."""

    start: float
    end: float  # `> start`
    labels: Labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What captions are made of."""

    words: Sequence[TimedWord]  # in the order of their seconds
    pictures: Sequence[TimedPicture]


def transcribed(clip: SpokenClip, *, model: str, compute: str, beam: int) -> list[Payload]:
    """Return the words that are spoken, dicts of `start`, `end` (seconds) and `text`."""
    from scipy.signal import resample_poly

    sound = resample_poly(clip.sound.astype(np.float32) / 32768, WHISPER_RATE // RATE, 1)
    settings = WhisperSettings(model=model, compute=compute, beam=beam)
    words = timed_words(sound.astype(np.float32), settings)
    return [{"start": each.start, "end": each.end, "text": each.text} for each in words]


def sampled(clip: SpokenClip, *, fps: int, side: int) -> SampledFrames:
    """Return so many frames a second, of that side in pixels."""
    step = FPS // fps
    frames = shrunk(np.ascontiguousarray(clip.frames[step // 2 :: step]), side)
    return SampledFrames(frames=frames, fps=float(fps), seconds=clip.seconds)


def checked_frames(value: Payload) -> SampledFrames:
    """Return the value as some frames of a clip; InvalidInput unless a dict of its fields."""
    parts = value if isinstance(value, dict) else {}
    most = LONGEST_S * FPS

    def fits(its: tuple[int, ...]) -> bool:
        return len(its) == 4 and 1 <= its[0] <= most and its[1] == its[2] in SIDES and its[3] == 3

    rule = f"a uint8 array of 1 to {most:g} square frames in 3 colours, each side one of {SIDES}"
    frames = checked_array("frames", parts.get("frames"), np.uint8, fits, rule)
    fps, seconds = _seconds("fps", parts.get("fps")), _seconds("seconds", parts.get("seconds"))
    return SampledFrames(frames=frames, fps=fps, seconds=seconds)


def _seconds(field: str, value: Payload) -> float:
    if isinstance(value, int | float) and 0 < value <= 2 * LONGEST_S:
        return float(value)
    raise InvalidInput.of(field, f"must be in (0, {2 * LONGEST_S:g}]", described(value))


def viewed(clip: SampledFrames, *, model: str) -> list[Payload]:
    """Return what is shown when, dicts of `start`, `end` (seconds), `colour` and `shape`."""
    rows = likeliest(log_probabilities(clip.frames, model))
    pictures: list[Payload] = []
    for run in runs_of(rows):
        end = clip.seconds if run.end == len(rows) else run.end / clip.fps
        colour, shape = LABELS[run.label]
        pictures.append(
            {"start": run.start / clip.fps, "end": end, "colour": colour, "shape": shape}
        )
    return pictures


def checked_material(value: Payload) -> Material:
    """Return what comes in as words and pictures; InvalidInput unless a dict of both."""
    parts = value if isinstance(value, dict) else {}
    words = _rows("transcript", parts.get("transcript"), MOST_WORDS)
    pictures = _rows("vision", parts.get("vision"), int(LONGEST_S * FPS))
    return Material(words=[_word(row) for row in words], pictures=[_picture(p) for p in pictures])


def _rows(field: str, value: Payload, most: int) -> Sequence[dict[str, Payload]]:
    rows = value if isinstance(value, list) else []
    dicts = [row for row in rows[:most] if isinstance(row, dict)]
    if not isinstance(value, list) or len(dicts) < len(rows):
        raise InvalidInput.of(field, f"must be a list of at most {most} dicts", described(value))
    return dicts


def _word(row: Mapping[str, Payload]) -> TimedWord:
    times, text = _times(row), row.get("text")
    if times is not None and isinstance(text, str) and len(text) <= MOST_CHARACTERS:
        return TimedWord(*times, text)
    raise InvalidInput.of("transcript", "must be dicts of 0 <= start <= end and a text", dict(row))


def _picture(row: Mapping[str, Payload]) -> TimedPicture:
    times, labels = _times(row), Labels(str(row.get("colour")), str(row.get("shape")))
    if times is not None and times[0] < times[1] and labels in LABELS:
        return TimedPicture(start=times[0], end=times[1], labels=labels)
    rule = "must be dicts of 0 <= start < end, a known colour and a known shape"
    raise InvalidInput.of("vision", rule, dict(row))


def _times(row: Mapping[str, Payload]) -> tuple[float, float] | None:
    """Return start and end, in seconds; None unless they are in that order, and not too late."""
    start, end = row.get("start"), row.get("end")
    if isinstance(start, int | float) and isinstance(end, int | float):
        return (float(start), float(end)) if 0 <= start <= end <= 2 * LONGEST_S else None
    return None


# --- Captions -----------------------------------------------------------------------------

Writer = Callable[[Labels, str], str]
"""From what is shown and the words that are spoken to a caption."""


def extract(labels: Labels, words: str) -> str:
    """Return what is shown, and the words, as they are."""
    return f"{labels}. {words}"


def captioned(writers: Mapping[str, Writer], material: Material, *, model: str) -> list[Payload]:
    """Return a caption for each picture, by one of the writers; at most `MOST_CAPTIONS`."""
    captions: list[Payload] = []
    for picture in material.pictures[:MOST_CAPTIONS]:
        inside = (
            word.text
            for word in material.words
            if picture.start <= (word.start + word.end) / 2 < picture.end
        )
        text = writers[model](picture.labels, " ".join(inside))[:MOST_CHARACTERS]
        captions.append({"start": picture.start, "end": picture.end, "text": text})
    return captions


def prompt(labels: Labels, words: str) -> Sequence[ChatMessage]:
    """Return messages that show one caption as an example, and ask for another."""
    example = Labels("orange", "square"), "Please leave a message."
    return [
        {"role": "user", "content": _notes(*example)},
        {"role": "assistant", "content": caption_of(*example)},
        {"role": "user", "content": _notes(labels, words)},
    ]


def _notes(labels: Labels, words: str) -> str:
    return f"Write a caption. Picture: {labels}. Voice: {words}"


def by_model(model: ChatModel, labels: Labels, words: str) -> str:
    """Return the caption that a model writes: its first line."""
    return _first_line(model(prompt(labels, words), Generation(most_tokens=MOST_TOKENS)).text)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
