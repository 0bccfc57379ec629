"""Whisper (Radford et al. 2023) by CTranslate2: what is said in a sound, and when.

It always works on 30 s of sound, so that its time hardly depends on the sound's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.execution.loaded import MODELS
from circinus.pipelines.execution.weights import ModelWeights

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

RATE = 16_000  # samples per second that the model takes
COMPUTE_TYPES = ("int8", "float32")
BEAMS = (1, 5)
WHISPER: Mapping[str, ModelWeights] = {
    "tiny.en": ModelWeights(
        name="whisper-tiny.en",
        what="Whisper tiny.en, CTranslate2",
        licence="MIT",
        size_bytes=78_090_614,
        files={
            "config.json": "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
            "model.bin": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
            "tokenizer.json": "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
            "vocabulary.txt": "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
        },
        hub="Systran/faster-whisper-tiny.en",
    ),
    "base": ModelWeights(
        name="whisper-base",
        what="Whisper base, CTranslate2",
        licence="MIT",
        size_bytes=150_218_479,
        files={
            "config.json": "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
            "model.bin": "905e5bf8336bcc625ba4e33498d675a4b935504118c594d868c36e91a60c1a57",
            "tokenizer.json": "7e146198186d5e3b9ce7d9d7f131b69b44569eaed9ad64a5516629a6c6a865c4",
            "vocabulary.json": "22f3cb2fc2be1545b9a7db8e993ddd59aeccadfbc7d7b00ca517ca8960864766",
        },
    ),
}


_BUFFER_BYTES = 800_000_000  # beside the weights, as measured of tiny.en


class TimedWord(NamedTuple):
    """A word and when it is spoken."""

    start: float  # seconds
    end: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperSettings:
    """Which Whisper listens, and how."""

    model: str  # of `WHISPER`; else a folder of the user's, or a name that the hub's cache has
    compute: str  # of `COMPUTE_TYPES`
    beam: int  # that its decoder searches with, `>= 1`
    threads: int = 1  # `>= 1`


def timed_words(
    sound: NDArray[np.float32], settings: WhisperSettings
) -> Sequence[TimedWord]:  # (n,) at `RATE`, in [-1, 1]
    """Return the words of speech and their seconds."""
    return [
        TimedWord(float(word.start), float(word.end), word.word.strip())
        for segment in _segments(sound, settings, word_timestamps=True)
        for word in segment.words or ()
    ]


def transcript(sound: NDArray[np.float32], settings: WhisperSettings) -> str:  # (n,), as above
    """Return what is said, as Whisper writes it."""
    segments = _segments(sound, settings, without_timestamps=True)
    return " ".join(segment.text for segment in segments)


def _segments(
    sound: NDArray[np.float32], settings: WhisperSettings, **options: bool
) -> Iterable[Any]:
    known = WHISPER.get(settings.model)
    where = settings.model if known is None else str(known.folder)
    size = _BUFFER_BYTES
    if known is not None:
        size += known.size_bytes * (2 if settings.compute == "float32" else 1)
    key = ("whisper", where, settings.compute, settings.threads)
    model = MODELS.get(key, size, partial(_model, where, known, settings))
    segments, _ = model.transcribe(
        sound,
        language="en",
        beam_size=settings.beam,
        temperature=0.0,  # no second try by chance
        condition_on_previous_text=False,
        **options,
    )
    return cast("Iterable[Any]", segments)


def _model(where: str, known: ModelWeights | None, settings: WhisperSettings) -> WhisperModel:
    from ctranslate2 import get_cuda_device_count
    from faster_whisper import WhisperModel

    if known is not None:
        known.path("model.bin")
    return WhisperModel(
        where,
        device="cuda" if get_cuda_device_count() else "cpu",
        compute_type=settings.compute,
        cpu_threads=settings.threads,
        local_files_only=True,
    )
