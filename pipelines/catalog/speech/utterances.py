"""The workload: sentences that synthetic voices speak in noise, with their words."""

from __future__ import annotations

import io
import wave

import numpy as np

from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.programs import output_of
from circinus.pipelines.catalog.speech.sentences import COMMANDS, FREE, spoken
from circinus.pipelines.catalog.speech.sound import RATE, FloatArray, Samples, as_samples
from circinus.pipelines.io.datasets import Example

VOICES = ("slt", "rms", "awb", "kal16")
SNRS_DB = (20, 14, 8)
LOUDNESS = 2000.0  # root mean square of the voice
_LEAD_S, _TAIL_S = 0.3, 0.2  # seconds of noise alone, before and after
_TIMEOUT_S = 10.0


def draw_utterance(rng: np.random.Generator, seed: int) -> Example:
    """Return a recording, (n,) int16 at `RATE`, of a sentence from the seed's part, and its words.

    Two times of three it is a command, else a free sentence.
    """
    sentences = part_of(spoken(COMMANDS if rng.random() < 2 / 3 else FREE), seed)
    words = sentences[int(rng.integers(len(sentences)))]
    voice = VOICES[rng.integers(len(VOICES))]
    voice_sound = _synthesised(words, voice, pace=rng.uniform(0.85, 1.15))
    voice_sound = np.pad(
        voice_sound * (LOUDNESS / _rms(voice_sound)), (int(_LEAD_S * RATE), int(_TAIL_S * RATE))
    )
    snr_db = SNRS_DB[rng.integers(len(SNRS_DB))]
    around = noise(NOISES[rng.integers(len(NOISES))], len(voice_sound), rng)
    mixed = voice_sound + around * (LOUDNESS / _rms(around) * 10 ** (-snr_db / 20))
    return Example(input=as_samples(mixed), expected=words)


def recording_features(recording: Samples) -> FloatArray:  # (n,), at least 200 ms
    """Return how hard and how heavy a recording looks, for stratified sampling.

    Shape (4,): seconds, loudness of the quiet (dB), how far the voice stands above it (dB), and
    the share of sign changes in the first 200 ms, before any speech: the pitch of the noise.
    """
    frame = RATE // 50
    frames = recording[: len(recording) // frame * frame].reshape(-1, frame).astype(np.float64)
    loudness_db = 10 * np.log10(np.mean(frames**2, axis=1) + 1)
    quiet, loud = np.percentile(loudness_db, [10, 90])
    signs = np.signbit(recording[: RATE // 5])
    changes = np.mean(signs[1:] != signs[:-1])
    return np.array([len(recording) / RATE, quiet, loud - quiet, changes])


def _synthesised(words: str, voice: str, *, pace: float) -> FloatArray:  # (n,)
    stretch = f"duration_stretch={1 / pace:.3f}"
    # flite writes files only; its standard output is one.
    command = ("flite", "-voice", voice, "--setf", stretch, "-t", words, "-o", "/dev/stdout")
    with wave.open(io.BytesIO(output_of(command, timeout_s=_TIMEOUT_S))) as file:
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float64)


def _rms(sound: FloatArray) -> float:
    return float(np.sqrt(np.mean(sound**2)))


NOISES = ("white", "pink", "hum", "babble")
TALKERS = 6  # in the crowd of `babble`
_OVERTONES = 30
_LOWEST_HZ = 100.0  # coloured noise gets no louder below: a voice has nothing there either


def noise(kind: str, length: int, rng: np.random.Generator) -> FloatArray:  # (length,)
    """Return noise of that kind, one of `NOISES`."""
    match kind:
        case "white":
            return rng.standard_normal(length)
        case "pink":
            return _coloured(length, -0.5, rng)
        case "hum":
            return _hum(length, rng)
        case _:
            return sum((_talker(length, rng) for _ in range(TALKERS)), np.zeros(length))


def _coloured(length: int, power: float, rng: np.random.Generator) -> FloatArray:
    """Return noise whose magnitude falls with frequency, to that power."""
    whole = length + -length % RATE  # of entire seconds, whose transforms are fast
    hertz = np.fft.rfftfreq(whole, 1 / RATE)
    spectrum = np.fft.rfft(rng.standard_normal(whole))
    return np.fft.irfft(spectrum * np.maximum(hertz, _LOWEST_HZ) ** power, n=whole)[:length]


def _hum(length: int, rng: np.random.Generator) -> FloatArray:
    """Return a tone of a motor with its overtones, and a little hiss."""
    turns = rng.uniform(95, 125) * np.arange(length) / RATE
    phases = rng.uniform(0, 2 * np.pi, _OVERTONES)
    hum = 0.1 * rng.standard_normal(length)
    for overtone, phase in enumerate(phases, start=1):
        hum += np.sin(2 * np.pi * overtone * turns + phase) / overtone
    return hum


def _talker(length: int, rng: np.random.Generator) -> FloatArray:
    """Return a voice without words: noise with the spectrum and the rhythm of speech."""
    turns = rng.uniform(2.5, 5) * np.arange(length) / RATE + rng.random()
    return _coloured(length, -1, rng) * np.maximum(np.sin(2 * np.pi * turns), 0)
