"""Measures a complete trace of a pipeline: every configuration on every input.

The inputs are taken one after the other, and on each of them the configurations in the
order of their numbers: neighbours share most of their prefix, so an operator seldom runs
twice with one lineage, and outputs need not be held longer than an input lasts. What was
measured of an input is on disk before the next one starts: a study that was cut off goes
on there.

The one rule: a trace that is already there is not touched unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.dataset import Dataset
from circinus.pipelines.payload import payload_bytes
from circinus.pipelines.pipeline import Pipeline, features_of
from circinus.pipelines.profile import Failure
from circinus.pipelines.trace import Trace, save_trace
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MeasuredInput
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from circinus.studies.trace.parts import Part, PartStore

LARGEST_SPACE = 20_000
"""More configurations than this are refused: all are measured, and held in memory."""

_FILES = ("pipeline.yaml", "trace.npz")
_REPORT_EVERY_S = 0.2
_CAUSES_KEPT = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProgress:
    """How far a measurement is. A pair is a configuration on an input."""

    inputs_done: int  # inputs on which every configuration has been measured
    inputs: int  # inputs in all
    measured: int  # pairs measured, those of a run that was cut off included
    pairs: int  # pairs in all
    failures: int  # pairs of this run that gave no score
    elapsed_s: float  # seconds since this run began to measure
    # seconds that the rest takes at the pace so far; None before the first pair
    left_s: float | None


Observer = Callable[[TraceProgress], None]


@dataclass(slots=True, kw_only=True)
class TraceMeter:
    """Counts pairs and tells an observer, a few times a second and after every input."""

    clock: Clock
    observer: Observer | None
    configurations: int
    inputs: int
    resumed: int = 0  # inputs measured by an earlier run
    done: int = 0  # and by this one
    pairs_done: int = 0  # measured by this run
    failures: int = 0  # of these, those without a score
    causes: list[str] = field(default_factory=list)  # why, the first few unlike ones
    spent_s: float = 0.0  # operator seconds run so far
    saved_s: float = 0.0  # and those that shared prefixes saved
    _start_s: float = field(init=False)
    _told_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._start_s = self._told_s = self.clock.now()

    def pair(self, failure: Failure | None) -> None:
        """Count a pair."""
        self.pairs_done += 1
        if failure is not None:
            self.failures += 1
            cause = f"{failure.operator}: {failure.cause}"
            if cause not in self.causes and len(self.causes) < _CAUSES_KEPT:
                self.causes.append(cause)
        if self.clock.now() - self._told_s >= _REPORT_EVERY_S:
            self.tell()

    def input(self) -> None:
        """Count an input as done."""
        self.done += 1
        self.tell()

    def tell(self) -> None:
        """Tell the observer how far it is."""
        self._told_s = self.clock.now()
        if self.observer is None:
            return
        pairs = self.inputs * self.configurations
        measured = self.resumed * self.configurations + self.pairs_done
        elapsed_s = self._told_s - self._start_s
        pace = elapsed_s / self.pairs_done if self.pairs_done else None
        self.observer(
            TraceProgress(
                inputs_done=self.resumed + self.done,
                inputs=self.inputs,
                measured=measured,
                pairs=pairs,
                failures=self.failures,
                elapsed_s=elapsed_s,
                left_s=None if pace is None else pace * (pairs - measured),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What was measured and where it is."""

    folder: Path  # holds `pipeline.yaml` and `trace.npz`
    configurations: int  # C
    operators: int  # O
    inputs: int  # N
    missing: int  # pairs (configuration, input) without a score: NaN in the trace
    causes: tuple[str, ...]  # why, in words, the first few unlike ones that this run met
    resumed: int  # inputs taken over from a run that was cut off
    spent_s: float  # operator seconds run by this run
    saved_s: float  # operator seconds that shared prefixes saved it
    elapsed_s: float  # wall-clock seconds of this run


def run(
    pipeline: Pipeline,
    dataset: Dataset,
    out: Path,
    *,
    overwrite: bool = False,
    observer: Observer | None = None,
    clock: Clock | None = None,
) -> TraceSummary:
    """Measure a trace in this process and write it to a folder, made when it is missing.

    A trace that is there is replaced only to `overwrite` it, once the new one is whole. The
    observer is told a few times a second how far it is; a clock of None is the machine's own.

    Raises:
        InvalidInput: If there is a trace in `out` already, `out` is a file, an example is no
            payload, or the pipeline has too many configurations.
    """
    clock = clock or SystemClock()
    start_s = clock.now()
    _check_folder(out, overwrite=overwrite)
    space = _space(pipeline)
    store = PartStore(out / "parts", pipeline, dataset)
    if pipeline.prepare is not None:
        pipeline.prepare()
    meter = TraceMeter(
        clock=clock, observer=observer, configurations=space.size, inputs=len(dataset)
    )
    trace = _measured(pipeline, dataset, space, store, meter)
    _save(trace, out)
    store.clear()
    return TraceSummary(
        folder=out,
        configurations=space.size,
        operators=len(trace.graph.operators),
        inputs=len(dataset),
        resumed=meter.resumed,
        missing=int(np.isnan(trace.score).sum()),
        causes=tuple(meter.causes),
        spent_s=meter.spent_s,
        saved_s=meter.saved_s,
        elapsed_s=clock.now() - start_s,
    )


def _measured(
    pipeline: Pipeline,
    dataset: Dataset,
    space: ConfigurationSpace,
    store: PartStore,
    meter: TraceMeter,
) -> Trace:
    """Give the trace of a pipeline, measuring what the store does not hold yet."""
    todo = [index for index in range(len(dataset)) if store.load(index) is None]
    meter.resumed = len(dataset) - len(todo)
    meter.tell()
    if todo:
        profiler = Profiler(
            pipeline=pipeline,
            dataset=dataset,
            order=np.array(todo, dtype=np.int64),
            executor=InProcess(meter.clock),
            journal=_NoJournal(),
            cache=PrefixCache(),
        )
        _measure(profiler, space, store, meter)
    parts = [store.load(index) for index in range(len(dataset))]
    return _trace(pipeline, dataset, space, [part for part in parts if part is not None])


def _measure(
    profiler: Profiler, space: ConfigurationSpace, store: PartStore, meter: TraceMeter
) -> None:
    configurations = [space.configuration(number) for number in range(space.size)]
    for count, index in enumerate(profiler.order.tolist(), start=1):
        part = Part.empty(space.size, len(space.graph.operators))
        for number, configuration in enumerate(configurations):
            profile = profiler.measure(configuration, count)
            part.score[number] = profile.score[-1]
            part.latency_s[number] = profile.operator_s[:, -1]
            part.output_bytes[number] = profile.output_bytes[:, -1]
            last = profile.failures[-1] if profile.failures else None
            meter.pair(last if last is not None and last.input == index else None)
        store.save(index, part)
        meter.spent_s, meter.saved_s = profiler.spent_s, profiler.saved_s
        meter.input()


class _NoJournal:
    """A `Journal` that keeps nothing: the parts on disk are what a restart reads."""

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        return ()

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        pass


def _trace(
    pipeline: Pipeline, dataset: Dataset, space: ConfigurationSpace, parts: Sequence[Part]
) -> Trace:
    inputs = [example.input for example in dataset.examples]
    features = features_of(pipeline, inputs)
    features = np.zeros((len(inputs), 0)) if features is None else features
    return Trace(
        graph=pipeline.graph,
        configurations=space.indices(list(range(space.size))).astype(np.int16),
        score=np.stack([part.score for part in parts], axis=-1),
        latency_s=np.stack([part.latency_s for part in parts], axis=-1),
        output_bytes=np.stack([part.output_bytes for part in parts], axis=-1),
        input_bytes=np.array([payload_bytes(item) for item in inputs], dtype=np.float32),
        features=features.astype(np.float32),
    )


def _space(pipeline: Pipeline) -> ConfigurationSpace:
    space = ConfigurationSpace(pipeline.graph)
    rule = f"must have at most {LARGEST_SPACE} configurations"
    checks.require(space.size <= LARGEST_SPACE, f"pipeline {pipeline.name}", rule, space.size)
    return space


def _check_folder(out: Path, *, overwrite: bool) -> None:
    checks.require(not out.exists() or out.is_dir(), "out", "must be a folder", str(out))
    there = [name for name in _FILES if (out / name).exists()]
    if not overwrite:
        rule = "must not hold a trace yet (or say that it is to be overwritten)"
        checks.require(not there, "out", rule, str(out))


def _save(trace: Trace, out: Path) -> None:
    unfinished = out / "parts" / "whole"
    save_trace(trace, unfinished)
    for name in _FILES:
        (unfinished / name).replace(out / name)
    unfinished.rmdir()
