"""Pipeline `speech` put together: its operators, knobs, metric and data.

One rule: what operators exchange is checked here, on the way in; the functions behind trust it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from pipelines.catalog.chaining import Grid, chain
from pipelines.catalog.speech.decoding import EFFORTS, MODELS, decoded
from pipelines.catalog.speech.denoising import denoised
from pipelines.catalog.speech.resampling import resampled
from pipelines.catalog.speech.snapping import corrected
from pipelines.catalog.speech.sound import (
    RATE,
    RATES,
    Sound,
    checked_recording,
    checked_sound,
    checked_transcript,
)
from pipelines.catalog.speech.utterances import draw_utterance, recording_features
from pipelines.dataset import Dataset, Example
from pipelines.errors import InvalidInput
from pipelines.needs import package, program
from pipelines.operators import OperatorFunction, Settings
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline
from pipelines.profile import FloatArray

NAME = "speech"

GRID: Grid = MappingProxyType(
    {
        "sampler": {"rate": RATES},
        "denoiser": {"kind": ("none", "mask200", "gate1.5")},
        "decoder": {"lm": MODELS, "effort": tuple(EFFORTS)},
        "corrector": {"kind": ("none", "snap")},
    }
)
"""108 configurations."""


def pipeline() -> Pipeline:
    """The pipeline with all its choices."""
    return Pipeline(
        name=NAME,
        metric="1 - word error rate, at least 0",
        operators=chain(GRID, _FUNCTIONS),
        score=_score,
        features=_features,
        examples=_examples,
        needs=(
            package("jiwer", extra=NAME),
            package("pocketsphinx", extra=NAME),
            package("rapidfuzz", extra=NAME),
            program("flite", debian="flite"),
        ),
    )


def _sample(inputs: Payload, knobs: Settings) -> Payload:
    rate = knobs["rate"]
    if rate not in RATES:
        raise InvalidInput.of("rate", f"must be one of {RATES}", rate)
    recording = Sound(rate=RATE, samples=checked_recording(inputs))
    return resampled(recording, int(rate)).payload()


def _denoise(inputs: Payload, knobs: Settings) -> Payload:
    return denoised(checked_sound(inputs), kind=str(knobs["kind"])).payload()


def _decode(inputs: Payload, knobs: Settings) -> Payload:
    return decoded(checked_sound(inputs), lm=str(knobs["lm"]), effort=str(knobs["effort"]))


def _correct(inputs: Payload, knobs: Settings) -> Payload:
    return corrected(checked_transcript("transcript", inputs), kind=str(knobs["kind"]))


_FUNCTIONS: Mapping[str, OperatorFunction] = MappingProxyType(
    {"sampler": _sample, "denoiser": _denoise, "decoder": _decode, "corrector": _correct}
)


def _score(output: Payload, expected: Payload) -> float:
    from jiwer import wer

    said, heard = checked_transcript("expected", expected), checked_transcript("output", output)
    if not said.split():
        raise InvalidInput.of("expected", "must have a word", said)
    return max(0.0, 1.0 - wer(said, heard))


def _features(recording: Payload) -> FloatArray:
    return recording_features(checked_recording(recording))


def _examples(count: int, seed: int) -> Dataset:
    """Utterances drawn from a seed; a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    utterances = [draw_utterance(rng, seed) for _ in range(count)]
    return Dataset(
        name=f"{NAME} utterances, seed {seed}",
        examples=[Example(input=said.recording, expected=said.words) for said in utterances],
    )
