"""One input through the pipeline, running only what nobody ran before.

The one rule: the seconds of an operator with a lineage on an input are those of its first run,
whoever asks and whatever was evicted since. So configurations differ by what they do, not by
the jitter of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import NamedTuple

import numpy as np

from pipelines.configuration import Configuration
from pipelines.errors import OperatorFailed
from pipelines.payload import Payload
from pipelines.pipeline import Pipeline, inputs_of, output_of
from pipelines.profile import Failure
from profiler.execution import Executor, Failed
from profiler.journal import MeasuredInput
from profiler.prefix_cache import Entry, PrefixCache
from profiler.read_only import handed_out


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInput:
    """An input with what is worked out once for all configurations.

    Attributes:
        index: In the data set.
        payload: What the source operators get.
        expected: What the metric compares with.
        content: Content hash of the payload.
        input_bytes: Its size, as links are charged for it.
    """

    index: int
    payload: Payload
    expected: Payload
    content: str
    input_bytes: int


class _Facts(NamedTuple):
    seconds: float
    output_bytes: float


class Paid(NamedTuple):
    """What a measurement cost, and what it did not."""

    spent_s: float = 0.0
    saved_s: float = 0.0
    runs: int = 0
    saved_runs: int = 0


def _nobody_waits(print_: str) -> None:
    pass


class Walk:
    """Measures a configuration on an input. Threads may share it.

    Args:
        pipeline: What to run.
        executor: Runs an operator.
        cache: Outputs to reuse; None: everything is run each time.
    """

    def __init__(
        self, pipeline: Pipeline, executor: Executor, cache: PrefixCache | None = None
    ) -> None:
        self._pipeline = pipeline
        self._operators = tuple(pipeline.by_name.values())
        self._sinks = frozenset(pipeline.graph.position(name) for name in pipeline.graph.sinks)
        self._executor = executor
        self._cache = cache
        # fingerprint -> index of input -> first measured. Outlives what the cache evicts.
        self._facts: dict[str, dict[int, _Facts]] = {}
        # The same of what failed: what failed once is not tried again for other configurations.
        self._failures: dict[tuple[str, int], Failure] = {}

    def measure(
        self,
        configuration: Configuration,
        prints: Sequence[str],
        prepared: PreparedInput,
        settled: Callable[[str], None] = _nobody_waits,
    ) -> MeasuredInput:
        """Give the measurement of a configuration on an input, whatever operators do.

        Args:
            configuration: What to measure.
            prints: Its fingerprints, operators in topological order.
            prepared: The input.
            settled: Told each fingerprint whose output is there or need not be, as soon as it is
                known; not the one that fails, nor those after it.

        Raises:
            Unavailable: If the executor cannot run anything now.
        """
        if self._failures:
            for print_ in prints:
                known = self._failures.get((print_, prepared.index))
                if known is not None:
                    return failed(known, len(prints))
        outputs, missing = self._reuse(prints, prepared)
        reused = [print_ for at, print_ in enumerate(prints) if at not in missing]
        for print_ in reused:
            settled(print_)
        saved_s = sum(self._facts[print_][prepared.index].seconds for print_ in reused)
        spent_s, saved_runs = 0.0, len(reused)
        for runs, position in enumerate(missing, 1):
            operator = self._operators[position]
            inputs = inputs_of(self._pipeline.graph, operator.name, prepared.payload, outputs)
            done = self._executor.run(operator, inputs, configuration)
            spent_s += done.spent_s
            if isinstance(done, Failed):
                failure = Failure(input=prepared.index, operator=operator.name, cause=done.cause)
                self._failures[(prints[position], prepared.index)] = failure
                return failed(failure, len(prints), Paid(spent_s, saved_s, runs, saved_runs))
            outputs[operator.name] = done.output
            entry = Entry(output=done.output, seconds=done.seconds, output_bytes=done.output_bytes)
            self._keep(prints[position], prepared, entry)
            settled(prints[position])
        paid = Paid(spent_s, saved_s, len(missing), saved_runs)
        return self._scored(prints, prepared, outputs, paid)

    def learn(self, prints: Sequence[str], measured: MeasuredInput) -> None:
        """Take over the seconds and bytes of a measurement made earlier."""
        if measured.failure is not None:
            self._learn_failure(prints, measured.failure)
            return
        facts = zip(measured.operator_s.tolist(), measured.output_bytes.tolist(), strict=True)
        for print_, (seconds, output_bytes) in zip(prints, facts, strict=True):
            self._note(print_, measured.input, seconds, output_bytes)

    def _learn_failure(self, prints: Sequence[str], failure: Failure) -> None:
        for operator, print_ in zip(self._operators, prints, strict=True):
            if operator.name == failure.operator:  # not that of the metric, or of the input
                self._failures[(print_, failure.input)] = failure

    def _reuse(
        self, prints: Sequence[str], prepared: PreparedInput
    ) -> tuple[dict[str, Payload], list[int]]:
        """Give outputs that are cached, and the positions to run, in topological order.

        From the sinks up: an operator whose children are all cached need not be run, nor its
        output be there, once its seconds are known.
        """
        outputs: dict[str, Payload] = {}
        missing: list[int] = []
        needed = set(self._sinks)
        for position in reversed(range(len(prints))):
            known = prepared.index in self._facts.get(prints[position], {})
            if position not in needed and known:
                continue
            entry = self._cached(prints[position], prepared)
            if entry is None:
                missing.append(position)
                needed.update(self._pipeline.graph.parents[position])
            else:
                outputs[self._operators[position].name] = entry.output
        return outputs, missing[::-1]

    def _cached(self, print_: str, prepared: PreparedInput) -> Entry | None:
        entry = self._cache.get(print_, prepared.content) if self._cache is not None else None
        if entry is not None:
            self._note(print_, prepared.index, entry.seconds, entry.output_bytes)
        return entry

    def _keep(self, print_: str, prepared: PreparedInput, entry: Entry) -> None:
        self._note(print_, prepared.index, entry.seconds, entry.output_bytes)
        if self._cache is not None:
            self._cache.put(print_, prepared.content, entry)

    def _note(self, print_: str, index: int, seconds: float, output_bytes: float) -> None:
        self._facts.setdefault(print_, {}).setdefault(index, _Facts(seconds, output_bytes))

    def _scored(
        self,
        prints: Sequence[str],
        prepared: PreparedInput,
        outputs: dict[str, Payload],
        paid: Paid,
    ) -> MeasuredInput:
        output = handed_out(output_of(self._pipeline.graph, outputs))
        try:
            score = self._pipeline.score_of(output, handed_out(prepared.expected))
        except OperatorFailed as error:
            failure = Failure(input=prepared.index, operator=error.operator, cause=error.cause)
            return failed(failure, len(prints), paid)
        facts = np.array([self._facts[print_][prepared.index] for print_ in prints])  # (O, 2)
        return MeasuredInput(
            input=prepared.index,
            score=score,
            operator_s=facts[:, 0],
            output_bytes=facts[:, 1],
            input_bytes=float(prepared.input_bytes),
            **paid._asdict(),
        )


_NOTHING = Paid()


def failed(failure: Failure, operators: int, paid: Paid = _NOTHING) -> MeasuredInput:
    """Give the measurement of an input that gave no score: NaN in everything measured."""
    return MeasuredInput(
        input=failure.input,
        score=nan,
        operator_s=np.full(operators, nan),
        output_bytes=np.full(operators, nan),
        input_bytes=nan,
        failure=failure,
        **paid._asdict(),
    )
