"""What was measured of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines import checks
from pipelines.configuration import Configuration

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A measurement that gave nothing.

    Attributes:
        input: Index of the input in the query's data.
        operator: Which operator failed; `score` when the metric did.
        cause: What happened, in words.
    """

    input: int
    operator: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Profile:
    """Scores, seconds and bytes of one configuration on the first inputs of the query's order.

    Arrays have a column per input; a failed measurement is NaN in all of them.

    Attributes:
        configuration: What was measured.
        inputs: Indices of the inputs, in the order measured, shape (n,).
        score: In [0, 1], shape (n,).
        operator_s: Seconds on the reference machine, alone, shape (operators, n).
        output_bytes: What each operator hands on, shape (operators, n).
        input_bytes: Size of each input, shape (n,).
        failures: One per failed input.
        spent_s: Operator seconds really paid for this profile.
        saved_s: Operator seconds that caches saved.
        runs: Operator runs really made for this profile, warm-ups not counted.
        saved_runs: Operator runs that caches saved.
    """

    configuration: Configuration
    inputs: npt.NDArray[np.int64]
    score: FloatArray
    operator_s: FloatArray
    output_bytes: FloatArray
    input_bytes: FloatArray
    failures: tuple[Failure, ...] = ()
    spent_s: float = 0.0
    saved_s: float = 0.0
    runs: int = 0
    saved_runs: int = 0

    def __post_init__(self) -> None:
        n = len(self.inputs)
        operators = len(self.operator_s)
        for name, shape, array in (
            ("score", (n,), self.score),
            ("operator_s", (operators, n), self.operator_s),
            ("output_bytes", (operators, n), self.output_bytes),
            ("input_bytes", (n,), self.input_bytes),
        ):
            checks.require(
                array.shape == shape, f"profile.{name}", f"must have shape {shape}", array.shape
            )

    @property
    def succeeded(self) -> npt.NDArray[np.bool_]:
        """Which inputs gave a score, shape (n,)."""
        return ~np.isnan(self.score)
