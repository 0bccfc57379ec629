"""Pipeline `speech` put together: its operators, knobs, metric and data."""

from __future__ import annotations

from functools import partial

from circinus.pipelines.catalog.chaining import chain, step
from circinus.pipelines.catalog.material import drawn
from circinus.pipelines.catalog.speech.decoding import EFFORTS, MODELS, corrected, decoded
from circinus.pipelines.catalog.speech.sound import (
    RATE,
    RATES,
    Sound,
    checked_recording,
    checked_sound,
    checked_transcript,
    denoised,
    resampled,
)
from circinus.pipelines.catalog.speech.utterances import draw_utterance, recording_features
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.needs import package, program
from circinus.pipelines.operators import Settings
from circinus.pipelines.payload import Payload
from circinus.pipelines.pipeline import Pipeline

NAME = "speech"


def pipeline() -> Pipeline:
    """The pipeline with all its choices: 108 configurations."""
    denoiser = step(checked_sound, denoised, Sound.payload)
    corrector = step(partial(checked_transcript, "transcript"), corrected)
    effort = tuple(EFFORTS)
    return Pipeline(
        name=NAME,
        metric="1 - word error rate, at least 0",
        operators=chain(
            {
                "sampler": (_sample, {"rate": RATES}),
                "denoiser": (denoiser, {"kind": ("none", "mask200", "gate1.5")}),
                "decoder": (step(checked_sound, decoded), {"lm": MODELS, "effort": effort}),
                "corrector": (corrector, {"kind": ("none", "snap")}),
            }
        ),
        score=_score,
        features=lambda recording: recording_features(checked_recording(recording)),
        examples=_examples,
        needs=(
            *(package(name, extra=NAME) for name in ("jiwer", "pocketsphinx", "rapidfuzz")),
            program("flite", debian="flite"),
        ),
    )


def _sample(inputs: Payload, knobs: Settings) -> Payload:
    rate = knobs["rate"]
    if rate not in RATES:
        raise InvalidInput.of("rate", f"must be one of {RATES}", rate)
    recording = Sound(rate=RATE, samples=checked_recording(inputs))
    return resampled(recording, int(rate)).payload()


def _score(output: Payload, expected: Payload) -> float:
    from jiwer import wer

    said, heard = checked_transcript("expected", expected), checked_transcript("output", output)
    if not said.split():
        raise InvalidInput.of("expected", "must have a word", said)
    return max(0.0, 1.0 - wer(said, heard))


def _examples(count: int, seed: int) -> Dataset:
    name = f"{NAME} utterances, seed {seed}"
    return drawn(name, count, seed, lambda rng: draw_utterance(rng, seed))
