"""What examples are made of (sentences, photographs, voices), shared out, and sets of them.

Whoever plans on some examples and reports on others must not meet the same sentence twice. So
material that is finite is cut into parts, and a seed draws from one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.dataset import Dataset, Example

Item = TypeVar("Item")

PARTS = 3
"""Examples for planning, reporting and tests: by convention seeds 0, 1 and 2, modulo 3."""


def part_of(material: Sequence[Item], seed: int) -> Sequence[Item]:
    """Give the part of the material that a seed draws from.

    Seeds that differ modulo `PARTS` share nothing; those that do not draw from the same part,
    each in its own way.
    """
    return material[seed % PARTS :: PARTS]


def drawn(
    name: str, count: int, seed: int, draw: Callable[[np.random.Generator], Example]
) -> Dataset:
    """Examples from one generator: a longer data set starts with the shorter one of its seed."""
    rng = np.random.Generator(np.random.PCG64(seed))
    return Dataset(name=name, examples=[draw(rng) for _ in range(count)])


def speckle(
    image: NDArray[np.float32],  # changed
    share: float,
    rng: np.random.Generator,
) -> None:
    """Turn a share of the pixels black or white."""
    chance = rng.random(image.shape, dtype=np.float32)
    image[chance < share / 2] = 0
    image[chance > 1 - share / 2] = 255
