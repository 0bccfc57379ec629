"""The workload: sentences that synthetic voices say in noise, with their words.

One rule: everything about a recording is drawn from the generator handed in, so that a seed names
a workload. How loud the noise is is a design choice: it spreads the accuracies of the
configurations, and says nothing about a recogniser in the wild.
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass

import numpy as np

from pipelines.catalog.material import part_of
from pipelines.catalog.programs import output_of
from pipelines.catalog.speech.noises import NOISES, noise
from pipelines.catalog.speech.sentences import COMMANDS, FREE, spoken
from pipelines.catalog.speech.sound import RATE, FloatArray, Samples, as_samples

VOICES = ("slt", "rms", "awb", "kal16")
SNRS_DB = (20, 14, 8)
LOUDNESS = 2000.0
"""Root mean square of the voice."""
_LEAD_S, _TAIL_S = 0.3, 0.2
"""Seconds of noise alone, before and after."""
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A recording and what is said in it.

    Attributes:
        recording: (n,) int16 at `RATE`.
        words: In lower case, parted by spaces.
    """

    recording: Samples
    words: str


def draw_utterance(rng: np.random.Generator, seed: int) -> Utterance:
    """Two times of three a command, else a free sentence; from the part of the seed."""
    sentences = part_of(spoken(COMMANDS if rng.random() < 2 / 3 else FREE), seed)
    words = sentences[int(rng.integers(len(sentences)))]
    voice = VOICES[rng.integers(len(VOICES))]
    said = _said(words, voice, pace=rng.uniform(0.85, 1.15))
    said = np.pad(said * (LOUDNESS / _rms(said)), (int(_LEAD_S * RATE), int(_TAIL_S * RATE)))
    snr_db = SNRS_DB[rng.integers(len(SNRS_DB))]
    around = noise(NOISES[rng.integers(len(NOISES))], len(said), rng)
    mixed = said + around * (LOUDNESS / _rms(around) * 10 ** (-snr_db / 20))
    return Utterance(recording=as_samples(mixed), words=words)


def recording_features(
    recording: Samples,  # (n,), at least 200 ms
) -> FloatArray:
    """How hard and how heavy a recording looks, for stratified sampling.

    Returns:
        (4,): seconds, loudness of the quiet (dB), how far the voice stands above it (dB), and the
        share of sign changes in the first 200 ms, where nobody speaks yet: the pitch of the noise.
    """
    frame = RATE // 50
    frames = recording[: len(recording) // frame * frame].reshape(-1, frame).astype(np.float64)
    loudness_db = 10 * np.log10(np.mean(frames**2, axis=1) + 1)
    quiet, loud = np.percentile(loudness_db, [10, 90])
    signs = np.signbit(recording[: RATE // 5])
    changes = np.mean(signs[1:] != signs[:-1])
    return np.array([len(recording) / RATE, quiet, loud - quiet, changes])


def _said(words: str, voice: str, *, pace: float) -> FloatArray:  # (n,)
    stretch = f"duration_stretch={1 / pace:.3f}"
    # flite writes files only; its standard output is one.
    command = ("flite", "-voice", voice, "--setf", stretch, "-t", words, "-o", "/dev/stdout")
    with wave.open(io.BytesIO(output_of(command, timeout_s=_TIMEOUT_S))) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)


def _rms(sound: FloatArray) -> float:
    return float(np.sqrt(np.mean(sound**2)))
