"""What the pipeline gets: a clip, a question about it and the answers to choose from.

A clip shows two to four pictures one after the other, moved, lit, hidden and under noise; over one
of them a word may be written. Questions are those of easy-VQA about one of the pictures, and some
about the clip: which follows another, how many there are, what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray

from circinus.pipelines.catalog.chaining import checked_array, described
from circinus.pipelines.catalog.material import opencv, part_of
from circinus.pipelines.catalog.pictures import (
    COLOURS,
    SHAPES,
    SIDE,
    LabelledPicture,
    Labels,
    UInt8Array,
    drawn_camera,
    drawn_frame,
    pictures,
)
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.datasets import Example
from circinus.pipelines.model.payload import Payload

FRAMES = 32
SHORTEST = 6  # frames of a picture
MOST_PICTURES = 4
FEWEST_FRAMES, MOST_FRAMES = 1, 256
SMALLEST_SIDE, LARGEST_SIDE = 128, 512
FEWEST_OPTIONS, MOST_OPTIONS = 2, 8
MOST_CHARACTERS = 200  # of a question, or of an option
ORDINALS = ("first", "second", "third", "fourth")
NUMBERS = ("0", "1", "2", "3", "4")
WORD_CHANCE, AT_THE_BOTTOM = 0.6, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class ClipQuestion:
    """A clip with a question."""

    frames: UInt8Array  # (n, side, side, 3), red, green and blue
    question: str
    options: tuple[str, ...]

    def handing_on(self, frames: UInt8Array) -> dict[str, Payload]:
        """Return what an operator hands on: the question with these frames."""
        return {"frames": frames, "question": self.question, "options": list(self.options)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPicture:
    """One of the pictures of a clip, as it is known to who draws it, or described by who looks."""

    labels: Labels
    word: str = ""  # that is written over it; empty: none


def checked_request(value: Payload, smallest: int = SMALLEST_SIDE) -> ClipQuestion:
    """Return the value as a clip with a question; InvalidInput unless a dict of its fields.

    Sides of frames are at least the smallest one, in pixels.
    """
    parts = value if isinstance(value, dict) else {}
    frames = checked_frames("frames", parts.get("frames"), smallest)
    question, options = checked_question(parts)
    return ClipQuestion(frames=frames, question=question, options=options)


def checked_frames(field: str, value: Payload, smallest: int) -> UInt8Array:
    """Return the value as square frames in colour; InvalidInput unless uint8 and within limits."""

    def fits(its: tuple[int, ...]) -> bool:
        return (
            len(its) == 4
            and FEWEST_FRAMES <= its[0] <= MOST_FRAMES
            and its[1] == its[2]
            and smallest <= its[1] <= LARGEST_SIDE
            and its[3] == 3
        )

    rule = (
        f"a uint8 array of {FEWEST_FRAMES} to {MOST_FRAMES} square frames, each side of "
        f"{smallest} to {LARGEST_SIDE} pixels, in 3 colours"
    )
    return checked_array(field, value, np.uint8, fits, rule)


def checked_question(parts: dict[str, Payload]) -> tuple[str, tuple[str, ...]]:
    """Return question and options; InvalidInput unless texts that are not too many or too long."""
    question, options = parts.get("question"), parts.get("options")
    if not (isinstance(question, str) and 0 < len(question) <= MOST_CHARACTERS):
        rule = f"must be a text of 1 to {MOST_CHARACTERS} characters"
        raise InvalidInput.of("question", rule, described(question))
    rule = f"must be {FEWEST_OPTIONS} to {MOST_OPTIONS} unlike texts of 1 to {MOST_CHARACTERS}"
    rows = options if isinstance(options, list) else []
    choices = [each for each in rows[: MOST_OPTIONS + 1] if isinstance(each, str)]
    good = FEWEST_OPTIONS <= len(rows) <= MOST_OPTIONS and len(set(choices)) == len(rows)
    if not (good and all(0 < len(each) <= MOST_CHARACTERS for each in choices)):
        raise InvalidInput.of("options", f"{rule} characters", described(options))
    return question, tuple(choices)


# --- Drawing ------------------------------------------------------------------------------


@cache
def words() -> Sequence[str]:
    """Return the words that may be written over a picture, in a fixed order."""
    text = Path(__file__).with_name("words.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text).split())


def draw_example(rng: np.random.Generator, seed: int) -> Example:
    """Return a clip with a question, and the right one of its options."""
    material, vocabulary = part_of(pictures("test"), seed), part_of(words(), seed)
    chosen = drawn_pictures(rng, material)
    place = int(rng.integers(len(chosen))) if rng.random() < WORD_CHANCE else -1
    word = vocabulary[int(rng.integers(len(vocabulary)))]
    descriptions = [
        DescribedPicture(labels=picture.labels, word=word if at == place else "")
        for at, picture in enumerate(chosen)
    ]
    question, options, answer = drawn_question(rng, descriptions, chosen, vocabulary)
    frames = _drawn_frames(rng, chosen, place, word)
    return Example(
        input={"frames": frames, "question": question, "options": list(options)}, expected=answer
    )


def drawn_pictures(
    rng: np.random.Generator, material: Sequence[LabelledPicture]
) -> Sequence[LabelledPicture]:
    """Return two to four pictures; neighbours differ in what they show."""
    count, chosen = int(rng.integers(2, MOST_PICTURES + 1)), list[LabelledPicture]()
    while len(chosen) < count:
        picture = material[int(rng.integers(len(material)))]
        if not chosen or chosen[-1].labels != picture.labels:
            chosen.append(picture)
    return chosen


def _drawn_frames(
    rng: np.random.Generator, chosen: Sequence[LabelledPicture], place: int, word: str
) -> UInt8Array:
    camera = drawn_camera(rng)
    spare = FRAMES - SHORTEST * len(chosen)
    cuts = np.sort(rng.integers(0, spare + 1, len(chosen) - 1))
    lengths = SHORTEST + np.diff([0, *cuts, spare])
    row = SIDE - 8 if rng.random() < AT_THE_BOTTOM else int(rng.integers(26, SIDE - 50))
    frames = []
    for at, (picture, length) in enumerate(zip(chosen, lengths.tolist(), strict=True)):
        for _ in range(length):
            frame = drawn_frame(picture.pixels, camera, rng)
            frames.append(_written(frame, word, row) if at == place else frame)
    return np.stack(frames)


def _written(frame: UInt8Array, word: str, row: int) -> UInt8Array:
    """Return the frame with a word on a dark bar, its base line at that row."""
    cv2 = opencv()
    frame[row - 20 : row + 8] = frame[row - 20 : row + 8] // 5
    font, white = cv2.FONT_HERSHEY_SIMPLEX, (255, 255, 255)
    cv2.putText(frame, word, (6, row), font, 0.62, white, 1, cv2.LINE_AA)
    return frame


# --- Questions ------------------------------------------------------------------------------

QuestionParts = tuple[str, tuple[str, ...], str]  # question, options, answer


def drawn_question(
    rng: np.random.Generator,
    descriptions: Sequence[DescribedPicture],
    material: Sequence[LabelledPicture],
    vocabulary: Sequence[str],
) -> QuestionParts:
    """Return a question of a random kind about pictures, with shuffled options and the answer."""
    kinds: list[Callable[[], QuestionParts]] = [
        lambda: _about_one(rng, material),
        lambda: _about_one(rng, material),
        lambda: _about_sequence(rng, descriptions),
        lambda: _about_number(rng, descriptions),
    ]
    if any(each.word for each in descriptions):
        kinds += [lambda: _about_word(rng, descriptions, vocabulary)] * 2
    question, options, answer = kinds[int(rng.integers(len(kinds)))]()
    order = rng.permutation(len(options))
    return question, tuple(options[at] for at in order), answer


def _about_one(rng: np.random.Generator, material: Sequence[LabelledPicture]) -> QuestionParts:
    """Return a question of easy-VQA about one of the pictures, by its place."""
    at = int(rng.integers(len(material)))
    questions = material[at].questions
    question, answer = questions[int(rng.integers(len(questions)))]
    last = at == len(material) - 1 and rng.random() < 0.5
    place = "last" if last else ORDINALS[at]
    return f"in the {place} picture, {question}", _options(rng, answer), answer


def _options(rng: np.random.Generator, answer: str) -> tuple[str, ...]:
    if answer in SHAPES:
        return SHAPES
    if answer in COLOURS:
        others = [colour for colour in COLOURS if colour != answer]
        return (answer, *(others[at] for at in rng.permutation(len(others))[:3]))
    return ("yes", "no")


def _about_sequence(
    rng: np.random.Generator, descriptions: Sequence[DescribedPicture]
) -> QuestionParts:
    """Return which colour or shape follows, or goes before, a picture that is there once."""
    labels = [each.labels for each in descriptions]
    pairs = list(pairwise(labels))
    before, after = pairs[int(rng.integers(len(pairs)))]
    known, other, word = (
        (before, after, "after") if rng.random() < 0.5 else (after, before, "before")
    )
    if labels.count(known) > 1:
        return _about_number(rng, descriptions)
    if rng.random() < 0.5:
        return f"which shape comes right {word} the {known}?", SHAPES, other.shape
    question = f"which color comes right {word} the {known}?"
    return question, _options(rng, other.colour), other.colour


def _about_number(
    rng: np.random.Generator, descriptions: Sequence[DescribedPicture]
) -> QuestionParts:
    if rng.random() < 0.4:
        return "how many pictures are there?", NUMBERS[1:], str(len(descriptions))
    if rng.random() < 0.5:
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        count = sum(each.labels.shape == shape for each in descriptions)
        return f"how many pictures have a {shape}?", NUMBERS, str(count)
    colour = descriptions[int(rng.integers(len(descriptions)))].labels.colour
    count = sum(each.labels.colour == colour for each in descriptions)
    return f"how many pictures have a {colour} shape?", NUMBERS, str(count)


def _about_word(
    rng: np.random.Generator, descriptions: Sequence[DescribedPicture], vocabulary: Sequence[str]
) -> QuestionParts:
    """Return which word is written, or over which picture."""
    (titled,) = (each for each in descriptions if each.word)
    if rng.random() < 0.3:
        return "which shape is shown with a word?", SHAPES, titled.labels.shape
    others = [word for word in vocabulary if word != titled.word]
    options = (titled.word, *(others[at] for at in rng.permutation(len(others))[:3]))
    return "which word is written?", options, titled.word


def clip_features(request: ClipQuestion) -> NDArray[np.float64]:
    """Return how hard a request looks, for stratified sampling.

    Shape (4,): noise (grey levels, by steps between pixels of the first frame), change over the
    clip, words of the question, and the number of options.
    """
    steps = np.diff(request.frames[0, ::8].astype(np.float32), axis=1)
    coarse = request.frames[:, 8::16, 8::16].astype(np.float32)
    return np.array(
        [
            1.4826 / np.sqrt(2) * np.median(np.abs(steps)),
            np.abs(coarse - np.median(coarse, axis=0)).mean(),
            len(request.question.split()),
            len(request.options),
        ]
    )
