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
from circinus.pipelines.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.endpoints import Usage
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.profile import Failure, Paid, Profile
from circinus.pipelines.trace import Trace

_CALLS, _USD = Usage._fields.index("calls"), Usage._fields.index("usd")


class _Known(NamedTuple):
    """What was asked for of a configuration."""

    inputs: int = 0
    paid: Paid = Paid()


class TraceEvaluator:
    """Gives the profiles that measuring the trace's pipeline gave, and charges what it charged.

    With a prefix cache, an operator's seconds are charged once per input and setting
    of its lineage; without one, every time a configuration meets an input.
    """

    def __init__(
        self,
        trace: Trace,
        order: npt.NDArray[np.int64],  # indices of inputs as they are drawn, a permutation of N
        *,
        cached: bool = True,  # whether operators' outputs are reused between configurations
        width: int = 1,  # how many measurements are made at once, `>= 1`
        clock: Clock | None = None,  # passes while they are made; None: nobody looks
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
        self._order = order
        self._cached = cached
        self._space = ConfigurationSpace(trace.graph)
        numbers = self._space.numbers(trace.configurations.astype(np.int64))
        self._row = {number: row for row, number in enumerate(numbers.tolist())}
        self._known: defaultdict[int, _Known] = defaultdict(_Known)  # by row
        self._paid: dict[tuple[int, tuple[int, ...]], int] = {}  # operator, lineage -> inputs paid

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Give the profile, see `Evaluator.measure`; InvalidInput also if the trace lacks it."""
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, asked: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Give the profile of each, see `Evaluator.measure_each`."""
        rows = [self._checked(configuration, inputs) for configuration, inputs in asked]
        checks.unique("configurations", rows)
        free_s = [0.0] * self.width  # when each of those that measure is done
        for row, (_, inputs) in zip(rows, asked, strict=True):
            while (known := self._known[row]).inputs < inputs:
                more = self._extended(row, known)
                heapq.heapreplace(free_s, free_s[0] + more.paid.spent_s - known.paid.spent_s)
        self._clock.sleep(max(free_s))
        return tuple(
            self._profile(configuration, row, self._known[row])
            for row, (configuration, _) in zip(rows, asked, strict=True)
        )

    def _checked(self, configuration: Configuration, inputs: int) -> int:
        rule = f"must be in [1, {self.population}]"
        checks.require(1 <= inputs <= self.population, "inputs", rule, inputs)
        row = self._row.get(self._space.number(configuration))
        if row is None:
            rule = "must be one that the trace holds"
            raise InvalidInput.of("configuration", rule, str(configuration))
        return row

    def _extended(self, row: int, known: _Known) -> _Known:
        seconds = self._trace.latency_s[row, :, self._order[known.inputs]].astype(np.float64)
        measured = np.isfinite(seconds)
        unpaid = measured & self._unpaid(row, known.inputs)
        spent_s, runs = sum(seconds[unpaid].tolist()), int(unpaid.sum())
        paid = Paid(
            spent_s=spent_s,
            saved_s=max(float(np.nansum(seconds)) - spent_s, 0.0),
            runs=runs,
            saved_runs=int(measured.sum()) - runs,
            calls_s=float(seconds[unpaid & self._called(row, known.inputs)].sum()),
            calls_usd=self._dollars(row, known.inputs, unpaid),
        )
        self.spent_s += spent_s
        self.calls_s += paid.calls_s
        self.calls_usd += paid.calls_usd
        self._known[row] = _Known(known.inputs + 1, known.paid.plus(paid))
        return self._known[row]

    def _called(self, row: int, inputs: int) -> npt.NDArray[np.bool_]:  # (O,)
        """Give which operators called endpoints on the next input."""
        if self._trace.used is None:
            return np.zeros(len(self.graph.operators), dtype=np.bool_)
        calls = self._trace.used[row, :, _CALLS, self._order[inputs]]
        return np.asarray(calls > 0)

    def _dollars(self, row: int, inputs: int, unpaid: npt.NDArray[np.bool_]) -> float:
        if self._trace.used is None:
            return 0.0
        usd = self._trace.used[row, :, _USD, self._order[inputs]]
        return float(usd[unpaid].sum())

    def _unpaid(self, row: int, inputs: int) -> npt.NDArray[np.bool_]:  # (O,)
        """Give which operators are run on the next input; inputs are drawn in one order."""
        knobs = self._trace.configurations[row].tolist()
        unpaid = np.ones(len(self.graph.operators), dtype=np.bool_)
        for o, upstream in enumerate(self.graph.upstream_knobs if self._cached else ()):
            key = (o, tuple(knobs[k] for k in upstream))
            unpaid[o] = self._paid.get(key, 0) <= inputs
            self._paid[key] = max(inputs + 1, self._paid.get(key, 0))
        return unpaid

    def _profile(self, configuration: Configuration, row: int, known: _Known) -> Profile:
        drawn = self._order[: known.inputs]
        score = self._trace.score[row, drawn].astype(np.float64)
        failed = np.isnan(score)
        hide = np.where(failed, np.nan, 1.0)
        used = self._trace.used
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
            used=None if used is None else used[row][:, :, drawn] * hide,
            **asdict(known.paid),
        )
