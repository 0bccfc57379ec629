"""Sentences that a person spoke, with their words: Debian's prompts of a telephone exchange."""

from __future__ import annotations

import gzip
import re
import wave
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.execution.needs import Need, file

Samples: TypeAlias = NDArray[np.int16]

RATE = 8000  # samples per second
SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
TRANSCRIPTS = tuple(
    Path("/usr/share/doc/asterisk-core-sounds-en") / f"core-sounds-en.txt{end}"
    for end in (".gz", "")
)
NEEDS: tuple[Need, ...] = (
    file(str(SOUNDS), [SOUNDS / "activated.wav"], debian="asterisk-core-sounds-en-wav"),
    file(TRANSCRIPTS[0].name, TRANSCRIPTS, debian="asterisk-core-sounds-en"),
)


class Suited(NamedTuple):
    """Which sentences suit."""

    fewest_words: int
    most_words: int
    shortest_s: float
    longest_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A sentence that somebody spoke."""

    text: str
    sound: Samples  # at `RATE`


@cache
def recordings(suited: Suited) -> Sequence[Recording]:
    """Return the recordings that suit, in the order of their names, each text once."""
    texts = transcripts(_transcript_text(), suited)
    known = [
        Recording(text=text, sound=sound)
        for name, text in texts.items()
        if (sound := samples_of(SOUNDS / f"{name}.wav", suited)) is not None
    ]
    return tuple({each.text.lower(): each for each in known}.values())


def transcripts(lines: str, suited: Suited) -> Mapping[str, str]:
    """Return the words of recordings by name: sentences of letters alone."""
    pairs = (line.split(":", 1) for line in lines.splitlines() if re.match(r"[\w-]+:", line))
    return {
        name: text.strip()
        for name, text in pairs
        if re.fullmatch(r"[A-Za-z ,.'?!]+", text.strip())
        and suited.fewest_words <= len(text.split()) <= suited.most_words
    }


def samples_of(path: Path, suited: Suited) -> Samples | None:
    """Return the samples of a recording; None if there is none, or it is too short or long."""
    if not path.exists():
        return None
    with wave.open(str(path)) as recording:
        form = recording.getframerate(), recording.getnchannels(), recording.getsampwidth()
        samples = np.frombuffer(recording.readframes(recording.getnframes()), "<i2")
    within = suited.shortest_s <= len(samples) / RATE <= suited.longest_s
    return samples.astype(np.int16) if form == (RATE, 1, 2) and within else None


def _transcript_text() -> str:
    path = next(path for path in TRANSCRIPTS if path.exists())
    content = path.read_bytes()
    return (gzip.decompress(content) if path.suffix == ".gz" else content).decode("utf-8")
