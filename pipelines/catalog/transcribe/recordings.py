"""The workload: sentences that people spoke, in noise, with their words."""

from __future__ import annotations

import re

import numpy as np

from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.prompts import RATE as RECORDED_RATE
from circinus.pipelines.catalog.prompts import Suited, recordings
from circinus.pipelines.catalog.speech.sound import RATE, FloatArray, Sound, as_samples, resampled
from circinus.pipelines.catalog.speech.utterances import LOUDNESS, NOISES, noise
from circinus.pipelines.io.datasets import Example

SNRS_DB = (16, 8, 4, 0)
_SUITED = Suited(fewest_words=3, most_words=24, shortest_s=1.0, longest_s=12.0)
_LEAD_S, _TAIL_S = 0.4, 0.4  # seconds of noise alone, before and after
_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def draw_recording(rng: np.random.Generator, seed: int) -> Example:
    """Return a recording, (n,) int16 at `RATE`, of a sentence of the seed's part; its words."""
    sentences = part_of(recordings(_SUITED), seed)
    sentence = sentences[int(rng.integers(len(sentences)))]
    voice = resampled(Sound(rate=RECORDED_RATE, samples=sentence.sound), RATE).samples
    loud = voice * (LOUDNESS / _rms(voice.astype(np.float64)))
    loud = np.pad(loud, (int(_LEAD_S * RATE), int(_TAIL_S * RATE)))
    snr_db = SNRS_DB[rng.integers(len(SNRS_DB))]
    around = noise(NOISES[rng.integers(len(NOISES))], len(loud), rng)
    mixed = loud + around * (LOUDNESS / _rms(around) * 10 ** (-snr_db / 20))
    return Example(input=as_samples(mixed), expected=normal(sentence.text))


def normal(text: str) -> str:
    """Return lower-case words, digits spelled out, without marks: what a word error counts."""
    spelled = re.sub(r"\d", lambda digit: f" {_DIGITS[int(digit.group())]} ", text.lower())
    return " ".join(re.findall(r"[a-z']+", spelled.replace("\u2019", "'")))


def _rms(sound: FloatArray) -> float:
    return float(np.sqrt(np.mean(sound**2)))
