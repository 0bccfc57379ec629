"""A stored trace as an Evaluator: searches meet it as they meet real operators."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines import checks
from pipelines.clock import Clock, ManualClock
from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.errors import InvalidInput
from pipelines.graph import PipelineGraph
from pipelines.profile import Failure, Profile
from pipelines.trace import Trace


class _Known(NamedTuple):
    """What was asked for of a configuration: how many inputs, paid and saved for them."""

    inputs: int
    spent_s: float
    saved_s: float
    runs: int
    saved_runs: int


_NOTHING = _Known(inputs=0, spent_s=0.0, saved_s=0.0, runs=0, saved_runs=0)


class TraceEvaluator:
    """Gives the profiles that measuring the trace's pipeline gave, and charges what it charged.

    With a prefix cache, an operator's seconds are charged once per input and setting
    of its lineage; without one, every time a configuration meets an input.

    Args:
        trace: The measurements.
        order: Indices of inputs in the order in which they are drawn, a permutation of N.
        cached: Whether operators' outputs are reused between configurations.
        width: How many measurements are made at once, `>= 1`.
        clock: Passes while they are made: a `ManualClock`; None: nobody looks.

    Raises:
        InvalidInput: If `order` is no permutation of the inputs, or `width` is below 1.
    """

    def __init__(
        self,
        trace: Trace,
        order: npt.NDArray[np.int64],
        *,
        cached: bool = True,
        width: int = 1,
        clock: Clock | None = None,
    ) -> None:
        n = len(trace.input_bytes)
        permutation = bool(np.array_equal(np.sort(order), np.arange(n)))
        checks.require(permutation, "order", f"must be a permutation of {n} inputs", order)
        checks.require(width >= 1, "width", "must be >= 1", width)
        self._trace = trace
        self._width = width
        self._clock = clock or ManualClock()
        self._order = order
        self._cached = cached
        self._space = ConfigurationSpace(trace.graph)
        self._row = _rows(self._space, trace)
        self._known: dict[int, _Known] = {}  # by row
        self._paid: dict[tuple[int, tuple[int, ...]], int] = {}  # operator, lineage -> inputs paid
        self._spent_s = 0.0

    @property
    def graph(self) -> PipelineGraph:
        """The trace's pipeline."""
        return self._trace.graph

    @property
    def population(self) -> int:
        """Number of inputs in the trace."""
        return len(self._order)

    @property
    def spent_s(self) -> float:
        """Operator seconds charged so far."""
        return self._spent_s

    @property
    def width(self) -> int:
        """How many measurements are made at once, `>= 1`."""
        return self._width

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Give the profile over the first `inputs` inputs, or what is known when that is more.

        Raises:
            InvalidInput: If `inputs` is not in [1, population], or the trace lacks the
                configuration.
        """
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, asked: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Give the profile of each, see `Evaluator.measure_each`."""
        rows = [self._checked(configuration, inputs) for configuration, inputs in asked]
        checks.unique("configurations", rows)
        free_s = [0.0] * self._width  # when each of those that measure is done
        for row, (_, inputs) in zip(rows, asked, strict=True):
            while (known := self._known.get(row, _NOTHING)).inputs < inputs:
                more = self._extended(row, known, known.inputs + 1)
                heapq.heapreplace(free_s, free_s[0] + more.spent_s - known.spent_s)
        self._clock.sleep(max(free_s))
        return tuple(
            self._profile(configuration, row, self._known[row])
            for row, (configuration, _) in zip(rows, asked, strict=True)
        )

    def _checked(self, configuration: Configuration, inputs: int) -> int:
        rule = f"must be in [1, {self.population}]"
        checks.require(1 <= inputs <= self.population, "inputs", rule, inputs)
        return self._row_of(configuration)

    def _extended(self, row: int, known: _Known, inputs: int) -> _Known:
        drawn = self._order[known.inputs : inputs]
        whole = _charged(self._trace.latency_s[row][:, drawn])
        spent_s, runs = self._charge(row, known.inputs, inputs)
        self._spent_s += spent_s
        self._known[row] = _Known(
            inputs=inputs,
            spent_s=known.spent_s + spent_s,
            saved_s=known.saved_s + max(whole[0] - spent_s, 0.0),
            runs=known.runs + runs,
            saved_runs=known.saved_runs + whole[1] - runs,
        )
        return self._known[row]

    def _row_of(self, configuration: Configuration) -> int:
        row = self._row.get(self._space.number(configuration))
        if row is None:
            rule = "must be one that the trace holds"
            raise InvalidInput.of("configuration", rule, str(configuration))
        return row

    def _charge(self, row: int, before: int, now: int) -> tuple[float, int]:
        seconds, runs = 0.0, 0
        knobs = self._trace.configurations[row]
        for o, lineage in enumerate(self.graph.lineages):
            start = before
            if self._cached:
                key = (o, tuple(int(knobs[k]) for k in self._columns(lineage)))
                # Inputs are drawn in one order, so what is paid is a prefix of it.
                start = max(before, self._paid.get(key, 0))
                self._paid[key] = max(now, self._paid.get(key, 0))
            drawn = self._order[min(start, now) : now]
            charged = _charged(self._trace.latency_s[row, o, drawn])
            seconds, runs = seconds + charged[0], runs + charged[1]
        return seconds, runs

    def _columns(self, lineage: tuple[int, ...]) -> list[int]:
        names = {self.graph.operators[i].name for i in lineage}
        return [k for k, slot in enumerate(self.graph.slots) if slot.operator in names]

    def _profile(self, configuration: Configuration, row: int, known: _Known) -> Profile:
        drawn = self._order[: known.inputs]
        score = self._trace.score[row, drawn].astype(np.float64)
        failed = np.isnan(score)
        hide = np.where(failed, np.nan, 1.0)
        return Profile(
            configuration=configuration,
            inputs=drawn,
            score=score,
            operator_s=self._trace.latency_s[row][:, drawn] * hide,
            output_bytes=self._trace.output_bytes[row][:, drawn] * hide,
            input_bytes=self._trace.input_bytes[drawn].astype(np.float64) * hide,
            failures=tuple(
                Failure(input=int(i), operator="score", cause="the stored measurement failed")
                for i in drawn[failed]
            ),
            spent_s=known.spent_s,
            saved_s=known.saved_s,
            runs=known.runs,
            saved_runs=known.saved_runs,
        )


def _charged(seconds: npt.NDArray[np.float32]) -> tuple[float, int]:
    """Give seconds and number of the runs that were measured."""
    return float(np.nansum(seconds, dtype=np.float64)), int(np.isfinite(seconds).sum())


def _rows(space: ConfigurationSpace, trace: Trace) -> Mapping[int, int]:
    numbers = space.numbers(trace.configurations.astype(np.int64))
    return {int(number): row for row, number in enumerate(numbers)}
