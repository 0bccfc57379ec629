"""What was measured, kept so that nothing is ever measured twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pipelines import checks
from pipelines.configuration import Configuration
from pipelines.profile import Failure, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredInput:
    """One configuration on one input. When it failed, all measured values are NaN.

    Attributes:
        input: Index of the input in the data set.
        score: In [0, 1].
        operator_s: Seconds of each operator in topological order, shape (operators,).
        output_bytes: What each operator hands on, shape (operators,).
        input_bytes: Size of the input.
        failure: Why there is no score; None when there is one.
        spent_s: Operator seconds really run for it, warm-ups and failures included.
        saved_s: Operator seconds that did not have to be run.
        runs: Operator runs really made for it, warm-ups not counted, `>= 0`.
        saved_runs: Operator runs that did not have to be made, `>= 0`.
    """

    input: int
    score: float
    operator_s: FloatArray
    output_bytes: FloatArray
    input_bytes: float
    failure: Failure | None = None
    spent_s: float
    saved_s: float = 0.0
    runs: int = 0
    saved_runs: int = 0

    def __post_init__(self) -> None:
        where = f"measured input {self.input}"
        checks.require(self.input >= 0, where, "must have an index >= 0", self.input)
        checks.require(
            self.operator_s.ndim == 1 and self.operator_s.shape == self.output_bytes.shape,
            where,
            "must have seconds and bytes of the same operators",
            (self.operator_s.shape, self.output_bytes.shape),
        )
        scored = 0 <= self.score <= 1 if self.failure is None else math.isnan(self.score)
        rule = "must have either a score in [0, 1] or a failure and NaN"
        checks.require(scored, where, rule, (self.score, self.failure))
        checks.non_negative(f"{where}, spent_s", self.spent_s)
        checks.non_negative(f"{where}, saved_s", self.saved_s)
        checks.non_negative(f"{where}, runs", self.runs)
        checks.non_negative(f"{where}, saved_runs", self.saved_runs)


class Journal(Protocol):
    """Keeps the measurements of one query: one pipeline on one data set.

    Whoever opens a journal sees to it that both are those it was written for. Not
    safe to share between threads.
    """

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Give what was recorded of a configuration, in any order; empty for an unknown one."""

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Keep a measurement; it is durable when this returns.

        A second record of the same configuration and input replaces the first.
        """


@dataclass(slots=True)
class MemoryJournal:
    """A journal that lives as long as this object."""

    _kept: dict[Configuration, dict[int, MeasuredInput]] = field(default_factory=dict, init=False)

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Give what was recorded of a configuration, see `Journal`."""
        return tuple(self._kept.get(configuration, {}).values())

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Keep a measurement, see `Journal`."""
        self._kept.setdefault(configuration, {})[measured.input] = measured
