"""The inputs to profile a pipeline on, with what it should answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines import checks
from pipelines.payload import Payload

LARGEST_DATASET = 100_000
"""More inputs than this are refused: profiling draws a few hundred."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One input and the output expected for it.

    Attributes:
        input: What the source operators get.
        expected: What the metric compares the output with.
    """

    input: Payload
    expected: Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Inputs with expected outputs, in a fixed order.

    Attributes:
        name: For people.
        examples: At least one, at most `LARGEST_DATASET`.
    """

    name: str
    examples: Sequence[Example]

    def __post_init__(self) -> None:
        count = len(self.examples)
        rule = f"must have 1 to {LARGEST_DATASET} examples"
        checks.require(1 <= count <= LARGEST_DATASET, f"data {self.name}", rule, count)

    def __len__(self) -> int:
        """Give the number of examples."""
        return len(self.examples)
