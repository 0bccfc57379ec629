"""What examples are made of (sentences, photographs, voices), shared out between sets of data.

Whoever plans on some examples and reports on others must not meet the same sentence twice. So
material that is finite is cut into parts, and a seed draws from one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")

PARTS = 3
"""Examples for planning, reporting and tests: by convention seeds 0, 1 and 2, modulo 3."""


def part_of(material: Sequence[Item], seed: int) -> Sequence[Item]:
    """Give the part of the material that a seed draws from.

    Seeds that differ modulo `PARTS` share nothing; those that do not draw from the same part,
    each in its own way.
    """
    return material[seed % PARTS :: PARTS]
