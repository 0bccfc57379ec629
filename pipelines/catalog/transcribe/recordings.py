"""The workload: sentences that people spoke, in noise, with their words.

The recordings are Debian's voice prompts of a telephone exchange, at 8 kHz; the noise is drawn.
"""

from __future__ import annotations

import gzip
import re
import wave
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.speech.sound import (
    RATE,
    FloatArray,
    Sound,
    as_samples,
    resampled,
)
from circinus.pipelines.catalog.speech.utterances import LOUDNESS, NOISES, noise
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example

SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
WORDS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
SNRS_DB = (16, 8, 4, 0)
FEWEST, MOST = 3, 24  # words of a sentence
_SHORTEST_S, _LONGEST_S = 1.0, 12.0
_LEAD_S, _TAIL_S = 0.4, 0.4  # seconds of noise alone, before and after

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """A recorded sentence."""

    file: Path
    words: str  # as `normal` has them


def draw_recording(rng: np.random.Generator, seed: int) -> Example:
    """Return a recording, (n,) int16 at `RATE`, of a sentence of the seed's part; its words."""
    sentences = part_of(spoken(), seed)
    sentence = sentences[int(rng.integers(len(sentences)))]
    voice = _voice(sentence.file)
    voice = np.pad(voice * (LOUDNESS / _rms(voice)), (int(_LEAD_S * RATE), int(_TAIL_S * RATE)))
    snr_db = SNRS_DB[rng.integers(len(SNRS_DB))]
    around = noise(NOISES[rng.integers(len(NOISES))], len(voice), rng)
    mixed = voice + around * (LOUDNESS / _rms(around) * 10 ** (-snr_db / 20))
    return Example(input=as_samples(mixed), expected=sentence.words)


@cache
def spoken() -> tuple[Spoken, ...]:
    """Return all sentences with a recording and plain words, in alphabetical order of files."""
    return sentences(gzip.decompress(WORDS.read_bytes()).decode("utf-8"), SOUNDS)


def sentences(text: str, folder: Path) -> tuple[Spoken, ...]:
    """Return the sentences of lines `name: words`; without those that describe a tone."""
    lines = (line.partition(":") for line in text.splitlines() if not line.startswith(";"))
    plain = ((name.strip(), words) for name, _, words in lines if not re.search(r"[\[(\d]", words))
    known = [Spoken(file=folder / f"{name}.wav", words=normal(words)) for name, words in plain]
    return tuple(
        sentence
        for sentence in sorted(known, key=lambda each: each.file)
        if FEWEST <= len(sentence.words.split()) <= MOST
        and sentence.file.exists()
        and _SHORTEST_S <= _seconds(sentence.file) <= _LONGEST_S
    )


def normal(text: str) -> str:
    """Return lower-case words, digits spelled out, without marks: what a word error counts."""
    spelled = re.sub(r"\d", lambda digit: f" {_DIGITS[int(digit.group())]} ", text.lower())
    return " ".join(re.findall(r"[a-z']+", spelled.replace("\u2019", "'")))


def _seconds(file: Path) -> float:
    with wave.open(str(file)) as sound:
        return float(sound.getnframes() / sound.getframerate())


def _voice(file: Path) -> FloatArray:  # (n,) at RATE
    with wave.open(str(file)) as sound:
        form = sound.getnchannels(), sound.getsampwidth()
        if form != (1, 2):
            raise InvalidInput.of(str(file), "must be mono sound of 16 bits", form)
        samples = np.frombuffer(sound.readframes(sound.getnframes()), "<i2").astype(np.int16)
        return resampled(Sound(rate=sound.getframerate(), samples=samples), RATE).samples.astype(
            np.float64
        )


def _rms(sound: FloatArray) -> float:
    return float(np.sqrt(np.mean(sound**2)))
