"""The Evaluator that runs the real operators.

It asks the journal first, then the prefix cache, and runs what is left. The one rule: a
measurement is in the journal before anybody sees it.

Measurements made at once cost together what they cost one after the other. Each takes a turn:
before anything is run for it, what it shares with earlier turns is there, or known to fail, or
those turns ended without it. In a DAG it so waits also for what an earlier turn runs before the
shared operator: were it to run ahead, it would pay for what a failure there spares it. No turn
waits for a later one, and turns begin in their order, so each of them ends.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.errors import Stopped
from circinus.pipelines.execution.calling import EndpointCaller
from circinus.pipelines.execution.connections import remark_on
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.draws import DrawOrder, Scatter, drawing_as
from circinus.pipelines.model.payload import content_hash, payload_bytes
from circinus.pipelines.model.profile import Failure, IntArray, Profile
from circinus.profiler.comparing import Comparisons
from circinus.profiler.execution import Executor, handed_out
from circinus.profiler.journal import Columns, Journal, MeasuredInput, Pair
from circinus.profiler.prefix_cache import PrefixCache, fingerprints
from circinus.profiler.walk import PreparedInput, Walk, failed

_REMEMBERS = (
    "answers inputs that it has met before more quickly: the first run on each input counts, as "
    "requests bring new ones"
)


_Key = tuple[str, str]


@dataclass(slots=True)
class _Known:
    """A configuration that was requested."""

    columns: Columns  # what was handed out
    # what is in the journal beyond that
    recalled: dict[Pair, MeasuredInput] = field(default_factory=dict)
    # failures in the journal, which may have passed: these inputs are measured again
    failed: dict[Pair, MeasuredInput] = field(default_factory=dict)
    prints: dict[int, tuple[str, ...]] = field(default_factory=dict)  # of operators, by draw


class _Missing(NamedTuple):
    known: _Known
    pair: Pair
    compares: bool  # whether operators run once more, to see whether they draw


@dataclass(eq=False)
class Profiler:
    """Measures configurations of a pipeline on a data set, see `Evaluator`.

    A profile covers what was requested, not all that the journal may hold, and `spent_s` counts a
    journalled measurement when it is requested. So a search that is started again sees, step by
    step, what it saw before, and continues the same budget. Only what failed is measured again:
    what was away then may be there now. InvalidInput if the order is empty, repeats an index or
    has one outside the data set.

    An operator that is observed to answer differently draws from then on, as if it was declared:
    `graph` has it so, and there is more to measure.
    """

    pipeline: Pipeline  # what to measure
    dataset: Dataset  # what to measure it on
    _: KW_ONLY
    # indices into the data set, each at most once: all that may be drawn, in the order to draw
    # them, shape (population,). See `drawing`
    order: IntArray
    executor: Executor  # runs operators
    journal: Journal  # stores what was measured, of this pipeline on this data set
    cache: PrefixCache | None = None  # outputs to reuse; None: none
    caller: EndpointCaller | None = None  # runs a judge that calls endpoints; None: it calls none
    # receives how many seconds machines ran, those of journalled measurements included
    ran: Callable[[float], object] = lambda seconds: None
    comparisons: Comparisons = field(default_factory=Comparisons)  # facts about operators
    spent_s: float = field(default=0.0, init=False)  # operator seconds, journalled ones included
    calls_s: float = field(default=0.0, init=False)  # of these, waited for endpoints
    calls_usd: float = field(default=0.0, init=False)  # US dollars that calls cost
    saved_s: float = field(default=0.0, init=False)  # operator seconds that shared prefixes saved
    _wanted: int = field(default=0, init=False, repr=False)  # measurements, journalled ones too
    _known: dict[Configuration, _Known] = field(default_factory=dict, init=False, repr=False)
    _facts: dict[int, tuple[str, int]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.order = _checked(self.order, len(self.dataset))
        self.graph = drawing_as(self.pipeline.graph, self.comparisons.unlike)
        self.population = len(self.order)
        self.width = self.executor.width
        self._order = DrawOrder(self.order, draws=self.graph.draws)
        self._scatter = Scatter(self.graph)
        self._space = ConfigurationSpace(self.graph)
        self._walk = Walk(self.pipeline, self.executor, self.cache, self.caller, self.comparisons)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the operators that were run."""
        reached = (remark_on(operator, host) for operator, host in self._walk.reached)
        remember = (f"{name} {_REMEMBERS}" for name in self._walk.repeats.remembering)
        return (*reached, *remember)

    def measure(self, configuration: Configuration, inputs: int) -> Profile:
        """Return the profile over the most inputs ever requested (`Evaluator.measure`)."""
        return self.measure_each([(configuration, inputs)])[0]

    def measure_each(self, wanted: Sequence[tuple[Configuration, int]]) -> tuple[Profile, ...]:
        """Return the profile of each, see `Evaluator.measure_each`.

        All measurements are journalled in the order requested, inputs in theirs. If an exception
        ends it, all that was measured until then is journalled and counts when requested again.
        InvalidInput as `measure` does, or if a configuration comes twice; nothing is run.
        Unavailable if the executor cannot run anything now.
        """
        self._order.grow(max((n for _, n in wanted), default=0), self._scatter.draws_worth)
        each = [self._checked(configuration, inputs) for configuration, inputs in wanted]
        checks.unique("configurations", [configuration for configuration, _ in wanted])
        missing: list[_Missing] = []
        for known, pairs in each:
            for pair in pairs:
                compares = self.comparisons.is_compared(self._wanted)
                self._wanted += 1
                if pair in known.recalled:
                    self._walk.learn(self._prints(known, pair), known.recalled[pair])
                else:
                    missing.append(_Missing(known, pair, compares))
        try:
            self._measure_all(missing)
        except Stopped as stopped:
            self.spent_s += stopped.spent_s
            self.calls_s += stopped.calls_s
            raise
        for known, pairs in each:
            for measured in map(known.recalled.pop, pairs):
                known.columns.append(measured)
                if measured.failure is None:
                    seconds = measured.operator_s.tolist()
                    configuration = known.columns.configuration
                    self._scatter.add(configuration, measured.pair, measured.score, seconds)
                self.spent_s += measured.spent_s
                self.calls_s += measured.calls_s
                self.calls_usd += measured.calls_usd
                self.saved_s += measured.saved_s
        self._correct()
        self._notice()
        return tuple(known.columns.profile() for known, _ in each)

    def _correct(self) -> None:
        """Replace seconds of remembered answers by those of first runs."""
        for (print_, index), seconds, waited_s in self._walk.corrected():
            for known in self._known.values():
                prints = self._prints(known, (index, 0))
                for o in (o for o, each in enumerate(prints) if each == print_):
                    known.columns.correct(index, o, seconds, waited_s)

    def _notice(self) -> None:
        """Declare operators that turned out to draw: what was measured is of draw 0."""
        graph = drawing_as(self.graph, self.comparisons.unlike)
        if graph is self.graph:
            return
        if not self.graph.draws:
            met = max((known.columns.count for known in self._known.values()), default=0)
            self._order = self._order.drawing(met)
        self.graph, self._scatter = graph, Scatter(graph)
        for known in self._known.values():
            known.prints.clear()

    def _checked(self, configuration: Configuration, inputs: int) -> tuple[_Known, list[Pair]]:
        """Return the record of a configuration, and what its profile lacks."""
        rule = f"must be in [1, {self._order.size}]"
        checks.require(1 <= inputs <= self._order.size, "inputs", rule, inputs)
        known = self._known.get(configuration) or self._recall(configuration)
        return known, self._order.pairs(min(known.columns.count, inputs), inputs)

    def _measure_all(self, missing: Sequence[_Missing]) -> None:
        """Measure inputs, as many at once as can be run, and journal them in their order."""
        turns, running = Turns(), deque[tuple[_Known, Future[MeasuredInput]]]()
        if self.width == 1 or len(missing) < 2:
            for one in missing:
                self._record(one.known, self._measured(turns.take(), one))
            return
        with ThreadPoolExecutor(min(self.width, len(missing))) as threads:
            try:
                for one in missing:
                    task = threads.submit(self._measured, turns.take(), one)
                    running.append((one.known, task))
                while running:
                    known, task = running[0]
                    self._record(known, task.result())
                    running.popleft()
            finally:
                threads.shutdown(wait=True, cancel_futures=True)
                for known, task in running:  # after an exception: what was paid for is stored
                    if not task.cancelled() and task.exception() is None:
                        self._record(known, task.result())

    def _record(self, known: _Known, measured: MeasuredInput) -> None:
        self.ran(measured.spent_s - measured.calls_s)
        if before := known.failed.pop(measured.pair, None):  # it was paid for, too
            measured = replace(measured, **asdict(before.plus(measured)))
        # deviates: journal-at-once
        self.journal.record(known.columns.configuration, measured)
        known.recalled[measured.pair] = measured

    def _recall(self, configuration: Configuration) -> _Known:
        self._space.parse(configuration.as_dict())
        operators = len(self.graph.operators)
        known = _Known(Columns(configuration, operators))
        for measured in self.journal.recall(configuration):
            rule = f"must be of the {operators} operators of {self.graph.name}"
            size = len(measured.operator_s)
            checks.require(size == operators, f"journal, input {measured.input}", rule, size)
            self.ran(measured.spent_s - measured.calls_s)
            records = known.recalled if measured.failure is None else known.failed
            records[measured.pair] = measured
        self._known[configuration] = known
        return known

    def _prints(self, known: _Known, pair: Pair) -> tuple[str, ...]:
        """Return the fingerprints of a configuration's operators on a draw."""
        _, draw = pair
        if draw not in known.prints:
            configuration, drawing = known.columns.configuration, self.graph.drawing
            known.prints[draw] = fingerprints(self.pipeline, configuration, draw, drawing)
        return known.prints[draw]

    def _measured(self, turn: Turn, one: _Missing) -> MeasuredInput:
        configuration = one.known.columns.configuration
        prints, (index, draw) = self._prints(one.known, one.pair), one.pair
        with turn:
            try:
                prepared = self._prepared(index, draw)
            except (ValueError, OSError) as error:  # no payload, or a file that cannot be read
                failure = Failure(input=index, draw=draw, operator="input", cause=str(error))
                return failed(failure, len(prints))
            turn.begin(prints, prepared.content)
            return self._walk.measure(
                configuration, prints, prepared, turn.settle, compares=one.compares
            )

    def _prepared(self, index: int, draw: int) -> PreparedInput:
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
            draw=draw,
        )


def _checked(order: IntArray, count: int) -> IntArray:
    rule = f"must be indices in [0, {count}), at least one"
    inside = len(order) > 0 and order.min() >= 0 and order.max() < count
    checks.require(bool(inside), "order", rule, order.tolist())
    checks.unique("order", order.tolist())
    checked = np.array(order, dtype=np.int64)
    checked.flags.writeable = False  # profiles hand out views of it
    return checked


class Turns:
    """Returns turns, for one lot of measurements. Turns must be begun in the order of creation."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.begun = 0
        # Fingerprint and content of an input -> turns that may run it yet, in their order.
        self.open: dict[_Key, list[int]] = {}
        self._count = 0

    def take(self) -> Turn:
        """Return the next turn; for one thread only."""
        self._count += 1
        return Turn(self, self._count - 1)


class Turn(AbstractContextManager["Turn"]):
    """A turn, made by `Turns`. A context: when it ends, no other waits for it any more."""

    def __init__(self, turns: Turns, number: int) -> None:
        self._turns = turns
        self._number = number
        self._content = ""
        self._keys: list[_Key] | None = None  # None: not begun

    def __exit__(self, *details: object) -> None:
        """End it, begun or not."""
        if self._keys is None:
            self.begin((), "")
        turns = self._turns
        with turns.changed:
            for key in self._keys or ():
                left = [turn for turn in turns.open.pop(key, ()) if turn != self._number]
                if left:
                    turns.open[key] = left
            turns.changed.notify_all()

    def begin(self, prints: Sequence[str], content: str) -> None:
        """Return when all earlier turns have begun and nothing that they share with it is open.

        They share what has the fingerprint of an operator and the content hash of the input.
        """
        self._content = content
        self._keys = keys = [(print_, content) for print_ in prints]
        turns, number = self._turns, self._number
        with turns.changed:
            turns.changed.wait_for(lambda: turns.begun == number)
            turns.begun += 1
            for key in keys:
                turns.open.setdefault(key, []).append(number)
            turns.changed.notify_all()
            turns.changed.wait_for(
                # Not `==`: what was settled for this turn may be open again for a later one.
                lambda: all(turns.open.get(key, [number])[0] >= number for key in keys)
            )

    def settle(self, print_: str) -> None:
        """Release what waits for this operator: its output is there or need not be."""
        with self._turns.changed:
            self._turns.open.pop((print_, self._content), None)
            self._turns.changed.notify_all()
