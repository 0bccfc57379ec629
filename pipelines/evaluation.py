"""The seam between searching and measuring.

A strategy asks an `Evaluator` for profiles and never knows whether real operators
ran, a stored trace was replayed, or a function with a known optimum answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from pipelines.configuration import Configuration
from pipelines.graph import PipelineGraph
from pipelines.profile import FloatArray, Profile


class Evaluator(Protocol):
    """Measures configurations of one pipeline on one set of inputs, in one fixed order.

    The order is the same for every configuration, so profiles are paired. No
    (configuration, input) is measured twice: asking again gives what is known.
    Not safe to share between threads.
    """

    @property
    def graph(self) -> PipelineGraph:
        """The pipeline."""

    @property
    def population(self) -> int:
        """Number of inputs there are, `>= 1`."""

    @property
    def spent_s(self) -> float:
        """Operator seconds paid so far, over all configurations."""

    @property
    def width(self) -> int:
        """How many measurements are made at once, `>= 1`."""

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Give the profile over at least the first `inputs` inputs of the order.

        Measures what is missing. A failed measurement is NaN in the profile and named in its
        `failures`; it never raises.

        Raises:
            InvalidInput: If `inputs` is not in [1, population].
        """

    def measure_each(self, asked: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Give what `measure` gives for each configuration and its number of inputs.

        Measurements are made `width` at a time. What they give and cost together does not depend
        on that, nor on which ends first.

        Args:
            asked: Unlike configurations.

        Raises:
            InvalidInput: As `measure` does, before anything is measured; or if a configuration
                comes twice.
        """


class Verdict(StrEnum):
    """What a stopping rule says of `mean score >= bound`."""

    ABOVE = "above"
    BELOW = "below"
    UNDECIDED = "undecided"


class StoppingRule(Protocol):
    """Says when enough inputs were measured. A value: it keeps no state."""

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        """Give whether the mean over the population is decided to be above or below.

        Args:
            scores: Scores so far in the order drawn, NaN where the measurement failed, shape
                (n,). The mean is that of the inputs that give a score.
            bound: The accuracy SLO; a mean equal to it counts as above.
            population: Number of inputs there are; at n = population the mean is known.
        """
