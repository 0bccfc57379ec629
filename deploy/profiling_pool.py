"""An Executor over workers of any kind: processes, Ray actors, deployed gRPC workers.

An operator that never ends, eats all memory or takes its worker down then costs one
measurement, not the search. The one rule: every run ends, with an answer or with a cause.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Protocol, Self

from pipelines import checks
from pipelines.clock import Clock
from pipelines.configuration import Configuration
from pipelines.errors import InvalidInput, Unavailable
from pipelines.operators import KnobValue, Operator
from pipelines.payload import Payload
from profiler.execution import Completed, Failed
from profiler.read_only import freeze

_STARTS = 2
"""A worker that ended by itself so often while it loaded the pipeline will not come up."""

_KILLED_STARTS = 20
"""The same, of workers that were killed from outside while they loaded it."""

_RUNS = 3
"""A run whose worker died gets another worker: what so many die of is the run."""

_RETRY_AFTER_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """How a pool runs operators.

    Attributes:
        workers: Processes, `>= 1`. More than cores would time each other's waiting.
        timeout_s: Most seconds of one call, `> 0`; a first call is made twice and has twice.
        memory_bytes: Most memory of a worker beyond the loaded pipeline; None: any.
        start_timeout_s: Most seconds until a worker has loaded the pipeline, `> 0`.
    """

    workers: int = 1
    timeout_s: float = 60.0
    memory_bytes: int | None = 2 * 2**30
    start_timeout_s: float = 120.0

    def __post_init__(self) -> None:
        checks.require(self.workers >= 1, "workers", "must be >= 1", self.workers)
        checks.positive("timeout_s", self.timeout_s)
        checks.positive("start_timeout_s", self.start_timeout_s)
        if self.memory_bytes is not None:
            checks.positive("memory_bytes", self.memory_bytes)


class Died(Exception):
    """A worker ended, or gave no answer in time.

    Attributes:
        cause: How, in words.
        in_time: Whether it ended before the time for the answer was over.
        killed: Whether it was ended from outside.
    """

    def __init__(self, cause: str, *, in_time: bool = True, killed: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.in_time = in_time
        self.killed = killed


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run to make.

    Attributes:
        operator: Which.
        inputs: For it.
        configuration: Its knobs.
        is_first: Whether it is to be made twice and the second one timed.
    """

    operator: Operator
    inputs: Payload
    configuration: Configuration
    is_first: bool


class Worker(Protocol):
    """Runs operators of a loaded pipeline, one at a time, for one thread at a time."""

    def run(self, run: Run, timeout_s: float) -> Completed | Failed:
        """Give what a run gives.

        Raises:
            Died: If the worker ends, or the run takes longer than `timeout_s`.
            InvalidInput: If the inputs are no payload.
        """

    def end(self) -> None:
        """End it, whatever it does; it may have ended already."""


_Settings = tuple[str, tuple[tuple[str, KnobValue], ...]]


@dataclass(slots=True)
class _Place:
    """Where a worker is, or will be."""

    worker: Worker | None
    warm: set[_Settings]


class WorkerPool:
    """Runs operators of one pipeline in workers, see `Executor`.

    Workers are started when first needed. As many threads as there are workers may call `run`
    at once. A context manager: it ends its workers.

    Args:
        start: Gives a worker that has loaded the pipeline; raises `Died` when it did not.
        clock: Times what a dead worker had taken.
        settings: How.
    """

    def __init__(
        self, start: Callable[[], Worker], clock: Clock, settings: PoolSettings | None = None
    ) -> None:
        self._start = start
        self._clock = clock
        self._settings = settings or PoolSettings()
        self._places: queue.Queue[_Place] = queue.Queue()
        for _ in range(self._settings.workers):
            self._places.put(_Place(None, set()))
        self.deaths: list[str] = []
        """Causes of the workers that died or were killed, oldest first."""

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all workers."""
        self.close()

    @property
    def width(self) -> int:
        """Number of workers."""
        return self._settings.workers

    def run(
        self, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        """Give what the operator makes of the inputs, see `Executor`.

        Raises:
            Unavailable: If no worker comes up.
        """
        place = self._places.get()
        try:
            return self._run(place, operator, inputs, configuration)
        except InvalidInput as error:
            return Failed(cause=str(error), spent_s=0.0)
        finally:
            self._places.put(place)

    def close(self) -> None:
        """End all workers; runs that are under way end first."""
        places = [self._places.get() for _ in range(self._settings.workers)]
        for place in places:
            self._empty(place)
            self._places.put(place)

    def _run(
        self, place: _Place, operator: Operator, inputs: Payload, configuration: Configuration
    ) -> Completed | Failed:
        key = (operator.name, tuple(configuration.of(operator.name).items()))
        spent_s, cause = 0.0, ""
        for _ in range(_RUNS):
            worker = place.worker = place.worker or self._started()
            run = Run(
                operator=operator,
                inputs=inputs,
                configuration=configuration,
                is_first=key not in place.warm,
            )
            start_s = self._clock.now()
            try:
                done = worker.run(run, (2 if run.is_first else 1) * self._settings.timeout_s)
            except Died as death:
                spent_s += self._clock.now() - start_s
                cause = death.cause
                self.deaths.append(f"{operator.name}: {cause}")
                self._empty(place)
                if not death.in_time:
                    break
            else:
                if isinstance(done, Completed):
                    place.warm.add(key)
                    freeze(done.output)
                return replace(done, spent_s=done.spent_s + spent_s)
        return Failed(cause=cause, spent_s=spent_s)

    def _empty(self, place: _Place) -> None:
        if place.worker is not None:
            place.worker.end()
        place.worker = None
        place.warm.clear()

    def _started(self) -> Worker:
        ended = killed = 0
        cause = ""
        while ended < _STARTS and killed < _KILLED_STARTS:
            try:
                return self._start()
            except Died as death:
                cause = death.cause
                self.deaths.append(f"start: {cause}")
                # One that is not there in time would not be the next time either.
                ended += 0 if death.killed else 1 if death.in_time else _STARTS
                killed += death.killed
        raise Unavailable(
            f"no worker could load the pipeline: {cause}", retry_after_s=_RETRY_AFTER_S
        )
