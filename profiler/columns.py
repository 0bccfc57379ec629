"""What is known of one configuration, growing by an input at a time.

A planner looks after every input, so a profile must not cost more the more is known. The one
rule: what was appended is never written again, so profiles may share the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

import numpy as np

from pipelines.configuration import Configuration
from pipelines.profile import Failure, FloatArray, Profile
from profiler.journal import MeasuredInput
from profiler.strata import IntArray

_FIRST_ROWS = 64


def profiles_of(
    measured: Iterable[tuple[Configuration, MeasuredInput]], order: IntArray, operators: int
) -> tuple[Profile, ...]:
    """Give the profile of every configuration over the first inputs of the order.

    What was measured beyond the first missing input is left out; a configuration without the
    very first one has no profile.

    Args:
        measured: In any order.
        order: Indices of the inputs, shape (population,).
        operators: Number of operators.
    """
    known: dict[Configuration, dict[int, MeasuredInput]] = {}
    for configuration, one in measured:
        known.setdefault(configuration, {})[one.input] = one
    profiles = []
    for configuration, by_input in known.items():
        columns = Columns(configuration, order, operators)
        for index in takewhile(by_input.__contains__, order.tolist()):
            columns.append(by_input[index])
        if columns.count:
            profiles.append(columns.profile())
    return tuple(profiles)


class Columns:
    """The measurements of one configuration in the order of the query.

    Args:
        configuration: What is measured.
        order: Indices of the inputs, shape (population,).
        operators: Number of operators.
    """

    def __init__(self, configuration: Configuration, order: IntArray, operators: int) -> None:
        self._configuration = configuration
        self._order = order
        self._operators = operators
        # A row: score, input_bytes, operator_s of each operator, output_bytes of each.
        self._rows = np.empty((_FIRST_ROWS, 2 + 2 * operators))
        self._failures: list[Failure] = []
        self._spent_s = 0.0
        self._saved_s = 0.0
        self._runs = 0
        self._saved_runs = 0
        self.count = 0

    def append(self, measured: MeasuredInput) -> None:
        """Add the measurement of the next input of the order."""
        if self.count == len(self._rows):
            # A new array: profiles handed out keep the old one.
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        row = self._rows[self.count]
        row[0] = measured.score
        row[1] = measured.input_bytes
        row[2 : 2 + self._operators] = measured.operator_s
        row[2 + self._operators :] = measured.output_bytes
        self.count += 1
        self._spent_s += measured.spent_s
        self._saved_s += measured.saved_s
        self._runs += measured.runs
        self._saved_runs += measured.saved_runs
        if measured.failure is not None:
            self._failures.append(measured.failure)

    def profile(self) -> Profile:
        """Give everything appended so far; its arrays are read-only."""
        rows = self._rows[: self.count]
        rows.flags.writeable = False  # of this view only
        columns: FloatArray = rows.T
        return Profile(
            configuration=self._configuration,
            inputs=self._order[: self.count],
            score=columns[0],
            operator_s=columns[2 : 2 + self._operators],
            output_bytes=columns[2 + self._operators :],
            input_bytes=columns[1],
            failures=tuple(self._failures),
            spent_s=self._spent_s,
            saved_s=self._saved_s,
            runs=self._runs,
            saved_runs=self._saved_runs,
        )
