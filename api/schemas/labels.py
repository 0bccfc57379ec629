"""Labels: people's scores of outputs that a judge scored, and requests for them.

One line of JSON each. A line without `gold` is a question; the same line with it is the answer.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from circinus.api.schemas.base import Input

MOST_LABELS = 1_000_000

LabelName = Annotated[str, Field(min_length=1, max_length=64)]
Gold = Annotated[float, Field(ge=0, le=1)]


class GoldLabel(Input):
    """The score that an output should have."""

    label: LabelName
    """Name of the label, from `circinus plan`: equal for equal outputs on equal inputs."""
    gold: Gold
    """In [0, 1]."""


class LabelLine(Input):
    """A line of a file of labels; all but `label` and `gold` is for human readers."""

    label: LabelName
    gold: Gold | None = None
    """In [0, 1]; null: not scored yet."""
    input: int | None = None
    """Index of the input in the data."""
    given: Any = None
    """The input."""
    output: Any = None
    """What to score."""
    expected: Any = None
    """What the output should have been."""
    judge: float | None = None
    """The judge's score."""
    configuration: dict[str, Any] | None = None
    """One that returned the output: operator -> knob -> value."""
