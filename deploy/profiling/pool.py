"""An Executor over workers of any kind: processes, Ray actors, deployed gRPC workers.

An operator that never ends, eats all memory or takes its worker down then costs one
measurement, not the search. The one rule: every run ends, with an answer or with a cause.
"""

from __future__ import annotations

import os
import queue
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Event, Thread
from typing import Protocol, Self

from circinus.deploy.profiling.load import CallsAtOnce
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, Waits
from circinus.pipelines.errors import InvalidInput, Stopped, Unavailable
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.operators import KnobValue, Operator
from circinus.pipelines.model.payload import Payload
from circinus.profiler.execution import Completed, FailedRun, both_paid, calls, compared, freeze

_STARTS = 2  # a worker that ended by itself so often while loading will not come up
_KILLED_STARTS = 20  # the same, of workers that were killed from outside
_RUNS = 3  # a run whose worker died gets another worker: what so many die of is the run
_RETRY_AFTER_S = 60.0
_LOOK_S = 0.1  # between two looks at whether to stop
# Of the causes of failed runs.
_NO_MEMORY = re.compile(r"^\w*MemoryError\b|\bout of memory\b|\bfailed to allocate memory\b")
_USED_UP = re.compile(rf"{_NO_MEMORY.pattern}|\[Errno 24\]|can't start new thread")
"""Likewise: what a worker has had by then of memory, descriptors or threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingPoolSettings:
    """How a pool runs operators."""

    workers: int = 1  # processes, `>= 1`
    # runs at once of operators that do not call endpoints, `>= 1`; None: as many as workers. Never
    # more than cores: they would time each other's waiting
    at_once: int | None = None
    timeout_s: float = 60.0  # of one run; of one that calls, of each attempt, `> 0`
    memory_bytes: int | None = 2 * 2**30  # beyond the loaded pipeline; None: any
    start_timeout_s: float = 120.0  # most seconds until a worker has loaded the pipeline, `> 0`

    def __post_init__(self) -> None:
        checks.at_least("workers", self.workers, 1)
        checks.at_least("at_once", self.at_once, 1)
        checks.positive("timeout_s", self.timeout_s)
        checks.positive("start_timeout_s", self.start_timeout_s)
        checks.positive("memory_bytes", self.memory_bytes)


@dataclass(eq=False)
class Died(Exception):
    """A worker ended, or gave no answer in time."""

    cause: str  # in words
    in_time: bool = field(default=True, kw_only=True)  # before the time for the answer was over
    killed: bool = field(default=False, kw_only=True)  # from outside
    waited_s: float = field(default=0.0, kw_only=True)  # of its time, for leave to call
    # of endpoints, by the run that it ended, the most that it may have been for the last attempt
    used: Usage = field(default=NOTHING_USED, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRun:
    """One run to make."""

    operator: Operator
    inputs: Payload
    configuration: Configuration
    is_warm_up: bool  # the first one of an operator with its settings, whose seconds do not count


class ProfilingWorker(Protocol):
    """Runs operators of a loaded pipeline, one at a time, for one thread at a time."""

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        """Return the result of a run; InvalidInput if the inputs are no payload.

        Raises Stopped, Unaffordable for one, if it calls endpoints and gets no leave to.
        Raises Died if the worker ends, or the run takes longer than `timeout_s`.
        """

    def end(self) -> None:
        """End it, whatever it does; it may have ended already."""


OperatorSettings = tuple[str, tuple[tuple[str, KnobValue], ...]]


def _settings_of(name: str, configuration: Configuration) -> OperatorSettings:
    return name, tuple(configuration.of(name).items())


@dataclass(slots=True)
class _Place:
    """Where a worker is, or will be, and the operators and settings that it ran already."""

    worker: ProfilingWorker | None = None
    running: str = ""  # the operator; empty: none
    warm: set[OperatorSettings] = field(default_factory=set)

    def empty(self) -> None:
        if self.worker is not None:
            self.worker.end()
        self.worker = None
        self.warm.clear()


class WorkerPool(ABC):
    """Runs operators of one pipeline in workers, see `Executor`.

    The reference names the pipeline, see `pipelines.registry.load_pipeline`. Workers are started
    when first needed. As many threads as there are workers may call `run` at once. The clock times
    what a dead worker had taken. A context manager: it ends its workers.
    """

    is_local = False
    """Whether workers have the processors of this machine."""

    def __init__(
        self, reference: str, clock: Clock, settings: ProfilingPoolSettings | None = None
    ) -> None:
        self._reference = reference
        self._clock = clock
        self._settings = settings or ProfilingPoolSettings()
        self._every = [_Place() for _ in range(self._settings.workers)]
        self._places: queue.Queue[_Place] = queue.Queue()
        for place in self._every:
            self._places.put(place)
        cores = len(os.sched_getaffinity(0)) if self.is_local else self._settings.workers
        self.at_once = min(self._settings.at_once or self._settings.workers, cores)
        """Runs at once of operators that compute, at most as many as cores."""
        self._computing = BoundedSemaphore(self.at_once)
        self._calling = CallsAtOnce(clock, least=cores)
        self.waits = Waits(clock)
        """What was waited for."""
        self.longest_s = self._settings.timeout_s
        """Of a run that calls no endpoint, at most `timeout_s`; what profiling may take, say."""
        self._closed = Event()
        self._over: Callable[[], bool] = lambda: False
        self._stopped = False  # whether it was over
        self.peaks: dict[OperatorSettings, int] = {}
        """Most bytes that a worker had while it ran an operator with its settings."""
        self.deaths: list[str] = []
        """Causes of the workers that died or were killed, oldest first."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def record_peak(self, run: WorkerRun, peak_bytes: int) -> None:
        """Record the most memory that a worker had while it made a run."""
        key = _settings_of(run.operator.name, run.configuration)
        self.peaks[key] = max(peak_bytes, self.peaks.get(key, 0))

    def memory_of(self, names: Iterable[str], configuration: Configuration) -> dict[str, int]:
        """Return operator -> most bytes that a worker had; what did not run so is left out."""
        keys = {name: _settings_of(name, configuration) for name in names}
        return {name: self.peaks[key] for name, key in keys.items() if key in self.peaks}

    @abstractmethod
    def start(self) -> ProfilingWorker:
        """Return a worker that has loaded the pipeline, or raise Died."""

    def stop_when(self, over: Callable[[], bool]) -> None:
        """End what runs, which raises Stopped, soon after `over` is true; a thread polls it."""
        self._over = over
        Thread(target=self._watch, name="pool-watch", daemon=True).start()

    def is_over(self) -> bool:
        """Return whether nothing is to be run any more."""
        self._stopped = self._stopped or self._over()
        return self._stopped

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_S):
            if self.is_over():
                for place in self._every:
                    if place.running and place.worker is not None:
                        place.worker.end()

    @property
    def width(self) -> int:
        """Number of workers."""
        return self._settings.workers

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        """Return what it makes of the inputs, see `Executor`; Unavailable if no worker comes up.

        Raises Stopped if it is over, see `stop_when`, or there is no leave to call.
        """
        with self._calling if calls(operator, configuration) else self._computing:
            return self._placed(operator, inputs, configuration)

    def _placed(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        place = self._places.get()
        try:
            place.running = operator.name
            return self._run(place, operator, inputs, configuration)
        except InvalidInput as error:
            return FailedRun(cause=str(error), spent_s=0.0)
        finally:
            place.running = ""
            self._places.put(place)

    def close(self) -> None:
        """End all workers; runs that are under way end first."""
        self._closed.set()
        for place in [self._places.get() for _ in range(self.width)]:
            place.empty()
            self._places.put(place)

    def _run(
        self, place: _Place, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | FailedRun:
        key = _settings_of(operator.name, configuration)
        spent_s, cause, used = 0.0, "", NOTHING_USED
        calling = calls(operator, configuration)
        runs = min(operator.retries.attempts, _RUNS) if calling else _RUNS  # calls were paid for
        for _ in range(runs):
            if self.is_over():
                raise Stopped(f"{operator.name} was not run any more")
            is_new = place.worker is None
            worker = place.worker = place.worker or self._started()
            run = WorkerRun(
                operator=operator,
                inputs=inputs,
                configuration=configuration,
                is_warm_up=not calling and key not in place.warm,
            )
            start_s = self._clock.now()
            try:
                longest_s = self._settings.timeout_s if calling else self.longest_s
                done = self._made(worker, run, longest_s)
            except Died as death:
                spent_s += max(self._clock.now() - start_s - death.waited_s, 0.0)
                cause, used = death.cause, used.plus(death.used)
                place.empty()
                if self._stopped:
                    reason = f"{operator.name} was ended after {spent_s:.1f} s"
                    calls_s = spent_s if calling else 0.0
                    raise Stopped(reason, spent_s=spent_s, calls_s=calls_s) from death
                self.deaths.append(f"{operator.name}: {cause}")
                if not death.in_time:
                    break
                continue
            spent_s += done.spent_s
            if isinstance(done, Completed):
                place.warm.add(key)
                freeze(done.output)
            elif _USED_UP.search(done.cause):
                place.empty()  # what earlier runs left there is no fault of this one
                if not is_new:
                    cause, used = done.cause, used.plus(done.used)
                    continue
            return self._explained(replace(done, spent_s=spent_s))
        return self._explained(FailedRun(cause=cause, spent_s=spent_s, used=used))

    def _made(
        self, worker: ProfilingWorker, run: WorkerRun, longest_s: float
    ) -> Completed | FailedRun:
        """Return the result of a run; one that is a warm-up is made again, and paid for twice."""
        done = worker.run(run, longest_s)
        if not run.is_warm_up or isinstance(done, FailedRun):
            return done
        again = worker.run(replace(run, is_warm_up=False), longest_s)
        return compared(run.operator, done, both_paid(done, again))

    def _explained(self, done: Completed | FailedRun) -> Completed | FailedRun:
        """Name the limit in the cause where memory was not enough."""
        limit = self._settings.memory_bytes
        if isinstance(done, Completed) or limit is None or not _NO_MEMORY.search(done.cause):
            return done
        rule = f"CIRCINUS_CALL_MEMORY_BYTES allows {limit} bytes beyond the loaded pipeline"
        return replace(done, cause=f"{done.cause}: {rule}")

    def _started(self) -> ProfilingWorker:
        ended = killed = 0
        cause = ""
        while ended < _STARTS and killed < _KILLED_STARTS:
            try:
                with self.waits.during("workers to start"):
                    return self.start()
            except Died as death:
                cause = death.cause
                self.deaths.append(f"start: {cause}")
                # One that is not there in time would not be the next time either.
                ended += 0 if death.killed else 1 if death.in_time else _STARTS
                killed += death.killed
        reason = f"no worker could load the pipeline: {cause}"
        raise Unavailable(reason, retry_after_s=_RETRY_AFTER_S)
