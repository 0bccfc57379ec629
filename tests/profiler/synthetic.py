"""Tiny pipelines whose every score, second and byte is known."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import (
    Knob,
    Operator,
    OperatorFunction,
    OperatorSpec,
    Settings,
)
from circinus.pipelines.model.payload import Payload
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import Completed, Executor, FailedRun, InProcess
from circinus.profiler.journal import Journal, MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache


@dataclass
class Bench:
    """A clock that operators move on, and a count of their calls."""

    clock: ManualClock = field(default_factory=ManualClock)
    calls: Counter[str] = field(default_factory=Counter)

    def operator(
        self,
        name: str,
        run: OperatorFunction,
        *,
        after: tuple[str, ...] = (),
        knobs: tuple[Knob, ...] = (),
        seconds: Callable[[int], float] = lambda call: 0.25,
    ) -> Operator:
        """Return an operator that takes `seconds(number of the call)`."""

        def counted(inputs: Payload, settings: Settings) -> Payload:
            self.calls[name] += 1
            self.clock.sleep(seconds(self.calls[name]))
            return run(inputs, settings)

        return Operator(spec=OperatorSpec(name=name, after=after, knobs=knobs), run=counted)

    def profiler(
        self,
        pipeline: Pipeline,
        dataset: Dataset,
        *,
        order: Sequence[int] | None = None,
        journal: Journal | None = None,
        cache: PrefixCache | None = None,
        executor: Executor | None = None,
        comparisons: Comparisons | None = None,
    ) -> Profiler:
        """Return a profiler on this clock; by default in the order of the data."""
        indices = range(len(dataset)) if order is None else order
        return Profiler(
            pipeline,
            dataset,
            order=np.array(indices, dtype=np.int64),
            executor=InProcess(self.clock) if executor is None else executor,
            journal=MemoryJournal() if journal is None else journal,
            cache=cache,
            comparisons=Comparisons() if comparisons is None else comparisons,
        )


@dataclass
class Wide:
    """Runs operators in the threads that call it, which it mixes up.

    Seconds depend on the operator and its knobs alone, and nothing has to warm up.
    """

    width: int
    runs: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        with self._lock:
            self.runs[operator.name] += 1
            pause = self.runs.total() % 3
        time.sleep(0.0002 * pause)
        seconds = (1 + len(repr(configuration.of(operator.name)))) / 64
        done = InProcess(ManualClock()).run(operator, inputs, configuration)
        if isinstance(done, FailedRun):
            return replace(done, spent_s=seconds)
        return replace(done, seconds=seconds, spent_s=seconds)


def numbers(count: int) -> Dataset:
    """Return the inputs 0.0, 1.0, ... that expect themselves."""
    examples = tuple(Example(input=float(i), expected=float(i)) for i in range(count))
    return Dataset(name="numbers", examples=examples)


def add(inputs: Payload, settings: Settings) -> Payload:
    """Return the number plus the settings' `by`."""
    assert isinstance(inputs, float)
    return inputs + float(settings["by"])


def closeness(output: Payload, expected: Payload) -> float:
    """Return 1 / (1 + distance)."""
    assert isinstance(output, float)
    assert isinstance(expected, float)
    return 1 / (1 + abs(output - expected))


def chain(bench: Bench, *, seconds: Callable[[int], float] = lambda call: 0.25) -> Pipeline:
    """Return `first` -> `second`, each adding 0, 1 or 2."""
    by = Knob(name="by", values=(0, 1, 2))
    first = bench.operator("first", add, knobs=(by,), seconds=seconds)
    second = bench.operator("second", add, knobs=(by,), after=("first",), seconds=seconds)
    return Pipeline(name="chain", operators=(first, second), score=closeness)


def one(run: OperatorFunction) -> Pipeline:
    """Return a pipeline of a single operator without knobs; any output scores 1."""
    operator = Operator(spec=OperatorSpec(name="only"), run=run)
    return Pipeline(name="one", operators=(operator,), score=lambda output, expected: 1.0)


def chosen(pipeline: Pipeline, **by: int) -> Configuration:
    """Return the configuration with these `by` per operator."""
    space = ConfigurationSpace(pipeline.graph)
    return space.parse({name: {"by": value} for name, value in by.items()})
