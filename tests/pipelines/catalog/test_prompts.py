"""Recordings of people, and their words."""

from __future__ import annotations

import wave
from pathlib import Path

import pytest

from circinus.pipelines.catalog.prompts import NEEDS, Suited, recordings, samples_of, transcripts
from circinus.pipelines.execution.needs import missing

SUITED = Suited(fewest_words=3, most_words=14, shortest_s=0.8, longest_s=4.5)


def recorded(path: Path, *, seconds: float = 2.0, channels: int = 1) -> Path:
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(int(seconds * 8000) * 2 * channels))
    return path


def test_a_recording_that_is_missing_short_long_or_stereo_does_not_suit(tmp_path: Path) -> None:
    assert samples_of(tmp_path / "nowhere.wav", SUITED) is None
    assert samples_of(recorded(tmp_path / "short.wav", seconds=0.5), SUITED) is None
    assert samples_of(recorded(tmp_path / "long.wav", seconds=5), SUITED) is None
    assert samples_of(recorded(tmp_path / "stereo.wav", channels=2), SUITED) is None
    samples = samples_of(recorded(tmp_path / "good.wav"), SUITED)
    assert samples is not None
    assert len(samples) == 16_000


def test_transcripts_are_sentences_of_letters() -> None:
    lines = (
        "; a comment\n\nactivated: Activated.\nbeep: [a simple beep tone]\n"
        "vm-goodbye: Goodbye and farewell.\nconf: Please press 1 to mute.\nnumber-x: The number is"
    )
    expected = {"vm-goodbye": "Goodbye and farewell.", "number-x": "The number is"}
    assert transcripts(lines, SUITED) == expected


@pytest.mark.skipif(bool(missing(NEEDS)), reason="the voice prompts are missing")
def test_there_are_enough_recordings_for_three_parts() -> None:
    known = recordings(SUITED)
    assert len(known) > 120
    assert len({each.text.lower() for each in known}) == len(known)
