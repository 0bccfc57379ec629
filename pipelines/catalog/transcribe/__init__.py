"""The built-in pipeline `transcribe`: the words that a person speaks in noise, by networks.

Its chain is `sampler -> trimmer -> denoiser -> recogniser`: the speech recognition of Circinus,
A.1 and A.3.
"""

from __future__ import annotations

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.prompts import NEEDS
from circinus.pipelines.catalog.speech.sound import (
    RATE,
    RATES,
    checked_recording,
    checked_sound,
    checked_transcript,
    sampled,
)
from circinus.pipelines.catalog.speech.utterances import recording_features
from circinus.pipelines.catalog.transcribe.cleaning import (
    DENOISERS,
    TRIMMERS,
    denoised,
    trimmed,
)
from circinus.pipelines.catalog.transcribe.networks import WEIGHTS
from circinus.pipelines.catalog.transcribe.recognising import RECOGNISERS, recognised
from circinus.pipelines.catalog.transcribe.recordings import draw_recording, normal
from circinus.pipelines.catalog.whisper import BEAMS, COMPUTE_TYPES
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

NAME = "transcribe"
THREADS = (1, 2)
_PACKAGES = ("faster_whisper", "jiwer", "onnxruntime")


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 576 configurations."""
    return pipeline_with(*RECOGNISERS)


def pipeline_with(*recognisers: str) -> Pipeline:
    """Return the pipeline with other recognisers: folders of Whisper for CTranslate2, or names.

    A name is one of `RECOGNISERS`, or one of the hub that its cache has.
    """
    return Pipeline(
        name=NAME,
        metric="1 - word error rate, at least 0",
        operators=chain(
            {
                "sampler": step(checked_recording, sampled, rate=RATES),
                "trimmer": step(checked_sound, trimmed, kind=TRIMMERS),
                "denoiser": step(checked_sound, denoised, kind=DENOISERS),
                "recogniser": step(
                    checked_sound,
                    recognised,
                    model=recognisers,
                    precision=COMPUTE_TYPES,
                    beam=BEAMS,
                    threads=THREADS,
                ),
            }
        ),
        score=_score,
        features=lambda recording: recording_features(checked_recording(recording)),
        examples=DrawnExamples(f"{NAME} recordings", draw_recording),
        request_size=lambda recording: len(checked_recording(recording)) / RATE,
        needs=(
            *(package(name, extra=NAME) for name in _PACKAGES),
            *NEEDS,
        ),
        weights=WEIGHTS,
    )


def _score(output: Payload, expected: Payload) -> float:
    from jiwer import wer

    words = normal(checked_transcript("expected", expected))
    if not words:
        raise InvalidInput.of("expected", "must have a word", expected)
    return max(0.0, 1.0 - wer(words, normal(checked_transcript("output", output))))
