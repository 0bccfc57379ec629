"""Measures a complete trace of a pipeline: every configuration on every input.

The inputs are taken one after the other, and on each of them the configurations in the
order of their numbers: neighbours share most of their prefix, so an operator seldom runs
twice with one lineage, and outputs need not be held longer than an input lasts. Where an
operator draws, a configuration makes all draws of an input before the next configuration. What
was measured of an input is on disk before the next one starts: a study that was cut off goes on
there.

The one rule: a trace that is already there is not touched without a request to overwrite it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from circinus.deploy.workers.process import busy_s
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.execution.features import features_of
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.io.trace import Trace, graph_to_dict, save_trace
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import measurable
from circinus.pipelines.model.payload import content_hash, payload_bytes
from circinus.pipelines.model.profile import Failure
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import InProcess
from circinus.profiler.journal import MeasuredInput
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache

LARGEST_SPACE = 20_000
"""More configurations than this are refused: all are measured, and held in memory."""

_FILES = ("pipeline.yaml", "trace.npz")
_REPORT_EVERY_S = 0.2
_MOST_CAUSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProgress:
    """How far a measurement is. A pair is a configuration on an input."""

    inputs_done: int  # inputs on which every configuration has been measured
    inputs: int  # inputs in all
    measured: int  # pairs measured, those of a run that was cut off included
    pairs: int  # pairs in all
    failures: int  # pairs of this run that gave no score
    elapsed_s: float  # seconds since this run began to measure
    left_s: float | None  # that the rest takes at the pace so far; None before the first pair


Observer = Callable[[TraceProgress], None]


@dataclass(slots=True, kw_only=True)
class TraceMeter:
    """Counts pairs and reports to an observer, a few times a second and after every input."""

    clock: Clock
    observer: Observer
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
    _reported_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._start_s = self._reported_s = self.clock.now()

    def pair(self, failure: Failure | None) -> None:
        """Count a pair."""
        self.pairs_done += 1
        if failure is not None:
            self.failures += 1
            cause = f"{failure.operator}: {failure.cause}"
            if cause not in self.causes and len(self.causes) < _MOST_CAUSES:
                self.causes.append(cause)
        if self.clock.now() - self._reported_s >= _REPORT_EVERY_S:
            self.tell()

    def tell(self) -> None:
        """Report the progress to the observer."""
        self._reported_s = self.clock.now()
        pairs = self.inputs * self.configurations
        measured = self.resumed * self.configurations + self.pairs_done
        elapsed_s = self._reported_s - self._start_s
        left = pairs - measured
        self.observer(
            TraceProgress(
                inputs_done=self.resumed + self.done,
                inputs=self.inputs,
                measured=measured,
                pairs=pairs,
                failures=self.failures,
                elapsed_s=elapsed_s,
                left_s=elapsed_s / self.pairs_done * left if self.pairs_done else None,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What was measured and where it is."""

    folder: Path  # holds `pipeline.yaml` and `trace.npz`
    configurations: int  # C
    operators: int  # O
    inputs: int  # N
    draws: int  # of each input, D; 1 where no operator draws
    missing: int  # measurements (configuration, input, draw) without a score: NaN in the trace
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
    observer: Observer = lambda progress: None,
    clock: Clock | None = None,
) -> TraceSummary:
    """Measure a trace in this process and write it to a folder, made when it is missing.

    A trace that is there is replaced only to `overwrite` it, once the new one is whole, else it is
    InvalidInput; so are a file in place of the folder, an example that is no payload, and too many
    configurations. A clock of None is the machine's own.
    """
    clock = clock or SystemClock()
    start_s = clock.now()
    checks.require(not out.exists() or out.is_dir(), "out", "must be a folder", str(out))
    there = not overwrite and any((out / name).exists() for name in _FILES)
    rule = "must not hold a trace yet (or be overwritten on request)"
    checks.require(not there, "out", rule, str(out))
    space = ConfigurationSpace(pipeline.graph)
    rule = f"must have at most {LARGEST_SPACE} configurations"
    checks.require(space.size <= LARGEST_SPACE, f"pipeline {pipeline.name}", rule, space.size)
    store = PartStore(out / "parts", pipeline, dataset, space.size)
    pipeline.make_ready()
    meter = TraceMeter(
        clock=clock, observer=observer, configurations=space.size, inputs=len(dataset)
    )
    trace = _measured(pipeline, dataset, space, store, meter)
    unfinished = out / "parts" / "whole"
    save_trace(trace, unfinished)
    for name in _FILES:
        (unfinished / name).replace(out / name)
    unfinished.rmdir()
    store.clear()
    return TraceSummary(
        folder=out,
        configurations=space.size,
        operators=len(trace.graph.operators),
        inputs=len(dataset),
        draws=trace.draws,
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
    """Return the trace of a pipeline, measuring what the store does not hold yet."""
    todo = [index for index in range(len(dataset)) if not store.load(index)]
    meter.resumed = len(dataset) - len(todo)
    meter.tell()
    if todo:
        _measure(_Profilers(pipeline, dataset, meter.clock), todo, space, store, meter)
    inputs = [example.input for example in dataset.examples]
    return Trace(
        graph=pipeline.graph,
        configurations=space.indices(list(range(space.size))).astype(np.int16),
        **store.arrays,
        input_bytes=np.array([payload_bytes(item) for item in inputs], dtype=np.float32),
        features=features_of(pipeline, inputs).values.astype(np.float32),
    )


def _measure(
    profilers: _Profilers,
    todo: Sequence[int],
    space: ConfigurationSpace,
    store: PartStore,
    meter: TraceMeter,
) -> None:
    configurations = [space.configuration(number) for number in range(space.size)]
    spent_s = saved_s = 0.0
    for index in todo:
        profiler = profilers.of_input(index)
        for number, configuration in enumerate(configurations):
            profile = profiler.measure(configuration, store.draws)
            columns = store.columns(index)
            store.arrays["score"][number, columns] = profile.score
            store.arrays["latency_s"][number, :, columns] = profile.operator_s
            store.arrays["output_bytes"][number, :, columns] = profile.output_bytes
            if profile.waited_s is not None:
                known = np.where(np.isnan(profile.operator_s), np.nan, profile.waited_s)
                store.arrays["waited_s"][number, :, columns] = known
            meter.pair(profile.failures[0] if profile.failures else None)
        store.save(index)
        spent_s, saved_s = spent_s + profiler.spent_s, saved_s + profiler.saved_s
        meter.spent_s, meter.saved_s = spent_s, saved_s
        meter.done += 1
        meter.tell()


@dataclass(slots=True)
class _Profilers:
    """A profiler for each input, so that its draws are made one after the other.

    They share which settings are warm, outputs, and which operators were compared.
    """

    pipeline: Pipeline
    dataset: Dataset
    clock: Clock
    _executor: InProcess = field(init=False)
    _cache: PrefixCache = field(default_factory=PrefixCache, init=False)
    # A trace has every draw of what is declared to draw, and the cost of runs: none is repeated
    # but where settings are made warm.
    _comparisons: Comparisons = field(default_factory=lambda: Comparisons(most=0), init=False)

    def __post_init__(self) -> None:
        self._executor = InProcess(self.clock, busy_s=busy_s)

    def of_input(self, index: int) -> Profiler:
        """Return what measures an input."""
        return Profiler(
            pipeline=self.pipeline,
            dataset=self.dataset,
            order=np.array([index], dtype=np.int64),
            executor=self._executor,
            journal=_NoJournal(),
            cache=self._cache,
            comparisons=self._comparisons,
        )


class _NoJournal:
    """A `Journal` that keeps nothing: the parts on disk are what a restart reads."""

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        return ()

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        pass


class PartStore:
    """What was measured, and a folder with a file for each of the inputs that are done.

    A part is used again only for the very input, operators and knobs that it was measured with.
    InvalidInput if an example is no payload.
    """

    def __init__(
        self, folder: Path, pipeline: Pipeline, dataset: Dataset, configurations: int
    ) -> None:
        self._folder = folder
        self._keys = [_key(pipeline, example) for example in dataset.examples]
        self._inputs = len(dataset)
        self.draws = measurable(pipeline.graph, 1)  # of each input
        each = (configurations, len(pipeline.graph.operators), self._inputs * self.draws)
        shapes = {"score": each[::2], "latency_s": each, "output_bytes": each}  # as in `Trace`
        shapes["waited_s"] = each
        # NaN where measuring failed
        self.arrays = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}

    def columns(self, index: int) -> slice:
        """Return where the draws of an input are, as in `Trace`."""
        return slice(index, None, self._inputs)

    def load(self, index: int) -> bool:
        """Take in the part of an input; return whether there is one, and of nothing else."""
        try:
            # numpy leaves a torn file open when it opened it itself.
            with self._path(index).open("rb") as file, np.load(file, allow_pickle=False) as stored:
                if str(stored["key"]) != self._keys[index]:
                    return False
                for name, array in self.arrays.items():
                    there = array[..., self.columns(index)]  # a view
                    there[...] = stored[name].reshape(there.shape)
        except (OSError, KeyError, ValueError, EOFError, BadZipFile):  # torn: measured again
            return False
        return True

    def save(self, index: int) -> None:
        """Keep the part of an input; it is whole or not there."""
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / "unfinished.npz"
        columns = self.columns(index)
        part: dict[str, Any] = {name: array[..., columns] for name, array in self.arrays.items()}
        np.savez(unfinished, key=np.array(self._keys[index]), **part)
        unfinished.replace(self._path(index))

    def clear(self) -> None:
        """Remove all parts, and the folder if nothing else is in it."""
        for path in self._folder.glob("input-*.npz"):
            path.unlink()
        if self._folder.is_dir() and not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _path(self, index: int) -> Path:
        return self._folder / f"input-{index:06}.npz"


def _key(pipeline: Pipeline, example: Example) -> str:
    parts = (
        graph_to_dict(pipeline.graph),
        [operator.version for operator in pipeline.by_name.values()],
        content_hash(example.input),
        content_hash(example.expected),
    )
    return blake2b(repr(parts).encode(), digest_size=16).hexdigest()
