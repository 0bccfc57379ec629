"""An Executor that runs operators in processes of their own.

An operator that never ends, eats all memory or takes its process down then costs one
measurement, not the search. The one rule: every run ends, with an answer or with a cause.
"""

from __future__ import annotations

import multiprocessing
import queue
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from types import TracebackType

from deploy.profiling_worker import READY, read_answer, request, serve
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
_END_S = 5.0


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


class _Died(Exception):
    """A worker ended, or gave no answer in time and was killed."""

    def __init__(self, cause: str, *, in_time: bool = True) -> None:
        super().__init__(cause)
        self.cause = cause
        self.in_time = in_time


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    warm: set[tuple[str, tuple[tuple[str, KnobValue], ...]]] = field(default_factory=set)

    def exchange(self, data: bytes, timeout_s: float) -> bytes:
        """Give the answer to a request.

        Raises:
            _Died: If the worker does.
        """
        try:
            self.pipe.send_bytes(data)
            return self.receive(timeout_s)
        except (EOFError, OSError) as error:
            self.process.join(_END_S)
            raise _Died(self.how_it_ended()) from error

    def how_it_ended(self) -> str:
        code = self.process.exitcode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return f"the worker process died ({how})"

    def receive(self, timeout_s: float) -> bytes:
        if not self.pipe.poll(timeout_s):
            raise _Died(f"took longer than {timeout_s:g} s", in_time=False)
        return self.pipe.recv_bytes()

    def end(self) -> None:
        self.pipe.close()
        self.process.kill()
        self.process.join()


class ProcessPool:
    """Runs operators of one pipeline in worker processes, see `Executor`.

    Workers are started when first needed. As many threads as there are workers may call `run`
    at once. A context manager: it ends its workers.

    Args:
        reference: What names the pipeline, see `pipelines.registry.load_pipeline`; may be
            `module:attribute`, so it must not come over a network.
        clock: Times what a dead worker had taken.
        settings: How.
    """

    def __init__(self, reference: str, clock: Clock, settings: PoolSettings | None = None) -> None:
        self._reference = reference
        self._clock = clock
        self._settings = settings or PoolSettings()
        self._idle: queue.Queue[_Worker | None] = queue.Queue()
        for _ in range(self._settings.workers):
            self._idle.put(None)
        self.deaths: list[str] = []
        """Causes of the workers that died or were killed, oldest first."""

    def __enter__(self) -> ProcessPool:
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
        try:
            data = request(operator.name, inputs, configuration)
        except InvalidInput as error:
            return Failed(cause=str(error), spent_s=0.0)
        key = (operator.name, tuple(configuration.of(operator.name).items()))
        worker = self._idle.get()
        try:
            spent_s, cause = 0.0, ""
            for _ in range(_RUNS):
                worker = worker or self._started()
                start_s = self._clock.now()
                try:
                    done = self._once(worker, data, key)
                    return replace(done, spent_s=done.spent_s + spent_s)
                except _Died as death:
                    spent_s += self._clock.now() - start_s
                    cause = death.cause
                    self.deaths.append(f"{operator.name}: {cause}")
                    worker.end()
                    worker = None
                    if not death.in_time:
                        break
            return Failed(cause=cause, spent_s=spent_s)
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End all workers; runs that are under way end first."""
        for _ in range(self._settings.workers):
            worker = self._idle.get()
            if worker is not None:
                worker.end()
        for _ in range(self._settings.workers):
            self._idle.put(None)

    def _once(
        self, worker: _Worker, data: bytes, key: tuple[str, tuple[tuple[str, KnobValue], ...]]
    ) -> Completed | Failed:
        calls = 1 if key in worker.warm else 2
        done = read_answer(worker.exchange(data, calls * self._settings.timeout_s))
        if isinstance(done, Completed):
            worker.warm.add(key)
            freeze(done.output)
        return done

    def _started(self) -> _Worker:
        ended = killed = 0
        while ended < _STARTS and killed < _KILLED_STARTS:
            worker = self._start()
            cause = "no greeting"
            try:
                if worker.receive(self._settings.start_timeout_s) == READY:
                    return worker
            except _Died as death:
                cause, ended = death.cause, _STARTS
            except (EOFError, OSError):
                worker.process.join(_END_S)
                cause = worker.how_it_ended()
            by_itself = (worker.process.exitcode or 0) >= 0
            ended, killed = ended + by_itself, killed + (not by_itself)
            self.deaths.append(f"start: {cause}")
            worker.end()
        message = f"no worker could load the pipeline {self._reference}: {self.deaths[-1]}"
        raise Unavailable(message, retry_after_s=_RETRY_AFTER_S)

    def _start(self) -> _Worker:
        # Spawned, not forked: threads and locks of this process are no business of its workers.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self._reference, self._settings.memory_bytes)
        process = context.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours)
