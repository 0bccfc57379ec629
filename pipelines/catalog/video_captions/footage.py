"""What the pipeline gets: a clip with a spoken track; and captions, which are what it gives.

A clip has two to four segments. In each, one picture is shown and one sentence spoken: recordings
of a person, and their words, are those of Debian's telephone prompts. So limits and words of all
segments are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import checked_array, described
from circinus.pipelines.catalog.material import part_of
from circinus.pipelines.catalog.pictures import (
    LabelledPicture,
    Labels,
    UInt8Array,
    drawn_camera,
    drawn_frame,
    pictures,
    shrunk,
)
from circinus.pipelines.catalog.prompts import RATE, Samples, Suited, recordings
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload

FPS = 8  # frames per second of a clip
SIDE = 64  # pixels
SHORTEST_S, LONGEST_S = 1.0, 30.0
MOST_CAPTIONS = 64
MOST_CHARACTERS = 1000  # of a caption
_LENGTH_TOLERANCE_S = 1.0  # between sound and frames


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenClip:
    """Frames and sound that begin together."""

    frames: UInt8Array  # (n, SIDE, SIDE, 3), `FPS` of them a second
    sound: Samples  # (m,), `RATE` of them a second

    @property
    def seconds(self) -> float:
        """How long the frames last."""
        return len(self.frames) / FPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Caption:
    """What happens from one second of a clip to another."""

    start: float
    end: float  # `> start`
    text: str


def checked_clip(value: Payload) -> SpokenClip:
    """Return the value as a clip; InvalidInput unless a dict of frames and sound, alike long."""
    parts = value if isinstance(value, dict) else {}
    least, most = int(SHORTEST_S * FPS), int(LONGEST_S * FPS)

    def fits(its: tuple[int, ...]) -> bool:
        return len(its) == 4 and its[1:] == (SIDE, SIDE, 3) and least <= its[0] <= most

    rule = f"a uint8 array of {least} to {most} frames of {SIDE} x {SIDE} pixels in 3 colours"
    frames = checked_array("frames", parts.get("frames"), np.uint8, fits, rule)
    rule = "an int16 array of one axis"
    sound = checked_array("sound", parts.get("sound"), np.int16, lambda its: len(its) == 1, rule)
    if abs(len(sound) / RATE - len(frames) / FPS) > _LENGTH_TOLERANCE_S:
        rule = f"must last as long as the frames, {len(frames) / FPS:g} s, within 1 s"
        raise InvalidInput.of("sound", rule, f"{len(sound) / RATE:g} s")
    return SpokenClip(frames=frames, sound=sound)


def checked_captions(field: str, value: Payload) -> Sequence[Caption]:
    """Return the value as captions; InvalidInput unless a list of dicts with times and a text."""
    if not (isinstance(value, list) and len(value) <= MOST_CAPTIONS):
        rule = f"must be a list of at most {MOST_CAPTIONS} captions"
        raise InvalidInput.of(field, rule, described(value))
    return [_caption(field, row) for row in value]


def _caption(field: str, row: Payload) -> Caption:
    parts = row if isinstance(row, dict) else {}
    start, end, text = (parts.get(name) for name in ("start", "end", "text"))
    if (
        isinstance(start, int | float)
        and isinstance(end, int | float)
        and isinstance(text, str)
        and 0 <= start < end <= 2 * LONGEST_S
        and len(text) <= MOST_CHARACTERS
    ):
        return Caption(start=float(start), end=float(end), text=text)
    rule = f"must be dicts of 0 <= start < end and a text of at most {MOST_CHARACTERS} characters"
    raise InvalidInput.of(field, rule, row)


_SUITED = Suited(fewest_words=3, most_words=14, shortest_s=0.8, longest_s=4.5)


# --- Drawing -------------------------------------------------------------------------------

_PAUSE_S = (0.25, 0.7)  # before and after what is spoken
_LOUDNESS = 2500.0  # root mean square of a voice
_SNR_DB = (2.0, 20.0)


def caption_of(labels: Labels, words: str) -> str:
    """Return the caption of a segment, as a person might write it."""
    return f"A {labels} is shown while a voice says: {words}"


def draw_example(rng: np.random.Generator, seed: int) -> Example:
    """Return a clip of two to four segments, and its captions."""
    frames, sounds, captions = list[UInt8Array](), list[Samples](), list[Payload]()
    voices, count = part_of(recordings(_SUITED), seed), int(rng.integers(2, 5))
    camera, start = drawn_camera(rng), 0
    chosen = rng.permutation(len(voices))[:count].tolist()
    for picture, number in zip(_drawn_pictures(rng, seed, count), chosen, strict=True):
        sound = _padded(rng, voices[number].sound)
        length = len(sound) * FPS // RATE
        pieces = np.stack([drawn_frame(picture.pixels, camera, rng) for _ in range(length)])
        frames.append(shrunk(pieces, SIDE))
        sounds.append(sound)
        text = caption_of(picture.labels, voices[number].text)
        captions.append({"start": start / FPS, "end": (start + length) / FPS, "text": text})
        start += length
    sound = _noisy(rng, np.concatenate(sounds).astype(np.float64))
    return Example(input={"frames": np.concatenate(frames), "sound": sound}, expected=captions)


def _drawn_pictures(rng: np.random.Generator, seed: int, count: int) -> Sequence[LabelledPicture]:
    """Return so many pictures; neighbours differ in what they show."""
    material, chosen = part_of(pictures("test"), seed), list[LabelledPicture]()
    while len(chosen) < count:
        picture = material[int(rng.integers(len(material)))]
        if not chosen or chosen[-1].labels != picture.labels:
            chosen.append(picture)
    return chosen


def _padded(rng: np.random.Generator, sound: Samples) -> Samples:
    """Return the sound with silence around it, a whole number of frames long."""
    before, after = (int(seconds * RATE) for seconds in rng.uniform(*_PAUSE_S, 2))
    after += -(len(sound) + before + after) % (RATE // FPS)
    level = np.sqrt(np.mean(sound.astype(np.float64) ** 2)) + 1
    return _as_samples(np.pad(sound * (_LOUDNESS / level), (before, after)))


def _noisy(rng: np.random.Generator, voices: NDArray[np.float64]) -> Samples:
    level = _LOUDNESS * 10 ** (-rng.uniform(*_SNR_DB) / 20)
    return _as_samples(voices + level * rng.standard_normal(len(voices)))


def _as_samples(sound: NDArray[np.floating]) -> Samples:
    return np.asarray(np.clip(np.rint(sound), -32768, 32767), dtype=np.int16)


def clip_features(clip: SpokenClip) -> NDArray[np.float64]:
    """Return how hard a clip looks, for stratified sampling.

    Shape (4,): seconds, noise of the first frame (grey levels), loudness of the quiet (dB), and
    how far the voice stands above it (dB).
    """
    steps = np.diff(clip.frames[0].astype(np.float32), axis=1)
    pieces = clip.sound[: len(clip.sound) // 160 * 160].reshape(-1, 160).astype(np.float64)
    loudness = 10 * np.log10(np.mean(pieces**2, axis=1) + 1)
    quiet, loud = np.percentile(loudness, [10, 90])
    noise = 1.4826 / np.sqrt(2) * np.median(np.abs(steps))
    return np.array([clip.seconds, noise, quiet, loud - quiet])
