"""Pictures of easy-VQA: one coloured shape each, with its questions; and frames made of them.

A picture's shape and colour are read off its questions: each names either something that the
picture has, or something that it lacks. The pictures for training models lie apart from those
that examples are drawn from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.catalog.material import grey, opencv
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.execution.weights import ModelWeights

SHAPES = ("circle", "rectangle", "triangle")
COLOURS = ("black", "blue", "brown", "gray", "green", "red", "teal", "yellow")
SIDE = 128  # pixels of a frame made of a picture, which has half of them

UInt8Array: TypeAlias = NDArray[np.uint8]

EASY_VQA = ModelWeights(
    name="easy-vqa",
    what="5,000 drawn pictures, 48,248 questions with answers",
    licence="MIT",
    size_bytes=4_657_781,
    files={
        "answers.txt": "f004fd115e14db5f70a3a4e1b06d89fd76d45d7446a62d12b50ed1ac2a1a824c",
        "test/questions.json": "0d4630a51bafec65343e2f6af9cdd20cf8eae214344ef57636202eec409553f7",
        "train/questions.json": "bb67697636aed0e65631d4266824aebeae5c833b0f37ed781e20752e85617ec5",
    },
)
_PICTURES: Mapping[str, tuple[int, str]] = {
    "test": (1000, "90f80d7b9868bfadacfbe1f0873d4ab0b2a71e12f31626bb8e557e28fbb5301c"),
    "train": (4000, "5ccb1e586318a54fe7322ad8802bc9240366c8d90895a01773f96e61436742a3"),
}
"""How many pictures there are, and the SHA-256 of all files in the order of their numbers."""


class Labels(NamedTuple):
    """What a picture shows."""

    colour: str  # one of `COLOURS`
    shape: str  # one of `SHAPES`

    def __str__(self) -> str:
        """Return both, for people."""
        return f"{self.colour} {self.shape}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPicture:
    """A picture with its questions."""

    pixels: UInt8Array  # (64, 64, 3), red, green and blue; read-only
    labels: Labels
    questions: tuple[tuple[str, str], ...]  # and their answers


@cache
def pictures(part: str) -> Sequence[LabelledPicture]:
    """Return the pictures of a part, `test` or `train`, of which both labels are known.

    InvalidInput if a file is missing, or they are not the known ones.
    """
    text = EASY_VQA.path(f"{part}/questions.json").read_text(encoding="utf-8")
    questions: dict[int, list[tuple[str, str]]] = {}
    for question, answer, number in json.loads(text):
        questions.setdefault(number, []).append((question, answer))
    shapes = {number: labels_of(each) for number, each in questions.items()}
    return tuple(
        LabelledPicture(pixels=pixels, labels=labels, questions=tuple(questions[number]))
        for number, pixels in enumerate(_pixels(part))
        if (labels := shapes.get(number)) is not None
    )


def labels_of(questions: Sequence[tuple[str, str]]) -> Labels | None:
    """Return what the picture of these questions shows; None if they leave something open."""
    present = {word for pair in questions for word in _present(*pair)}
    colours, shapes = present & set(COLOURS), present & set(SHAPES)
    if len(colours) != 1 or len(shapes) != 1:
        return None
    return Labels(colours.pop(), shapes.pop())


def _present(question: str, answer: str) -> set[str]:
    """Return words of the question and the answer that hold of the picture."""
    words = set(question.strip("?").split())
    if answer not in ("yes", "no"):
        return words | {answer}
    denies = bool(words & {"no", "not"})
    return words if (answer == "yes") != denies else set()


def _pixels(part: str) -> Sequence[UInt8Array]:
    cv2 = opencv()
    count, expected = _PICTURES[part]
    digest, images = sha256(), []
    for number in range(count):
        content = EASY_VQA.path(f"{part}/images/{number}.png").read_bytes()
        digest.update(content)
        image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
        if image is not None:  # else the hash is another one
            images.append(np.ascontiguousarray(image[:, :, ::-1]))
            images[-1].flags.writeable = False
    if digest.hexdigest() != expected:
        rule = f"must be pictures that together have the SHA-256 {expected}"
        raise InvalidInput.of(str(EASY_VQA.folder / part / "images"), rule, digest.hexdigest())
    return images


@dataclass(frozen=True, slots=True, kw_only=True)
class Camera:
    """How frames are made of a picture."""

    noise: float  # standard deviation, grey levels
    shift: int = 14  # pixels that a frame may be moved to each side
    light: float = 0.15  # that a frame may be lighter or darker by, as a share
    hidden: float = 0.3  # chance that something stands before a part of a frame


def drawn_camera(rng: np.random.Generator) -> Camera:
    """Return a camera; its noise goes from hardly visible to as strong as colours."""
    return Camera(noise=float(rng.uniform(8, 70)))


def drawn_frame(pixels: UInt8Array, camera: Camera, rng: np.random.Generator) -> UInt8Array:
    """Return a frame of a picture, uint8 (SIDE, SIDE, 3)."""
    cv2 = opencv()
    frame = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_LINEAR)
    x, y = rng.integers(-camera.shift, camera.shift + 1, 2).tolist()
    move = np.array([[1, 0, x], [0, 1, y]], dtype=np.float32)
    frame = cv2.warpAffine(frame, move, (SIDE, SIDE), borderMode=cv2.BORDER_REPLICATE)
    if rng.random() < camera.hidden:
        top, left = rng.integers(0, SIDE - 40, 2).tolist()
        height, width = rng.integers(30, 70, 2).tolist()
        frame[top : top + height, left : left + width] = rng.integers(60, 200)
    gain = np.float32(1 + rng.uniform(-camera.light, camera.light))
    noise = rng.standard_normal(frame.shape, dtype=np.float32) * np.float32(camera.noise)
    return grey(frame.astype(np.float32) * gain + noise)


def shrunk(frames: UInt8Array, side: int) -> UInt8Array:  # (n, height, width, 3)
    """Return frames of that side; those that are no larger stay as they are."""
    if frames.shape[1] <= side:
        return frames
    cv2 = opencv()
    small = [cv2.resize(frame, (side, side), interpolation=cv2.INTER_AREA) for frame in frames]
    return np.stack(small)
