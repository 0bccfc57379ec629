"""What was measured of a configuration, and the seam between searching and measuring.

A strategy asks an `Evaluator` for profiles and never knows whether real operators
ran, a stored trace was replayed, or a function with a known optimum answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.graph import PipelineGraph

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

USAGE_FIELDS = len(Usage._fields)

UNPLANNABLE = "cannot be planned: "
"""How a cause begins that does not concern the input: the operator returned what only the pipeline
it was read off can use. In the words, because causes travel and are stored as words."""


class Unplannable(InvalidInput):
    """An operator does what no plan can promise: no failure of the input's."""

    def __str__(self) -> str:
        """Return it as what ends a search, see `Failure.ends_planning`."""
        return f"{UNPLANNABLE}{super().__str__()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A measurement without a result."""

    input: int  # index of the input in the query's data
    operator: str  # which operator failed; `score` when the metric did
    cause: str  # what happened, in words
    draw: int = 0  # which draw of the input

    @property
    def ends_planning(self) -> bool:
        """Whether it is no failed input: figures without it would be wrong."""
        return self.cause.startswith(UNPLANNABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """What measuring cost, and what it did not."""

    spent_s: float = 0.0  # operator seconds really run, warm-ups and failures included, `>= 0`
    saved_s: float = 0.0  # operator seconds that did not have to be run, `>= 0`
    runs: int = 0  # operator runs really made, warm-ups not counted, `>= 0`
    saved_runs: int = 0  # operator runs that did not have to be made, `>= 0`
    calls_s: float = 0.0  # of `spent_s`, what was waited for endpoints, `>= 0`
    calls_usd: float = 0.0  # US dollars that calling endpoints cost, `>= 0`

    def plus(self, other: Paid) -> Paid:
        """Return what both cost together."""
        return Paid(
            spent_s=self.spent_s + other.spent_s,
            saved_s=self.saved_s + other.saved_s,
            runs=self.runs + other.runs,
            saved_runs=self.saved_runs + other.saved_runs,
            calls_s=self.calls_s + other.calls_s,
            calls_usd=self.calls_usd + other.calls_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile(Paid):
    """Scores, seconds and bytes of one configuration on the first inputs of the query's order.

    Arrays have a column per input, and draw of it where operators draw; a failed measurement is
    NaN in all of them.
    """

    configuration: Configuration  # what was measured
    # indices of the inputs, in the order measured, shape (n,): one that was drawn again repeats
    inputs: IntArray
    score: FloatArray  # in [0, 1], shape (n,)
    operator_s: FloatArray  # seconds on the reference machine, alone, shape (operators, n)
    output_bytes: FloatArray  # what each operator hands on, shape (operators, n)
    input_bytes: FloatArray  # size of each input, shape (n,)
    failures: tuple[Failure, ...] = ()  # one per failed input
    # of `operator_s`, in which it did not compute, shape (operators, n); None: none are known
    waited_s: FloatArray | None = None
    # what each operator used of endpoints, a row per field of `Usage`, shape
    # (operators, len(Usage), n); None: nothing was called
    used: FloatArray | None = None

    def __post_init__(self) -> None:
        one, each = (len(self.inputs),), (len(self.operator_s), len(self.inputs))
        if self.used is not None:
            used = (each[0], USAGE_FIELDS, each[1])
            rule = f"must have shape {used}"
            checks.require(self.used.shape == used, "profile.used", rule, self.used.shape)
        shapes = {"score": one, "operator_s": each, "output_bytes": each, "input_bytes": one}
        shapes |= {} if self.waited_s is None else {"waited_s": each}
        for name, shape in shapes.items():
            actual = getattr(self, name).shape
            checks.require(actual == shape, f"profile.{name}", f"must have shape {shape}", actual)

    @property
    def succeeded(self) -> npt.NDArray[np.bool_]:
        """Which inputs have a score, shape (n,)."""
        return ~np.isnan(self.score)


class Evaluator(Protocol):
    """Measures configurations of one pipeline on one set of inputs, in one fixed order.

    The order is the same for every configuration, so profiles are paired. No
    (configuration, input, draw) is measured twice: asking again gives what is known.
    Where an operator of the graph draws, the order is one of inputs and draws, and inputs may be
    met several times, see `pipelines.model.draws.measurable`. Not safe to share between threads.
    """

    @property
    def graph(self) -> PipelineGraph:
        """The pipeline."""

    @property
    def population(self) -> int:
        """Number of inputs there are, draws not counted, `>= 1`."""

    @property
    def spent_s(self) -> float:
        """Operator seconds paid so far, over all configurations."""

    @property
    def calls_s(self) -> float:
        """Of these, what was waited for endpoints."""

    @property
    def calls_usd(self) -> float:
        """US dollars that calling endpoints cost so far, over all configurations."""

    @property
    def width(self) -> int:
        """How many measurements are made at once, `>= 1`."""

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Return the profile over at least the first `inputs` inputs of the order.

        Measures what is missing. A failed measurement is NaN in the profile and named in its
        `failures`; it never raises. InvalidInput if `inputs` is not in [1, population], or above
        what is measurable where an operator draws: there every draw counts as an input.
        """

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Return what `measure` returns for each configuration and its number of inputs.

        Measurements are made `width` at a time. What they give and cost together does not depend
        on that, nor on which ends first. InvalidInput as `measure` does, before anything is
        measured; or if a configuration comes twice.
        """


class Verdict(StrEnum):
    """The verdict of a stopping rule on `mean score >= bound`."""

    ABOVE = "above"
    BELOW = "below"
    UNDECIDED = "undecided"


class StoppingRule(Protocol):
    """Decides when enough inputs were measured. A value: it has no state."""

    def judge(self, scores: FloatArray, *, bound: float, population: int) -> Verdict:
        """Return whether the mean over the population is decided to be above or below.

        Scores, shape (n,), are in the order drawn, NaN where the measurement failed; the mean is
        that of the inputs that give a score, and known at n = population. One that equals the
        bound, the accuracy SLO, counts as above.
        """
