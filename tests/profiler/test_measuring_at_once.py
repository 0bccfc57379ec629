"""What a profiler does when its executor serves several runs at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.pipelines.errors import Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.operators import Operator, Settings
from circinus.pipelines.model.payload import Payload
from circinus.profiler.execution import Completed, FailedRun
from circinus.profiler.journal import MeasuredInput, MemoryJournal
from circinus.profiler.prefix_cache import PrefixCache
from tests.profiler.drawn import dags, integers, same
from tests.profiler.synthetic import Bench, Wide, chain, chosen, numbers

AT_ONCE_S = 10.0  # within which what runs at once has met; only a failing test waits for it

PendingAttempt = list[tuple[Configuration, int]]


@dataclass
class Ordered(MemoryJournal):
    """A journal that knows in which order it was told, by whom, and can break."""

    told: list[tuple[Configuration, int]] = field(default_factory=list)
    by: set[int] = field(default_factory=set)
    last: int = 10**6
    begun: threading.Event = field(default_factory=threading.Event)

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        if len(self.told) == self.last:
            raise InterruptedError("disk full")
        self.told.append((configuration, measured.input))
        self.by.add(threading.get_ident())
        MemoryJournal.record(self, configuration, measured)
        self.begun.set()


@dataclass
class Watched(Wide):
    """A wide executor that calls `before` with each run, in its thread."""

    before: Callable[[str, Payload, Settings], None] = lambda operator, inputs, settings: None

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        self.before(operator.name, inputs, configuration.of(operator.name))
        return super().run(operator, inputs, configuration)


def all_of(pipeline: Pipeline, inputs: int) -> PendingAttempt:
    """Ask for every configuration of `chain`: three share each setting of `first`."""
    space = ConfigurationSpace(pipeline.graph)
    return [(space.configuration(number), inputs) for number in range(space.size)]


def each_told(asked: PendingAttempt) -> list[tuple[Configuration, int]]:
    return [(configuration, index) for configuration, inputs in asked for index in range(inputs)]


def test_what_ended_before_nothing_could_be_run_any_more_is_kept() -> None:
    down = True

    def refuse(operator: str, inputs: Payload, settings: Settings) -> None:
        if down and (operator, inputs, settings["by"]) == ("first", 1.0, 1):
            raise Unavailable("no worker", retry_after_s=1.0)

    pipeline, journal, executor = chain(Bench()), Ordered(), Watched(2, before=refuse)
    profiler = Bench().profiler(
        pipeline, numbers(3), journal=journal, cache=PrefixCache(), executor=executor
    )
    asked = all_of(pipeline, 3)
    with pytest.raises(Unavailable, match="no worker"):
        profiler.measure_each(asked)
    refused = (chosen(pipeline, first=1, second=0), 1)
    told = each_told(asked)
    assert journal.told[:10] == told[: told.index(refused)]
    assert refused not in journal.told
    assert profiler.spent_s == 0  # it counts when it is asked for again
    down = False
    profiles = profiler.measure_each(asked)
    assert executor.runs == {"first": 3 * 3, "second": 9 * 3}
    assert set(journal.told) == set(told)
    assert len(journal.told) == len(told)
    assert profiler.spent_s == sum(profile.spent_s for profile in profiles)


@pytest.mark.parametrize("last", [0, 1, 5])
def test_a_journal_that_breaks_has_what_came_before_in_the_order_asked(last: int) -> None:
    pipeline, journal, executor = chain(Bench()), Ordered(), Wide(3)
    profiler = Bench().profiler(
        pipeline, numbers(3), journal=journal, cache=PrefixCache(), executor=executor
    )
    asked = all_of(pipeline, 3)
    journal.last = last
    with pytest.raises(InterruptedError, match="disk full"):
        profiler.measure_each(asked)
    assert journal.told == each_told(asked)[:last]
    journal.last = 10**6
    profiler.measure_each(asked)
    assert journal.told == each_told(asked)
    assert executor.runs == {"first": 3 * 3, "second": 9 * 3}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Heed interrupts: who is started in the background of a shell is made to ignore them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_what_runs_and_keeps_it_and_starts_nothing_more() -> None:
    under_way = threading.Barrier(2)
    caller = threading.get_ident()

    def interrupt(operator: str, inputs: Payload, settings: Settings) -> None:
        if operator == "first" and settings["by"] == 0 and inputs in (1.0, 2.0):
            assert journal.begun.wait(AT_ONCE_S)
            if under_way.wait(AT_ONCE_S) == 0:
                signal.pthread_kill(caller, signal.SIGINT)

    pipeline, journal = chain(Bench()), Ordered()
    executor = Watched(2, before=interrupt)
    profiler = Bench().profiler(
        pipeline, numbers(20), journal=journal, cache=PrefixCache(), executor=executor
    )
    asked = all_of(pipeline, 20)
    with pytest.raises(KeyboardInterrupt):
        profiler.measure_each(asked)
    kept = list(dict.fromkeys(journal.told))  # the one that was interrupted may be told again
    assert 3 <= executor.runs["second"] == len(kept) < len(each_told(asked))
    assert kept == each_told(asked)[: len(kept)]


def test_a_failure_in_a_shared_prefix_is_met_by_all_and_run_once() -> None:
    def broken(inputs: Payload, settings: Settings) -> Payload:
        if inputs == 1.0:
            raise RuntimeError("broke")
        return inputs

    bench = Bench()
    pipeline = chain(bench)
    operators = (bench.operator("zeroth", broken), *_after("zeroth", pipeline))
    pipeline = Pipeline(name="breaks", operators=operators, score=pipeline.score)
    executor = Wide(4)
    profiler = bench.profiler(pipeline, numbers(3), cache=PrefixCache(), executor=executor)
    for profile in profiler.measure_each(all_of(pipeline, 3)):
        assert [(failure.input, failure.cause) for failure in profile.failures] == [
            (1, "RuntimeError: broke")
        ]
    assert executor.runs == {"zeroth": 3, "first": 3 * 2, "second": 9 * 2}


def _after(name: str, pipeline: Pipeline) -> tuple[Operator, ...]:
    """Return the operators of `chain` after another one."""
    first, second = pipeline.operators
    return Operator(spec=replace(first.spec, after=(name,)), run=first.run), second


def test_an_input_that_is_no_payload_keeps_nobody_waiting() -> None:
    examples = [Example(input=float(i), expected=float(i)) for i in range(6)]
    examples[2] = Example(input=cast(Payload, object()), expected=0.0)
    pipeline = chain(Bench())
    profiler = Bench().profiler(
        pipeline, Dataset(name="odd", examples=examples), cache=PrefixCache(), executor=Wide(3)
    )
    for profile in profiler.measure_each(all_of(pipeline, 6)):
        assert profile.succeeded.tolist() == [True, True, False, True, True, True]


class Slow(tuple[Example, ...]):
    """Examples, the first of which cannot be read before `ran` or for a moment."""

    ran: threading.Event

    def __getitem__(self, index: object) -> Example:  # type: ignore[override]  # never a slice
        if index == 0:
            self.ran.wait(0.05)
        return tuple.__getitem__(self, cast(int, index))


def test_of_alike_inputs_one_is_run_though_the_first_is_slow_to_read() -> None:
    examples = Slow((Example(input=1.0, expected=1.0),) * 2)
    examples.ran = threading.Event()
    executor = Watched(2, before=lambda operator, inputs, settings: examples.ran.set())
    pipeline = chain(Bench())
    profiler = Bench().profiler(
        pipeline, Dataset(name="slow", examples=examples), cache=PrefixCache(), executor=executor
    )
    profile = profiler.measure(chosen(pipeline, first=1, second=0), 2)
    assert executor.runs == {"first": 1, "second": 1}
    assert (profile.runs, profile.saved_runs) == (2, 2)


def test_as_many_measurements_as_the_executor_is_wide_are_made_at_once() -> None:
    pipeline, width = chain(Bench()), 3
    meeting = threading.Barrier(width)

    def meet(operator: str, inputs: Payload, settings: Settings) -> None:
        meeting.wait(AT_ONCE_S)

    executor = Watched(width, before=meet)
    profiler = Bench().profiler(pipeline, numbers(1), cache=PrefixCache(), executor=executor)
    assert profiler.width == width
    # One input each, nothing shared: `first` meets `first`, then `second` meets `second`.
    profiler.measure_each([(chosen(pipeline, first=by, second=0), 1) for by in range(width)])
    assert executor.runs == {"first": width, "second": width}


def test_configurations_that_share_a_prefix_go_their_ways_at_once_after_it() -> None:
    pipeline, width = chain(Bench()), 3
    meeting = threading.Barrier(width)

    def meet(operator: str, inputs: Payload, settings: Settings) -> None:
        if operator == "second":
            meeting.wait(AT_ONCE_S)

    executor = Watched(width, before=meet)
    profiler = Bench().profiler(pipeline, numbers(1), cache=PrefixCache(), executor=executor)
    asked = [(chosen(pipeline, first=1, second=by), 1) for by in range(width)]
    profiles = profiler.measure_each(asked)
    assert executor.runs == {"first": 1, "second": width}
    assert [profile.saved_runs for profile in profiles] == [0, 1, 1]
    assert profiler.saved_s == 2 * profiles[0].operator_s[0, 0]


def test_the_journal_is_told_by_the_caller_in_the_order_asked_whichever_ends_first() -> None:
    pipeline, journal = chain(Bench()), Ordered()
    asked = all_of(pipeline, 2)[::-1]
    others = threading.Event()

    def last_first(operator: str, inputs: Payload, settings: Settings) -> None:
        if (operator, inputs, settings["by"]) == ("first", 0.0, 2):
            assert others.wait(AT_ONCE_S)
        if (operator, inputs, settings["by"]) == ("first", 1.0, 0):
            others.set()

    profiler = Bench().profiler(
        pipeline,
        numbers(2),
        journal=journal,
        cache=PrefixCache(),
        executor=Watched(6, before=last_first),
    )
    profiler.measure_each(asked)
    assert journal.told == each_told(asked)
    assert journal.by == {threading.get_ident()}


@settings(max_examples=60, deadline=None)
@given(
    drawn=dags(fails_in=6),
    limit=st.sampled_from([None, 2000, 10**6]),
    width=st.integers(2, 4),
    lots=st.lists(
        st.dictionaries(st.integers(0, 11), st.integers(1, 5), min_size=1, max_size=6),
        min_size=1,
        max_size=3,
    ),
)
def test_all_is_as_if_measured_one_after_the_other_whoever_asks_for_what_at_once(
    drawn: tuple[Bench, Pipeline], limit: int | None, width: int, lots: list[dict[int, int]]
) -> None:
    bench, pipeline = drawn
    space = ConfigurationSpace(pipeline.graph)
    at_once, one_by_one = (
        bench.profiler(
            pipeline,
            integers(5),
            cache=None if limit is None else PrefixCache(limit),
            executor=Wide(wide),
        )
        for wide in (width, 1)
    )
    for lot in lots:
        asked = [
            (space.configuration(number), inputs)
            for number, inputs in lot.items()
            if number < space.size
        ]
        for profile, (configuration, inputs) in zip(
            at_once.measure_each(asked), asked, strict=True
        ):
            alone = one_by_one.measure(configuration, inputs)
            assert same(profile, alone)
            assert profile.failures == alone.failures
            if limit != 2000:  # what is evicted when depends on what runs at once
                assert (profile.spent_s, profile.runs) == (alone.spent_s, alone.runs)
                assert (profile.saved_s, profile.saved_runs) == (alone.saved_s, alone.saved_runs)
    if limit != 2000:
        assert at_once.spent_s == one_by_one.spent_s
        assert at_once.saved_s == one_by_one.saved_s
