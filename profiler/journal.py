"""Measurements, stored so that nothing is ever measured twice.

A planner looks after every input, so a profile must not cost more the more is known. The one
rule: what was appended to columns is never written again, so profiles may share the memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Protocol

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.profile import (
    USAGE_FIELDS,
    Failure,
    FloatArray,
    IntArray,
    Paid,
    Profile,
)

_FIRST_ROWS = 64

Pair = tuple[int, int]
"""An input and a draw of it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MeasuredInput(Paid):
    """One configuration on one draw of an input. When it failed, all measured values are NaN."""

    input: int  # index of the input in the data set
    score: float  # in [0, 1]; where all outputs are scored together, finite
    operator_s: FloatArray  # seconds of each operator in topological order, shape (operators,)
    output_bytes: FloatArray  # what each operator hands on, shape (operators,)
    input_bytes: float  # size of the input
    # of the seconds of each operator those in which it did not compute, shape (operators,); None:
    # none are known
    waited_s: FloatArray | None = None
    failure: Failure | None = None  # why there is no score; None when there is one
    # what each operator used of endpoints, shape (operators, len(Usage)); None: nothing was called
    used: FloatArray | None = None
    draw: int = 0  # which draw of the input; others only where an operator draws
    # what a judge scored, for people to label, or is scored with all others, encoded as a payload;
    # None: a metric scored it alone
    output: bytes | None = None
    # operators that answered it differently when they ran once more, though it is not declared
    varied: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        where = f"measured input {self.input}"
        checks.require(self.input >= 0, where, "must have an index >= 0", self.input)
        checks.require(self.draw >= 0, where, "must have a draw >= 0", self.draw)
        shapes = (self.operator_s.shape, self.output_bytes.shape)
        alike = self.operator_s.ndim == 1 and shapes[0] == shapes[1]
        checks.require(alike, where, "must have seconds and bytes of the same operators", shapes)
        if self.waited_s is not None:
            alike, shape_of = self.waited_s.shape == shapes[0], self.waited_s.shape
            checks.require(alike, f"{where}, waited_s", f"must have shape {shapes[0]}", shape_of)
        if self.used is not None:
            shape = (len(self.operator_s), USAGE_FIELDS)
            shape_of = self.used.shape
            checks.require(
                shape_of == shape, f"{where}, used", f"must have shape {shape}", shape_of
            )
        alone = self.output is None
        known = 0 <= self.score <= 1 if alone else math.isfinite(self.score)
        scored = known != (self.failure is not None) and (known or math.isnan(self.score))
        number = "score in [0, 1]" if alone else "finite score"
        rule = f"must have either a {number} or a failure and NaN"
        checks.require(scored, where, rule, (self.score, self.failure))
        for name in ("spent_s", "saved_s", "runs", "saved_runs", "calls_s", "calls_usd"):
            checks.non_negative(f"{where}, {name}", getattr(self, name))

    @property
    def pair(self) -> Pair:
        """The input and the draw of it."""
        return self.input, self.draw


class Journal(Protocol):
    """Keeps the measurements of one query: one pipeline on one data set.

    The opener of a journal ensures that both are those it was written for. Not
    safe to share between threads.
    """

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Return what was recorded of a configuration, in any order; empty for an unknown one."""

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Record a measurement; it is durable when this returns.

        A second record of the same configuration, input and draw replaces the first.
        """


@dataclass(slots=True)
class MemoryJournal:
    """A journal that lives as long as this object."""

    _records: dict[Configuration, dict[Pair, MeasuredInput]] = field(
        default_factory=dict, init=False
    )

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        """Return what was recorded of a configuration, see `Journal`."""
        return tuple(self._records.get(configuration, {}).values())

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        """Record a measurement in memory, see `Journal`."""
        self._records.setdefault(configuration, {})[measured.pair] = measured


class Columns:
    """The measurements of one configuration in the order of the query."""

    def __init__(self, configuration: Configuration, operators: int) -> None:
        self.configuration = configuration
        self._operators = operators
        # A row: score, input_bytes, operator_s of each operator, output_bytes, waited_s of each.
        self._rows = np.empty((_FIRST_ROWS, 2 + 3 * operators))
        self._unknown = np.zeros(operators)
        self._inputs = np.empty(_FIRST_ROWS, dtype=np.int64)
        self._used: list[FloatArray | None] = []  # of each input, see `MeasuredInput.used`
        self._failures: list[Failure] = []
        self._paid = Paid()
        self.count = 0

    def append(self, measured: MeasuredInput) -> None:
        """Add the measurement of the next input of the order."""
        if self.count == len(self._rows):
            # A new array: profiles handed out keep the old one.
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
            self._inputs = np.concatenate([self._inputs, np.empty_like(self._inputs)])
        waited_s = self._unknown if measured.waited_s is None else measured.waited_s
        facts = (measured.operator_s, measured.output_bytes, waited_s)
        self._rows[self.count] = np.concatenate([(measured.score, measured.input_bytes), *facts])
        self._inputs[self.count] = measured.input
        self._used.append(measured.used)
        self.count += 1
        self._paid = self._paid.plus(measured)
        if measured.failure is not None:
            self._failures.append(measured.failure)

    def correct(self, index: int, operator: int, seconds: float, waited_s: float) -> None:
        """Replace the seconds of an operator on an input; profiles handed out stay as is."""
        at = np.flatnonzero(self._inputs[: self.count] == index)
        if len(at):
            self._rows = self._rows.copy()
            self._rows[at, 2 + operator] = seconds
            self._rows[at, 2 + 2 * self._operators + operator] = waited_s

    def profile(self) -> Profile:
        """Return everything appended so far; its arrays are read-only."""
        rows, inputs = self._rows[: self.count], self._inputs[: self.count]
        rows.flags.writeable = inputs.flags.writeable = False  # of these views only
        columns: FloatArray = rows.T
        return Profile(
            configuration=self.configuration,
            inputs=inputs,
            score=columns[0],
            operator_s=columns[2 : 2 + self._operators],
            output_bytes=columns[2 + self._operators : 2 + 2 * self._operators],
            waited_s=columns[2 + 2 * self._operators :],
            input_bytes=columns[1],
            failures=tuple(self._failures),
            used=self._usage(),
            **asdict(self._paid),
        )

    def _usage(self) -> FloatArray | None:  # (operators, len(Usage), n)
        if all(used is None for used in self._used):
            return None
        nothing = np.zeros((self._operators, USAGE_FIELDS))
        each = [nothing if used is None else used for used in self._used]
        return np.stack(each, axis=2)


def profiles_of(
    measured: Iterable[tuple[Configuration, MeasuredInput]], order: IntArray, operators: int
) -> tuple[Profile, ...]:
    """Return the profile of every configuration over the first inputs of the order.

    Of draws the first of all inputs come first. What was measured beyond the first missing input
    of each draw is left out; a configuration without the very first one has no profile.
    """
    known: dict[Configuration, dict[Pair, MeasuredInput]] = {}
    for configuration, one in measured:
        known.setdefault(configuration, {})[one.pair] = one
    profiles = []
    for configuration, by_pair in known.items():
        columns = Columns(configuration, operators)
        for draw in range(1 + max(draw for _, draw in by_pair)):
            pairs = ((index, draw) for index in order.tolist())
            for pair in takewhile(by_pair.__contains__, pairs):
                columns.append(by_pair[pair])
        if columns.count:
            profiles.append(columns.profile())
    return tuple(profiles)
