"""Measures a complete trace of a pipeline: every configuration on every input.

The inputs are taken one after the other, and on each of them the configurations in the
order of their numbers: neighbours share most of their prefix, so an operator seldom runs
twice with one lineage, and outputs need not be held longer than an input lasts. What was
measured of an input is on disk before the next one starts: a study that was cut off goes
on there.

The one rule: a trace that is already there is not touched unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines import checks
from pipelines.clock import Clock, SystemClock
from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.dataset import Dataset
from pipelines.payload import payload_bytes
from pipelines.pipeline import Pipeline, features_of
from pipelines.trace import Trace, save_trace
from profiler.execution import InProcess
from profiler.journal import MeasuredInput
from profiler.measure import Profiler
from profiler.prefix_cache import PrefixCache
from studies.trace_parts import Part, PartStore
from studies.trace_progress import Meter, Observer

LARGEST_SPACE = 20_000
"""More configurations than this are refused: all are measured, and held in memory."""

_FILES = ("pipeline.yaml", "trace.npz")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """What was measured and where it is.

    Attributes:
        folder: Holds `pipeline.yaml` and `trace.npz`.
        configurations: C.
        operators: O.
        inputs: N.
        resumed: Inputs taken over from a run that was cut off.
        missing: Pairs (configuration, input) without a score: NaN in the trace.
        causes: Why, in words, the first few unlike ones that this run met.
        spent_s: Operator seconds run by this run.
        saved_s: Operator seconds that shared prefixes saved it.
        elapsed_s: Wall-clock seconds of this run.
    """

    folder: Path
    configurations: int
    operators: int
    inputs: int
    resumed: int
    missing: int
    causes: tuple[str, ...]
    spent_s: float
    saved_s: float
    elapsed_s: float


def first(dataset: Dataset, inputs: int) -> Dataset:
    """Give the first `inputs` examples of a data set.

    Raises:
        InvalidInput: If `inputs` is not in [1, number of examples].
    """
    checks.require(
        1 <= inputs <= len(dataset), "inputs", f"must be in [1, {len(dataset)}]", inputs
    )
    return Dataset(name=dataset.name, examples=dataset.examples[:inputs])


def run(
    pipeline: Pipeline,
    dataset: Dataset,
    out: Path,
    *,
    overwrite: bool = False,
    observer: Observer | None = None,
    clock: Clock | None = None,
) -> TraceSummary:
    """Measure a trace and write it to a folder.

    Args:
        pipeline: What to measure, in this process.
        dataset: On what, all of it; see `first`.
        out: The folder, made when it is missing.
        overwrite: Whether a trace that is already there is replaced, once the new one is whole.
        observer: Told a few times a second how far it is.
        clock: Times operators and the run; None: the machine's own.

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
    meter = Meter(clock=clock, observer=observer, configurations=space.size, inputs=len(dataset))
    trace = measure_trace(pipeline, dataset, store, meter)
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


def measure_trace(pipeline: Pipeline, dataset: Dataset, store: PartStore, meter: Meter) -> Trace:
    """Give the trace of a pipeline, measuring what the store does not hold yet.

    Raises:
        InvalidInput: If the pipeline has too many configurations, or an input is no payload.
    """
    space = _space(pipeline)
    todo = [index for index in range(len(dataset)) if store.load(index) is None]
    meter.resumed = len(dataset) - len(todo)
    meter.tell()
    if todo:
        _measure(_profiler(pipeline, dataset, todo, meter.clock), space, store, meter)
    parts = [store.load(index) for index in range(len(dataset))]
    return _trace(pipeline, dataset, space, [part for part in parts if part is not None])


def _measure(
    profiler: Profiler, space: ConfigurationSpace, store: PartStore, meter: Meter
) -> None:
    configurations = [space.configuration(number) for number in range(space.size)]
    for count, index in enumerate(profiler.order.tolist(), start=1):
        part = _empty_part(space)
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


def _profiler(pipeline: Pipeline, dataset: Dataset, todo: list[int], clock: Clock) -> Profiler:
    return Profiler(
        pipeline=pipeline,
        dataset=dataset,
        order=np.array(todo, dtype=np.int64),
        executor=InProcess(clock),
        journal=_NoJournal(),
        cache=PrefixCache(),
    )


class _NoJournal:
    """A `Journal` that keeps nothing: the parts on disk are what a restart reads."""

    def recall(self, configuration: Configuration) -> Sequence[MeasuredInput]:
        return ()

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        pass


def _empty_part(space: ConfigurationSpace) -> Part:
    shape = (space.size, len(space.graph.operators))
    return Part(
        score=np.full(space.size, np.nan, np.float32),
        latency_s=np.full(shape, np.nan, np.float32),
        output_bytes=np.full(shape, np.nan, np.float32),
    )


def _trace(
    pipeline: Pipeline, dataset: Dataset, space: ConfigurationSpace, parts: Sequence[Part]
) -> Trace:
    inputs = [example.input for example in dataset.examples]
    features = features_of(pipeline, inputs)
    if features is None:
        features = np.zeros((len(inputs), 0))
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
    checks.require(
        space.size <= LARGEST_SPACE,
        f"pipeline {pipeline.name}",
        f"must have at most {LARGEST_SPACE} configurations",
        space.size,
    )
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
