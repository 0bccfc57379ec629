"""One input through the pipeline, running only what was not run before.

The one rule: the seconds of an operator with a lineage on an input are those of its first run,
for every caller and whatever was evicted since. So configurations differ by what they do, not by
the jitter of the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import repeat, starmap
from math import nan
from typing import NamedTuple

import numpy as np

from circinus.pipelines.execution.calling import EndpointCaller
from circinus.pipelines.execution.metrics import SCORING
from circinus.pipelines.execution.pipeline import Pipeline, inputs_of, output_of
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload, content_hash
from circinus.pipelines.model.profile import Failure, Paid
from circinus.profiler.comparing import Comparisons, Place, RememberedInputs
from circinus.profiler.execution import Completed, Executor, FailedRun, compared
from circinus.profiler.journal import MeasuredInput
from circinus.profiler.prefix_cache import CacheEntry, PrefixCache
from circinus.profiler.scoring import Scoring

_NOTHING = Paid()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInput:
    """An input with what is worked out once for all configurations."""

    index: int  # in the data set
    payload: Payload  # what the source operators get
    expected: Payload  # what the metric compares with
    content: str  # content hash of the payload
    input_bytes: int  # its size, as links are charged for it
    draw: int = 0  # which draw of it is measured


class _Facts(NamedTuple):
    seconds: float
    waited_s: float
    output_bytes: float
    used: Usage = NOTHING_USED


class Walk:
    """Measures a configuration on an input. Threads may share it.

    Outputs are reused from the cache; None: everything is run each time. The caller runs a judge
    that calls endpoints: InvalidInput if there is one and no caller.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        executor: Executor,
        cache: PrefixCache | None = None,
        caller: EndpointCaller | None = None,
        comparisons: Comparisons | None = None,  # facts about operators; None: none
    ) -> None:
        self._pipeline = pipeline
        self._scoring = Scoring(pipeline, caller)
        self._operators = tuple(pipeline.by_name.values())
        self._sinks = frozenset(pipeline.graph.position(name) for name in pipeline.graph.sinks)
        self._calls = any(operator.spec.calls for operator in self._operators)
        self._executor = executor
        self._cache = cache
        self._comparisons = Comparisons() if comparisons is None else comparisons
        self.repeats = RememberedInputs()
        # fingerprint -> index of input -> first measured. Outlives what the cache evicts.
        self._facts: dict[str, dict[int, _Facts]] = {}
        # The same of what failed: what failed once is not tried again for other configurations.
        self._failures: dict[tuple[str, int], Failure] = {}
        # (operator, host) that it connected to without having declared it; a set in order
        self.reached: dict[tuple[str, str], None] = {}

    def measure(
        self,
        configuration: Configuration,
        prints: Sequence[str],
        prepared: PreparedInput,
        settled: Callable[[str], object] = lambda print_: None,
        *,
        compares: bool = True,
    ) -> MeasuredInput:
        """Return the measurement of a configuration with such fingerprints, whatever operators do.

        `settled` receives each fingerprint whose output is there or need not be, as soon as it is
        known; not the one that fails, nor those after it. Where it `compares`, operators that were
        not known to draw are run once more. Unavailable if the executor cannot run anything now.
        """
        for print_ in prints if self._failures else ():
            known = self._failures.get((print_, prepared.index))
            if known is not None:
                return failed(replace(known, draw=prepared.draw), len(prints))
        outputs, missing = self._reuse(prints, prepared)
        reused = [print_ for at, print_ in enumerate(prints) if at not in missing]
        for print_ in reused:
            settled(print_)
        saved_s = sum(self._facts[print_][prepared.index].seconds for print_ in reused)
        paid, varied = Paid(saved_s=saved_s, saved_runs=len(reused)), list[str]()
        for position in missing:
            operator = self._operators[position]
            inputs = inputs_of(self._pipeline.graph, operator.name, prepared.payload, outputs)
            done = self._executor.run(operator, inputs, configuration)
            paid = paid.plus(_cost(done))
            self.reached.update(((operator.name, host), None) for host in done.hosts)
            if isinstance(done, FailedRun):
                failure = _failure(prepared, operator.name, done.cause)
                self._failures[(prints[position], prepared.index)] = failure
                return failed(failure, len(prints), paid)
            if compares and self._comparisons.needs_another(operator, done):
                again = self._executor.run(operator, inputs, configuration)
                paid = paid.plus(_cost(again))
                if isinstance(again, Completed):
                    done = replace(done, varies=compared(operator, done, again).varies)
            if self._comparisons.learn(operator, done):
                varied.append(operator.name)
            place = (prints[position], prepared.index)
            done, cost = self._as_first(place, operator, inputs, configuration, done)
            paid = paid.plus(cost)
            outputs[operator.name] = done.output
            self._note(prints[position], prepared.index, done)
            if self._cache is not None:
                self._cache.put(prints[position], prepared.content, done)
            settled(prints[position])
        measured = self._scored(prints, prepared, outputs, paid)
        return replace(measured, varied=tuple(varied))

    def _as_first(
        self,
        place: Place,
        operator: Operator,
        inputs: Payload,
        configuration: Configuration,
        done: Completed,
    ) -> tuple[Completed, Paid]:
        """Return a run as it counts, and what it cost to know."""
        known = place[1] in self._facts.get(place[0], {})  # it counts already, as it was run first
        if known or not self.repeats.concerns(operator.name, place, done):
            return done, _NOTHING
        content, again, cost = content_hash(inputs), done, _NOTHING
        if done.first_s is None:
            ran = self._executor.run(operator, inputs, configuration)
            cost = _cost(ran)
            if isinstance(ran, FailedRun):
                return done, cost
            again = ran
            self.repeats.learn(operator.name, place, content, done, again)
        return self.repeats.counted(operator.name, content, done, again), cost

    def corrected(self) -> Iterator[tuple[Place, float, float]]:
        """Yield where a remembered answer counted as a first run: its seconds, and waits."""
        for place, seconds, waited_s in self.repeats.early():
            print_, index = place
            fact = self._facts[print_].get(index)
            if fact is not None:
                fact = fact._replace(
                    seconds=fact.seconds + seconds, waited_s=fact.waited_s + waited_s
                )
                self._facts[print_][index] = fact
                yield place, fact.seconds, fact.waited_s

    def learn(self, prints: Sequence[str], measured: MeasuredInput) -> None:
        """Take over the seconds and bytes of a measurement made earlier, which did not fail."""
        self._comparisons.unlike.update(measured.varied)
        count = len(measured.operator_s)
        used_by_operator, waited = measured.used, measured.waited_s
        used = (
            repeat(NOTHING_USED, count)
            if used_by_operator is None
            else starmap(Usage, used_by_operator.tolist())
        )
        facts = zip(
            measured.operator_s.tolist(),
            [0.0] * count if waited is None else waited.tolist(),
            measured.output_bytes.tolist(),
            used,
            strict=True,
        )
        for print_, fact in zip(prints, facts, strict=True):
            self._note(print_, measured.input, _Facts(*fact))

    def _reuse(
        self, prints: Sequence[str], prepared: PreparedInput
    ) -> tuple[dict[str, Payload], list[int]]:
        """Return outputs that are cached, and the positions to run, in topological order.

        From the sinks up: an operator whose children are all cached need not be run, nor its
        output be there, once its seconds are known.
        """
        outputs: dict[str, Payload] = {}
        missing: list[int] = []
        needed = set(self._sinks)
        for position, print_ in reversed(list(enumerate(prints))):
            if position not in needed and prepared.index in self._facts.get(print_, {}):
                continue
            entry = self._cache.get(print_, prepared.content) if self._cache is not None else None
            if entry is None:
                missing.append(position)
                needed.update(self._pipeline.graph.parents[position])
            else:
                self._note(print_, prepared.index, entry)
                outputs[self._operators[position].name] = entry.output
        return outputs, missing[::-1]

    def _note(self, print_: str, index: int, ran: CacheEntry | _Facts) -> None:
        fact = _Facts(ran.seconds, ran.waited_s, ran.output_bytes, ran.used)
        self._facts.setdefault(print_, {}).setdefault(index, fact)

    def _scored(
        self,
        prints: Sequence[str],
        prepared: PreparedInput,
        outputs: dict[str, Payload],
        paid: Paid,
    ) -> MeasuredInput:
        output = output_of(self._pipeline.graph, outputs)
        scored = self._scoring.of(output, prepared.payload, prepared.expected)
        paid = paid.plus(scored.paid)
        if scored.cause:
            failure = _failure(prepared, SCORING, scored.cause)
            return failed(failure, len(prints), paid)
        facts = [self._facts[print_][prepared.index] for print_ in prints]
        return MeasuredInput(
            input=prepared.index,
            draw=prepared.draw,
            score=scored.score,
            output=scored.output,
            operator_s=np.array([fact.seconds for fact in facts]),
            waited_s=np.array([fact.waited_s for fact in facts]),
            output_bytes=np.array([fact.output_bytes for fact in facts], dtype=np.float64),
            input_bytes=float(prepared.input_bytes),
            used=np.array([fact.used for fact in facts]) if self._calls else None,
            **asdict(paid),
        )


def _cost(done: Completed | FailedRun) -> Paid:
    waited_s = done.spent_s if done.used.calls else 0.0
    return Paid(spent_s=done.spent_s, runs=1, calls_s=waited_s, calls_usd=done.used.usd)


def _failure(prepared: PreparedInput, operator: str, cause: str) -> Failure:
    return Failure(input=prepared.index, draw=prepared.draw, operator=operator, cause=cause)


def failed(failure: Failure, operators: int, paid: Paid = _NOTHING) -> MeasuredInput:
    """Return the measurement of an input without a score: NaN in everything measured."""
    return MeasuredInput(
        input=failure.input,
        draw=failure.draw,
        score=nan,
        operator_s=np.full(operators, nan),
        output_bytes=np.full(operators, nan),
        input_bytes=nan,
        failure=failure,
        **asdict(paid),
    )
