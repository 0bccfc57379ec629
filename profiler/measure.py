"""The Evaluator that runs the real operators.

It asks the journal first, then the prefix cache, and runs what is left. The one rule: a
measurement is in the journal before anybody sees it.
"""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import numpy as np

from pipelines import checks
from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.dataset import Dataset
from pipelines.graph import PipelineGraph
from pipelines.payload import content_hash, payload_bytes
from pipelines.pipeline import Pipeline
from pipelines.profile import Failure, Profile
from profiler.columns import Columns
from profiler.execution import Executor
from profiler.journal import Journal, MeasuredInput
from profiler.prefix_cache import PrefixCache, fingerprints
from profiler.read_only import handed_out
from profiler.strata import IntArray
from profiler.walk import PreparedInput, Walk, failed


@dataclass(slots=True, kw_only=True)
class _Known:
    """A configuration that was asked for."""

    prints: tuple[str, ...]
    columns: Columns
    recalled: dict[int, MeasuredInput]


@dataclass(eq=False)
class Profiler:
    """Measures configurations of a pipeline on a data set, see `Evaluator`.

    A profile covers what was asked for, not all that the journal may hold, and `spent_s` counts
    a journalled measurement when it is asked for. So a search that is started again sees, step
    by step, what it saw before, and continues the same budget.

    Attributes:
        pipeline: What to measure.
        dataset: What to measure it on.
        order: Indices into the data set, each at most once: all that may be drawn, in the order
            to draw them, shape (population,). See `strata.profiling_order`.
        executor: Runs operators.
        journal: Keeps what was measured, of this pipeline on this data set.
        cache: Outputs to reuse; None: none.

    Raises:
        InvalidInput: If the order is empty, repeats an index or has one outside the data set.
    """

    pipeline: Pipeline
    dataset: Dataset
    _: KW_ONLY
    order: IntArray
    executor: Executor
    journal: Journal
    cache: PrefixCache | None = None
    _spent_s: float = field(default=0.0, init=False)
    _saved_s: float = field(default=0.0, init=False)
    _known: dict[Configuration, _Known] = field(default_factory=dict, init=False, repr=False)
    _facts: dict[int, tuple[str, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.order = _checked(self.order, len(self.dataset))
        self._space = ConfigurationSpace(self.pipeline.graph)
        self._walk = Walk(self.pipeline, self.executor, self.cache)

    @property
    def graph(self) -> PipelineGraph:
        """The pipeline."""
        return self.pipeline.graph

    @property
    def population(self) -> int:
        """Number of inputs there are, `>= 1`."""
        return len(self.order)

    @property
    def spent_s(self) -> float:
        """Operator seconds paid so far: warm-ups, failures and journalled ones included."""
        return self._spent_s

    @property
    def saved_s(self) -> float:
        """Operator seconds that shared prefixes saved so far."""
        return self._saved_s

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Give the profile over the first inputs: as many as were ever asked for.

        Raises:
            InvalidInput: If `inputs` is not in [1, population], or the configuration is none of
                the pipeline.
        """
        rule = f"must be in [1, {self.population}]"
        checks.require(1 <= inputs <= self.population, "inputs", rule, inputs)
        known = self._known.get(configuration) or self._recall(configuration)
        asked = self.order[known.columns.count : inputs].tolist()
        for index in asked:
            if index in known.recalled:
                self._walk.learn(known.prints, known.recalled[index])
        missing = [index for index in asked if index not in known.recalled]
        with closing(self._each_measured(configuration, known.prints, missing)) as new:
            for index in asked:
                if index in known.recalled:
                    measured = known.recalled.pop(index)
                else:
                    measured = next(new)
                    self.journal.record(configuration, measured)
                known.columns.append(measured)
                self._spent_s += measured.spent_s
                self._saved_s += measured.saved_s
        return known.columns.profile()

    def _each_measured(
        self, configuration: Configuration, prints: tuple[str, ...], indices: list[int]
    ) -> Generator[MeasuredInput, None, None]:
        """Give the measurement of each input, in their order, as many at once as can be run."""
        if self.executor.width == 1 or len(indices) < 2:
            for index in indices:
                yield self._measured(configuration, prints, index)
            return
        with ThreadPoolExecutor(min(self.executor.width, len(indices))) as threads:
            one = partial(self._measured, configuration, prints)
            running = [threads.submit(one, index) for index in indices]
            try:
                for future in running:
                    yield future.result()
            finally:
                threads.shutdown(wait=True, cancel_futures=True)

    def _recall(self, configuration: Configuration) -> _Known:
        self._space.parse(configuration.as_dict())
        operators = len(self.graph.operators)
        recalled = {measured.input: measured for measured in self.journal.recall(configuration)}
        for measured in recalled.values():
            rule = f"must be of the {operators} operators of {self.graph.name}"
            size = len(measured.operator_s)
            checks.require(size == operators, f"journal, input {measured.input}", rule, size)
        self._known[configuration] = _Known(
            prints=fingerprints(self.pipeline, configuration),
            columns=Columns(configuration, self.order, operators),
            recalled=recalled,
        )
        return self._known[configuration]

    def _measured(
        self, configuration: Configuration, prints: tuple[str, ...], index: int
    ) -> MeasuredInput:
        try:
            prepared = self._prepared(index)
        except (ValueError, OSError) as error:  # no payload, or a file that cannot be read
            failure = Failure(input=index, operator="input", cause=str(error))
            return failed(failure, len(prints))
        return self._walk.measure(configuration, prints, prepared)

    def _prepared(self, index: int) -> PreparedInput:
        example = self.dataset.examples[index]
        if index not in self._facts:
            self._facts[index] = (content_hash(example.input), payload_bytes(example.input))
        content, size = self._facts[index]
        return PreparedInput(
            index=index,
            payload=handed_out(example.input),
            expected=example.expected,
            content=content,
            input_bytes=size,
        )


def _checked(order: IntArray, count: int) -> IntArray:
    rule = f"must be indices in [0, {count}), at least one"
    inside = len(order) > 0 and order.min() >= 0 and order.max() < count
    checks.require(bool(inside), "order", rule, order.tolist())
    checks.unique("order", order.tolist())
    kept = np.array(order, dtype=np.int64)
    kept.flags.writeable = False  # profiles hand out views of it
    return kept
