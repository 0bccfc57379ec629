"""Operator `answerer`: which of the options answers a question about a described clip.

    overlap   words that question or option and description have in common
    network   a perceptron over words of the question and what pictures show, trained here
    others    a language model reads the description, and completes by one of the options

What a question is about is looked up by its place or counted by code, and the prompt states that
alone: small language models count badly, and read a token in tens of milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from circinus.pipelines.catalog.language import ChatMessage, ChatModel, Generation
from circinus.pipelines.catalog.picture_models import FloatArray, store
from circinus.pipelines.catalog.pictures import COLOURS, SHAPES, pictures
from circinus.pipelines.catalog.stored import Arrays, stored_arrays
from circinus.pipelines.catalog.training import NetworkTraining, trained_network
from circinus.pipelines.catalog.video_qa.clips import (
    MOST_PICTURES,
    NUMBERS,
    ORDINALS,
    DescribedPicture,
    drawn_pictures,
    drawn_question,
)
from circinus.pipelines.catalog.video_qa.describing import DescribedClip

if TYPE_CHECKING:
    import torch

Answerer = Callable[[DescribedClip], str]
MOST_TOKENS = 12  # of a completion: an option has fewer


def by_overlap(clip: DescribedClip) -> str:
    """Return the option that the description has most of; `yes` where it has the question's."""
    content = set(COLOURS) | set(SHAPES)
    if set(clip.options) == {"yes", "no"}:
        needed = content & set(_words(clip.question))
        return "yes" if any(needed <= set(each.labels) for each in clip.pictures) else "no"
    if set(clip.options) <= set(NUMBERS):
        count = str(len(clip.pictures))
        return count if count in clip.options else clip.options[-1]
    if set(clip.options) <= content:
        everything = [label for each in clip.pictures for label in each.labels]
        return max(clip.options, key=everything.count)
    return most_alike(clip.options, [each.word for each in clip.pictures if each.word])


def most_alike(options: Sequence[str], texts: Sequence[str]) -> str:
    """Return the option that is most like one of the texts, letter by letter; else the first."""

    def likeness(option: str) -> float:
        ratios = (SequenceMatcher(None, option.lower(), text.lower()).ratio() for text in texts)
        return max(ratios, default=0.0)

    return max(options, key=likeness)


# --- Language models ------------------------------------------------------------------------


def by_model(model: ChatModel, clip: DescribedClip) -> str:
    """Return the option that a model completes the prompt by, or that is most like it."""
    completion = model(prompt(clip), Generation(most_tokens=MOST_TOKENS, choices=clip.options))
    return most_alike(clip.options, [completion.text])


def prompt(clip: DescribedClip) -> Sequence[ChatMessage]:
    """Return messages that answer two questions, and state what another one is about, and it."""
    place = re.match(r"in the (\w+) picture, ", clip.question)
    at = _place(place[1], clip.pictures) if place else None
    if place and at is not None:
        facts = f"The picture shows {_in_words(clip.pictures[at])}."
        question = clip.question.removeprefix(place[0])
    else:
        facts, question = _facts(clip), clip.question
    messages: list[ChatMessage] = []
    for *parts, answer in _SHOTS:
        messages.append({"role": "user", "content": _asking(*parts)})
        messages.append({"role": "assistant", "content": answer})
    options = ", ".join(clip.options)
    return [*messages, {"role": "user", "content": _asking(facts, question, options)}]


_SHOTS = (
    ("The picture shows a pink square.", "what color is the square?", "white, pink", "pink"),
    ("The picture shows a pink square.", "is there no pink shape?", "yes, no", "no"),
)
"""What is known, a question, its options, and the answer."""


def _asking(facts: str, question: str, options: str) -> str:
    return f"{facts} Question: {question} Options: {options}."


def _place(word: str, described: Sequence[DescribedPicture]) -> int | None:
    """Return which picture a word such as `second` or `last` means; None if there is none."""
    if word == "last":
        return len(described) - 1
    at = ORDINALS.index(word) if word in ORDINALS else len(described)
    return at if at < len(described) else None


def _facts(clip: DescribedClip) -> str:
    """Return counts where the question is how many there are, else what pictures show in order."""
    if not clip.question.startswith("how many"):
        return f"The pictures show {', then '.join(map(_in_words, clip.pictures))}."
    labels = [label for each in clip.pictures for label in each.labels]
    counts = (f"{labels.count(label)} {label}" for label in (*SHAPES, *COLOURS))
    return f"There are {len(clip.pictures)} pictures: {', '.join(counts)}."


def _in_words(picture: DescribedPicture) -> str:
    written = f" and the word {picture.word}" if picture.word else ""
    return f"a {picture.labels}{written}"


# --- A small network --------------------------------------------------------------------------

ANSWERS = (*SHAPES, *COLOURS, "yes", "no", *NUMBERS)
_FUNCTION_WORDS = (
    *("is", "there", "no", "not", "what", "which", "how", "many", "color", "shape", "picture"),
    *(
        "pictures",
        "before",
        "after",
        "right",
        "last",
        "word",
        "present",
        "contain",
        "have",
        "image",
    ),
)
VOCABULARY = (*COLOURS, *SHAPES, *ORDINALS, *_FUNCTION_WORDS)
_PER_PICTURE = len(COLOURS) + len(SHAPES) + 1  # and whether a word is over it
HIDDEN = 256
_TRAINING = NetworkTraining(epochs=14, batch=256, learning_rate=1.5e-3)
TRAINING_QUESTIONS, TRAINED_BY_SEED = 40_000, 0
VERSION = 1  # raise whenever training or encoding change


def by_network(clip: DescribedClip) -> str:
    """Return the option that the trained network scores highest; words are compared by letters."""
    if not set(clip.options) & set(ANSWERS):
        return most_alike(clip.options, [each.word for each in clip.pictures if each.word])
    values = encoded(clip.question, clip.pictures)
    arrays = trained()
    for layer in ("0", "2"):
        weight, bias = (_floats(arrays, f"{layer}.{part}") for part in ("weight", "bias"))
        values = np.maximum(weight @ values + bias, 0)
    scores = _floats(arrays, "4.weight") @ values + _floats(arrays, "4.bias")
    lowest = -np.inf
    return max(
        clip.options,
        key=lambda each: float(scores[ANSWERS.index(each)]) if each in ANSWERS else lowest,
    )


@cache
def trained() -> Arrays:
    """Return the network's weights; trained now if it never was."""
    return stored_arrays(store() / f"answers-{VERSION}.npz", _train)


def encoded(question: str, described: Sequence[DescribedPicture]) -> FloatArray:
    """Return words of the question, and what the first pictures and the last one show."""
    words = set(_words(question))
    rows = [_one_picture(each) for each in described[:MOST_PICTURES]]
    rows += [np.zeros(_PER_PICTURE, dtype=np.float32)] * (MOST_PICTURES - len(rows))
    count = np.eye(MOST_PICTURES + 1)[min(len(described), MOST_PICTURES)]
    in_question = [float(word in words) for word in VOCABULARY]
    content = np.concatenate([*rows, _one_picture(described[-1])])
    return np.concatenate([in_question, content, count]).astype(np.float32)


def _one_picture(picture: DescribedPicture) -> FloatArray:
    row = np.zeros(_PER_PICTURE, dtype=np.float32)
    row[COLOURS.index(picture.labels.colour)] = 1
    row[len(COLOURS) + SHAPES.index(picture.labels.shape)] = 1
    row[-1] = bool(picture.word)
    return row


def _train() -> Arrays:
    import torch

    samples, targets = (torch.from_numpy(part) for part in _training_questions())

    def loss(network: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(network(samples[rows]), targets[rows])

    return trained_network(lambda: _layers(samples.shape[1]), loss, len(samples), _TRAINING)


def _layers(inputs: int) -> torch.nn.Sequential:
    from torch import nn

    return nn.Sequential(
        *(nn.Linear(inputs, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
        nn.Linear(HIDDEN, len(ANSWERS)),
    )


def _training_questions() -> tuple[FloatArray, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return questions about pictures for training, encoded, and numbers of their answers."""
    rng = np.random.Generator(np.random.PCG64(TRAINED_BY_SEED))
    material, rows, answers = pictures("train"), list[FloatArray](), list[int]()
    while len(rows) < TRAINING_QUESTIONS:
        chosen = drawn_pictures(rng, material)
        place = int(rng.integers(-1, len(chosen)))
        described = [
            DescribedPicture(labels=each.labels, word="WORD" if at == place else "")
            for at, each in enumerate(chosen)
        ]
        question, _, answer = drawn_question(rng, described, chosen, ("WORD", "OTHER"))
        if answer in ANSWERS:
            rows.append(encoded(question, described))
            answers.append(ANSWERS.index(answer))
    return np.stack(rows), np.array(answers, dtype=np.int64)


def _words(text: str) -> Sequence[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _floats(arrays: Arrays, name: str) -> FloatArray:
    return arrays[name].astype(np.float32, copy=False)


IN_HOUSE: Mapping[str, Answerer] = {"overlap": by_overlap, "network": by_network}


def answered(answerers: Mapping[str, Answerer], clip: DescribedClip, *, model: str) -> str:
    """Return the answer by one of the answerers."""
    return answerers[model](clip)
