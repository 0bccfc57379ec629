"""A stored trace as an Evaluator: searches meet it as they meet real operators."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, ManualClock
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.io.trace import Trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import MOST_DRAWS, DrawOrder, Scatter
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.profile import Failure, Paid, Profile

_CALLS, _USD = Usage._fields.index("calls"), Usage._fields.index("usd")


class _Known(NamedTuple):
    """The profile requested of a configuration."""

    inputs: int = 0  # or draws of them
    paid: Paid = Paid()


class TraceEvaluator:
    """Returns the profiles measured on the trace's pipeline, and charges what it charged.

    With a prefix cache, an operator's seconds are charged once per input and setting
    of its lineage, and once per draw where it or an ancestor draws; without one, every time a
    configuration meets a draw.

    Inputs are drawn again as `Profiler` does, but only as often as the trace holds: InvalidInput
    for more, of one with few draws before `pipelines.model.draws.measurable` is reached.
    """

    def __init__(
        self,
        trace: Trace,
        order: npt.NDArray[np.int64],  # indices of inputs as they are drawn, a permutation of N
        *,
        cached: bool = True,  # whether operators' outputs are reused between configurations
        width: int = 1,  # how many measurements are made at once, `>= 1`
        clock: Clock | None = None,  # passes while they are made; None: not followed
    ) -> None:
        n = len(trace.input_bytes)
        permutation = bool(np.array_equal(np.sort(order), np.arange(n)))
        checks.require(permutation, "order", f"must be a permutation of {n} inputs", order)
        checks.at_least("width", width, 1)
        self.graph = trace.graph
        self.population = n
        self.width = width
        self.spent_s = self.calls_s = self.calls_usd = 0.0
        self._trace = trace
        self._clock = clock or ManualClock()
        self._order = DrawOrder(order, draws=self.graph.draws, most=trace.draws)
        self._scatter = Scatter(self.graph)
        self._cached = cached
        self._space = ConfigurationSpace(trace.graph)
        numbers = self._space.numbers(trace.configurations.astype(np.int64))
        self._row = {number: row for row, number in enumerate(numbers.tolist())}
        self._known: defaultdict[int, _Known] = defaultdict(_Known)  # by row
        # Operator and knobs of its lineage -> which measurements were paid, (M,).
        self._paid: dict[tuple[int, tuple[int, ...]], npt.NDArray[np.bool_]] = {}

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Return the profile, see `Evaluator.measure`; InvalidInput also if the trace lacks it."""
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Return the profile of each, see `Evaluator.measure_each`."""
        rows = [self._checked(configuration, inputs) for configuration, inputs in wanted]
        checks.unique("configurations", rows)
        self._order.grow(max((n for _, n in wanted), default=0), self._scatter.draws_worth)
        free_s = [0.0] * self.width  # when each of those that measure is done
        for row, (configuration, inputs) in zip(rows, wanted, strict=True):
            while (known := self._known[row]).inputs < inputs:
                more = self._extended(configuration, row, known)
                heapq.heapreplace(free_s, free_s[0] + more.paid.spent_s - known.paid.spent_s)
        self._clock.sleep(max(free_s))
        return tuple(
            self._profile(configuration, row, self._known[row])
            for row, (configuration, _) in zip(rows, wanted, strict=True)
        )

    def _checked(self, configuration: Configuration, inputs: int) -> int:
        rule = f"must be in [1, {self._order.size}]"
        if self.graph.draws and self._trace.draws < MOST_DRAWS:
            rule = f"{rule}, as the trace has few draws of each input: {self._trace.draws}"
        checks.require(1 <= inputs <= self._order.size, "inputs", rule, inputs)
        row = self._row.get(self._space.number(configuration))
        if row is None:
            rule = "must be one that the trace holds"
            raise InvalidInput.of("configuration", rule, str(configuration))
        return row

    def _extended(self, configuration: Configuration, row: int, known: _Known) -> _Known:
        """Replay the next measurement of a configuration."""
        ((index, draw),) = self._order.pairs(known.inputs, known.inputs + 1)
        column = draw * self.population + index
        seconds = self._trace.latency_s[row, :, column].astype(np.float64)
        measured = np.isfinite(seconds)
        unpaid = measured & self._unpaid(row, index, column, measured)
        score = float(self._trace.score[row, column])
        if not np.isnan(score):
            self._scatter.add(configuration, (index, draw), score, seconds.tolist())
        spent_s, runs = sum(seconds[unpaid].tolist()), int(unpaid.sum())
        paid = Paid(
            spent_s=spent_s,
            saved_s=max(float(np.nansum(seconds)) - spent_s, 0.0),
            runs=runs,
            saved_runs=int(measured.sum()) - runs,
            calls_s=float(seconds[unpaid & self._called(row, column)].sum()),
            calls_usd=self._dollars(row, column, unpaid),
        )
        self.spent_s += spent_s
        self.calls_s += paid.calls_s
        self.calls_usd += paid.calls_usd
        self._known[row] = _Known(known.inputs + 1, known.paid.plus(paid))
        return self._known[row]

    def _called(self, row: int, column: int) -> npt.NDArray[np.bool_]:  # (O,)
        """Return which operators called endpoints in a measurement."""
        if self._trace.used is None:
            return np.zeros(len(self.graph.operators), dtype=np.bool_)
        calls = self._trace.used[row, :, _CALLS, column]
        return np.asarray(calls > 0)

    def _dollars(self, row: int, column: int, unpaid: npt.NDArray[np.bool_]) -> float:
        if self._trace.used is None:
            return 0.0
        usd = self._trace.used[row, :, _USD, column]
        return float(usd[unpaid].sum())

    def _unpaid(
        self,
        row: int,
        index: int,  # of the input
        column: int,  # of the draw of it
        measured: npt.NDArray[np.bool_],  # operators that the trace has seconds of, (O,)
    ) -> npt.NDArray[np.bool_]:  # (O,)
        """Return which operators are run in a measurement, and note those that it measured."""
        knobs = self._trace.configurations[row].tolist()
        unpaid = np.ones(len(self.graph.operators), dtype=np.bool_)
        for o, upstream in enumerate(self.graph.upstream_knobs if self._cached else ()):
            key = (o, tuple(knobs[k] for k in upstream))
            if (paid := self._paid.get(key)) is None:
                paid = self._paid[key] = np.zeros(self._trace.score.shape[1], dtype=np.bool_)
            at = column if self.graph.drawing[o] else index
            unpaid[o] = not paid[at]
            paid[at] |= measured[o]
        return unpaid

    def _profile(self, configuration: Configuration, row: int, known: _Known) -> Profile:
        pairs = np.array(self._order.pairs(0, known.inputs), dtype=np.int64)
        inputs, draws = pairs.T
        columns = draws * self.population + inputs
        score = self._trace.score[row, columns].astype(np.float64)
        failed = np.isnan(score)
        hide = np.where(failed, np.nan, 1.0)
        used, waited = self._trace.used, self._trace.waited_s
        return Profile(
            configuration=configuration,
            inputs=inputs.copy(),
            score=score,
            operator_s=self._trace.latency_s[row][:, columns] * hide,
            waited_s=None if waited is None else waited[row][:, columns] * hide,
            output_bytes=self._trace.output_bytes[row][:, columns] * hide,
            input_bytes=self._trace.input_bytes[inputs].astype(np.float64) * hide,
            failures=tuple(
                Failure(
                    input=index,
                    draw=draw,
                    operator="score",
                    cause="the stored measurement failed",
                )
                for index, draw in pairs[failed].tolist()
            ),
            used=None if used is None else used[row][:, :, columns] * hide,
            **asdict(known.paid),
        )
