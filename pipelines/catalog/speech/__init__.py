"""The built-in pipeline `speech`: recognise a sentence spoken to a house, in noise, on a CPU.

Its chain is `sampler -> denoiser -> decoder -> corrector`.
"""

from __future__ import annotations

from functools import partial

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import DrawnExamples
from circinus.pipelines.catalog.speech.sound import (
    EFFORTS,
    KINDS,
    MODELS,
    RATES,
    checked_recording,
    checked_sound,
    checked_transcript,
    corrected,
    decoded,
    denoised,
    sampled,
)
from circinus.pipelines.catalog.speech.utterances import draw_utterance, recording_features
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.needs import package, program
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload

NAME = "speech"


def pipeline() -> Pipeline:
    """Return the pipeline with all its choices: 108 configurations."""
    checked_words = partial(checked_transcript, "transcript")
    return Pipeline(
        name=NAME,
        metric="1 - word error rate, at least 0",
        operators=chain(
            {
                "sampler": step(checked_recording, sampled, rate=RATES),
                "denoiser": step(checked_sound, denoised, kind=KINDS),
                "decoder": step(checked_sound, decoded, lm=MODELS, effort=tuple(EFFORTS)),
                "corrector": step(checked_words, corrected, kind=("none", "snap")),
            }
        ),
        score=_score,
        features=lambda recording: recording_features(checked_recording(recording)),
        examples=DrawnExamples(f"{NAME} utterances", draw_utterance),
        needs=(
            *(package(name, extra=NAME) for name in ("jiwer", "pocketsphinx", "rapidfuzz")),
            program("flite", debian="flite"),
        ),
    )


def _score(output: Payload, expected: Payload) -> float:
    from jiwer import wer

    expected_words, words = (
        checked_transcript("expected", expected),
        checked_transcript("output", output),
    )
    if not expected_words.split():
        raise InvalidInput.of("expected", "must have a word", expected_words)
    return max(0.0, 1.0 - wer(expected_words, words))
