"""What examples are made of (sentences, photographs, voices), shared out; OpenCV, set up.

Planning on some examples and reporting on others must not meet the same sentence twice. So
material that is finite is cut into parts, and a seed draws from one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.io.datasets import Dataset, Example

Item = TypeVar("Item")

PARTS = 3  # examples for planning, reporting and tests: by convention seeds 0, 1 and 2, modulo 3


def part_of(material: Sequence[Item], seed: int) -> Sequence[Item]:
    """Return the part that a seed draws from: seeds that differ modulo `PARTS` share nothing."""
    return material[seed % PARTS :: PARTS]


@dataclass(frozen=True, slots=True)
class DrawnExamples:
    """`examples(count, seed)` of a pipeline.

    They are from one generator: a longer data set starts with the shorter one of its seed.
    """

    what: str  # in words
    draw: Callable[[np.random.Generator, int], Example]  # `(generator, seed)`
    note: str = ""  # behind the seed

    def __call__(self, count: int, seed: int) -> Dataset:
        """Return so many, together."""
        name = f"{self.what}, seed {seed}{self.note}"
        return Dataset(name=name, examples=list(self.one_by_one(count, seed)))

    def one_by_one(self, count: int, seed: int) -> Iterator[Example]:
        """Return the same, none drawn before it is asked for."""
        rng = np.random.Generator(np.random.PCG64(seed))
        return (self.draw(rng, seed) for _ in range(count))


def grey(image: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Return whole grey levels of an image of any shape, cut off where they end."""
    return np.asarray(np.clip(np.rint(image), 0, 255), dtype=np.uint8)


def speckle(image: NDArray[np.float32], share: float, rng: np.random.Generator) -> None:
    """Turn a share of the image's pixels black or white, in place."""
    chance = rng.random(image.shape, dtype=np.float32)
    image[chance < share / 2] = 0
    image[chance > 1 - share / 2] = 255


def opencv() -> ModuleType:
    """OpenCV, kept to one thread: operators are timed, and worker processes share the cores."""
    import cv2

    if cv2.getNumThreads() != 1:
        cv2.setNumThreads(1)
    return cv2
