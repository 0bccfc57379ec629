from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import psutil
import pytest

from circinus.deploy.profiling import processes, warm
from circinus.deploy.profiling.calls import Answered
from circinus.deploy.profiling.channel import Channel
from circinus.deploy.profiling.isolated import Child
from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerRun
from circinus.deploy.profiling.processes import ForkedPool, ProcessPool
from circinus.pipelines.clock import ManualClock, SystemClock
from circinus.pipelines.errors import InvalidInput, Stopped, Unavailable
from circinus.pipelines.execution.calling import OpenGate, Permit
from circinus.pipelines.io.datasets import Dataset, Example
from circinus.pipelines.model.configuration import Configuration, ConfigurationSpace
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.payload import encode
from circinus.profiler.execution import Completed, FailedRun, InProcess
from circinus.profiler.journal import MeasuredInput, MemoryJournal
from circinus.profiler.measure import Profiler
from circinus.profiler.prefix_cache import PrefixCache
from tests.deploy.profiled_pipelines import (
    CANNOT_LOAD,
    CHAIN,
    EVERY,
    FORKING,
    PAUSING,
    chain,
    every,
    forking,
    pausing,
)

PLAIN = Configuration(())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"workers": 0}, "workers must be >= 1, got 0."),
        ({"timeout_s": 0.0}, "timeout_s must be finite and > 0, got 0.0."),
        ({"start_timeout_s": -1.0}, "start_timeout_s must be finite and > 0, got -1.0."),
        ({"memory_bytes": 0}, "memory_bytes must be finite and > 0, got 0."),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        ProfilingPoolSettings(**settings)  # type: ignore[arg-type]  # wrong on purpose


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool]:
    settings = ProfilingPoolSettings(workers=1, timeout_s=0.5, memory_bytes=300_000_000)
    with ProcessPool(EVERY, SystemClock(), settings) as opened:
        yield opened


def test_a_pipeline_that_cannot_be_loaded_is_said_to_be_unavailable() -> None:
    with (
        ProcessPool(CANNOT_LOAD, SystemClock()) as broken,
        pytest.raises(Unavailable, match="no worker could load the pipeline"),
    ):
        broken.run(every.by_name["echo"], 1, PLAIN)


def test_an_operator_that_never_ends_is_ended(pool: ProcessPool) -> None:
    done = pool.run(every.by_name["hang"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "took longer than 0.5 s"
    assert 0.5 <= done.spent_s < 1  # a first call, which would be made twice


def test_a_run_takes_no_longer_than_it_may_by_then() -> None:
    with ProcessPool(EVERY, SystemClock(), ProfilingPoolSettings(timeout_s=60.0)) as opened:
        opened.longest_s = 0.5  # what profiling may take
        done = opened.run(every.by_name["hang"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "took longer than 0.5 s"


def test_an_operator_that_takes_its_process_down_costs_that_measurement(
    pool: ProcessPool,
) -> None:
    done = pool.run(every.by_name["die"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == "the worker process died (signal 9)"
    assert pool.deaths[-3:] == ["die: the worker process died (signal 9)"] * 3
    after = pool.run(every.by_name["echo"], "alive", PLAIN)
    assert isinstance(after, Completed)


def test_an_operator_that_wants_too_much_memory_fails(pool: ProcessPool) -> None:
    done = pool.run(every.by_name["eat"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert "Unable to allocate" in done.cause


def test_memory_that_was_not_enough_is_told_with_its_limit(pool: ProcessPool) -> None:
    done = pool.run(every.by_name["leak"], 1, PLAIN)
    assert isinstance(done, FailedRun)
    told = "CIRCINUS_CALL_MEMORY_BYTES allows 300000000 bytes beyond the loaded pipeline"
    assert done.cause == f"MemoryError: {told}"


def test_what_earlier_runs_left_in_a_worker_fails_no_run() -> None:
    settings = ProfilingPoolSettings(memory_bytes=300_000_000)
    with ProcessPool(EVERY, SystemClock(), settings) as opened:
        # 52 MB each time, which are kept: a worker has room for five
        done = [opened.run(every.by_name["hoard"], i, PLAIN) for i in range(8)]
    assert [one.output for one in done if isinstance(one, Completed)] == [*range(8)]


def test_starting_a_worker_is_waiting_and_no_operator_seconds() -> None:
    with ProcessPool(EVERY, SystemClock()) as opened:
        done = opened.run(every.by_name["echo"], 1, PLAIN)
        waited_s = opened.waits.by_cause["workers to start"]
    assert done.spent_s < waited_s
    assert opened.waits.seconds == waited_s


def test_waiting_for_leave_is_no_time_of_a_run_that_is_ended() -> None:
    clock, gate = ManualClock(), WaitingGate()
    gate.clock = clock
    calling = Answered(gate, clock, 60.0, 1.0)
    calling.answer({"ask": "admit", "operator": "read", "most": {}}, lambda data: None)
    assert calling.waited_s == 40.0


class WaitingGate(OpenGate):
    clock: ManualClock

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        self.clock.sleep(40.0)
        return OpenGate.admit(self, operator, most)


def test_the_memory_that_an_operator_takes_is_known_and_no_others() -> None:
    mib = 2**20
    with ProcessPool(EVERY, SystemClock()) as opened:
        assert opened.memory_of(["echo"], PLAIN) == {}
        for name in ("echo", "borrow", "write"):  # the last one fails
            opened.run(every.by_name[name], np.zeros(1), PLAIN)
        found = opened.memory_of(["echo", "borrow", "write", "pid"], PLAIN)
    assert found.keys() == {"echo", "borrow", "write"}
    # It borrows 100 MiB, and what runs afterwards does not have them any more.
    assert found["borrow"] - found["echo"] > 90 * mib
    assert found["borrow"] - found["write"] > 90 * mib
    assert 10 * mib < found["echo"] < 1000 * mib


def test_copies_of_this_process_tell_nothing_of_a_workers_memory() -> None:
    with ForkedPool(every, SystemClock()) as opened:
        opened.run(every.by_name["echo"], 1, PLAIN)
        assert opened.memory_of(["echo"], PLAIN) == {}


@pytest.mark.parametrize("forked", [False, True])
def test_an_operator_that_forks_shifts_no_answer(forked: bool) -> None:
    clock = SystemClock()
    opened = ForkedPool(forking, clock) if forked else ProcessPool(FORKING, clock)
    examples = tuple(Example(input=float(i), expected=i) for i in range(7))
    dataset, order = Dataset(name="numbers", examples=examples), np.arange(7)
    with opened:
        profiler = Profiler(
            forking, dataset, order=order, executor=opened, journal=MemoryJournal()
        )
        profile = profiler.measure(ConfigurationSpace(forking.graph).configuration(0), 7)
        deaths = [*opened.deaths]
    assert profile.score.tolist() == [1.0] * 7
    assert deaths == []


@pytest.mark.parametrize(
    ("operator", "cause"),
    [
        ("leave_a_copy", "the worker process died (signal 9)"),
        ("close", "the worker process died (an operator closed its descriptors)"),
        ("reopen", "the worker process died (an operator closed its descriptors)"),
        ("scribble", "something else was written into its socket"),
        ("stand_still", "took longer than 0.5 s"),
    ],
)
def test_an_operator_that_breaks_its_worker_is_told_with_its_cause_and_leaves_nothing(
    pool: ProcessPool, operator: str, cause: str
) -> None:
    start_s, children = SystemClock().now(), psutil.Process().children(recursive=True)
    done = pool.run(every.by_name[operator], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert cause in done.cause
    after = pool.run(every.by_name["echo"], "alive", PLAIN)
    assert isinstance(after, Completed)
    assert after.output == "alive"
    assert SystemClock().now() - start_s < 15
    left = {*psutil.Process().children(recursive=True)} - {*children}
    assert len(left) <= 1  # the worker that answered


def test_a_malformed_answer_fails_one_run_not_the_query() -> None:
    ours, theirs = Channel.pair()
    other = Channel(theirs)
    answers = [b"no payload", encode({"ask": "nothing"}), encode(["no fields"]), encode({})]
    child = Child(0, ours, lambda timeout_s: None)
    worker = processes._Process(child, OpenGate(), SystemClock(), lambda run, peak: None)
    run = WorkerRun(
        operator=every.by_name["echo"], inputs=1, configuration=PLAIN, is_warm_up=False
    )
    for answer in answers:

        def reply(answer: bytes = answer) -> None:
            other.requested()
            other.send(answer)

        thread = threading.Thread(target=reply)
        thread.start()
        with pytest.raises(Died) as raised:
            worker.run(run, 5.0)
        assert raised.value.cause.startswith("the worker process gave no answer (")
        thread.join()
    ours.close()
    theirs.close()


def test_workers_draw_numbers_of_their_own() -> None:
    with ProcessPool(EVERY, SystemClock(), ProfilingPoolSettings(workers=2)) as opened:
        first = opened.run(every.by_name["draw"], 0, PLAIN)
        with ThreadPoolExecutor(2) as threads:
            both = threads.map(
                lambda _: opened.run(every.by_name["draw_slowly"], 0, PLAIN), (0, 1)
            )
    drawn = [one.output for one in (first, *both) if isinstance(one, Completed)]
    assert len(drawn) == len({str(one) for one in drawn}) == 3


@pytest.mark.parametrize(
    ("operator", "cause"), [("leave", "SystemExit: bye"), ("interrupt", "KeyboardInterrupt")]
)
def test_an_operator_that_asks_its_process_to_end_has_failed(
    pool: ProcessPool, operator: str, cause: str
) -> None:
    deaths = len(pool.deaths)
    done = pool.run(every.by_name[operator], 1, PLAIN)
    assert isinstance(done, FailedRun)
    assert done.cause == cause
    assert len(pool.deaths) == deaths


def test_what_operators_print_is_on_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    clock = SystemClock()
    for opened in (ProcessPool(EVERY, clock), ForkedPool(every, clock)):
        with opened:
            assert isinstance(opened.run(every.by_name["talk"], 1, PLAIN), Completed)
        out, err = capfd.readouterr()
        assert out == ""
        assert err.count("said by a program") == 2  # a first call is made twice


def test_a_run_that_is_ended_is_paid_for() -> None:
    clock = SystemClock()
    settings = ProfilingPoolSettings(timeout_s=20.0)
    example = Example(input=1, expected=1)
    sole = replace(every, operators=(every.by_name["hang"],))
    with ProcessPool(EVERY, clock, settings) as opened:
        opened.run(every.by_name["echo"], 1, PLAIN)  # so that it has started
        late_s = clock.now() + 0.3
        opened.stop_when(lambda: clock.now() > late_s)
        profiler = Profiler(
            sole,
            Dataset(name="one", examples=(example,)),
            order=np.arange(1),
            executor=opened,
            journal=MemoryJournal(),
        )
        with pytest.raises(Stopped, match="hang was ended after"):
            profiler.measure(ConfigurationSpace(sole.graph).configuration(0), 1)
    assert 0.2 <= profiler.spent_s < 5


def test_a_worker_has_one_numeric_thread(pool: ProcessPool) -> None:
    done = pool.run(every.by_name["threads"], 1, PLAIN)
    assert isinstance(done, Completed)
    assert isinstance(done.output, list)
    assert set(done.output) == {1}


def test_a_worker_that_somebody_killed_loses_no_measurement(pool: ProcessPool) -> None:
    done = pool.run(every.by_name["pid"], 1, PLAIN)
    assert isinstance(done, Completed)
    assert isinstance(done.output, int)
    os.kill(done.output, signal.SIGKILL)
    again = pool.run(every.by_name["pid"], 1, PLAIN)
    assert isinstance(again, Completed)
    assert again.output != done.output


def test_closing_ends_the_workers_and_a_closed_pool_starts_new_ones() -> None:
    pool = ProcessPool(EVERY, SystemClock())
    pool.run(every.by_name["echo"], 1, PLAIN)
    pool.close()
    assert pool.width == 1
    assert isinstance(pool.run(every.by_name["echo"], 1, PLAIN), Completed)
    pool.close()


def test_configurations_asked_for_at_once_keep_all_workers_busy() -> None:
    clock, inputs = SystemClock(), 6
    examples = tuple(Example(input=float(i), expected=i) for i in range(inputs))
    space = ConfigurationSpace(pausing.graph)
    four = [space.configuration(number) for number in range(4)]

    def fresh(executor: ProcessPool) -> Profiler:
        return Profiler(
            pausing,
            Dataset(name="numbers", examples=examples),
            order=np.arange(inputs),
            executor=executor,
            journal=MemoryJournal(),
            cache=PrefixCache(),
        )

    with ProcessPool(PAUSING, clock, ProfilingPoolSettings(workers=2)) as workers:
        # Both workers have started, and are warm.
        fresh(workers).measure_each([(each, inputs) for each in four])
        start_s, profiler = clock.now(), fresh(workers)
        for count in range(1, inputs + 1):  # input by input, as a search asks
            one_by_one = [profiler.measure(each, count) for each in four]
        middle_s, profiler = clock.now(), fresh(workers)
        for count in range(1, inputs + 1):
            at_once = profiler.measure_each([(each, count) for each in four])
        end_s = clock.now()
    for one, other in zip(at_once, one_by_one, strict=True):
        assert one.score.tolist() == other.score.tolist()
        assert (one.runs, one.saved_runs) == (other.runs, other.saved_runs)
    assert end_s - middle_s < 0.75 * (middle_s - start_s)


@dataclass
class CountingJournal(MemoryJournal):
    records: Counter[tuple[Configuration, int]] = field(default_factory=Counter)

    def record(self, configuration: Configuration, measured: MeasuredInput) -> None:
        self.records[(configuration, measured.input)] += 1
        MemoryJournal.record(self, configuration, measured)


def _is_worker(process: psutil.Process) -> bool:
    try:
        return warm.__name__ in " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # just killed
        return False


@pytest.mark.slow
def test_killing_workers_at_random_loses_no_measurement_and_repeats_none() -> None:
    inputs = 168  # times 3 configurations: 504 measurements
    dataset = Dataset(
        name="numbers",
        examples=tuple(Example(input=float(i), expected=i + 1) for i in range(inputs)),
    )
    space = ConfigurationSpace(chain.graph)
    configurations = [space.configuration(number) for number in range(space.size)]
    journal = CountingJournal()
    stop, kills, me = threading.Event(), 0, psutil.Process()

    def kill() -> None:
        nonlocal kills
        rng = np.random.default_rng(0)
        while not stop.wait(float(rng.uniform(0.3, 1.2))):
            every_one = [*me.children(recursive=True)]
            children = [one for one in every_one if one not in me.children() and _is_worker(one)]
            if children:
                children[int(rng.integers(len(children)))].kill()
                kills += 1

    settings = ProfilingPoolSettings(workers=2, timeout_s=20.0)
    killer = threading.Thread(target=kill)
    with ProcessPool(CHAIN, SystemClock(), settings) as pool:
        order = np.arange(inputs)
        profiler = Profiler(
            chain, dataset, order=order, executor=pool, journal=journal, cache=PrefixCache()
        )
        killer.start()
        try:
            profiles = [
                profiler.measure(each, count) for count in (40, inputs) for each in configurations
            ]
        finally:
            stop.set()
            killer.join()
    truth = Profiler(
        chain,
        dataset,
        order=order,
        executor=InProcess(SystemClock()),
        journal=MemoryJournal(),
    )
    for profile in profiles[-space.size :]:
        assert np.array_equal(profile.score, truth.measure(profile.configuration, inputs).score)
    assert kills >= 5
    assert set(journal.records.values()) == {1}
    assert len(journal.records) == space.size * inputs
