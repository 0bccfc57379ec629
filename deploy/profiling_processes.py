"""An Executor that runs operators in processes of their own on this computer."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from deploy.profiling_pool import Died, PoolSettings, Run, WorkerPool
from deploy.profiling_worker import OUT_OF_MEMORY, READY, read_answer, request, serve
from pipelines.clock import Clock
from profiler.execution import Completed, Failed

_END_S = 5.0


class ProcessPool(WorkerPool):
    """Runs operators of one pipeline in worker processes, see `WorkerPool`.

    Args:
        reference: What names the pipeline, see `pipelines.registry.load_pipeline`; may be
            `module:attribute`, so it must not come over a network.
        clock: Times what a dead worker had taken.
        settings: How.
    """

    def __init__(self, reference: str, clock: Clock, settings: PoolSettings | None = None) -> None:
        settings = settings or PoolSettings()
        super().__init__(partial(_started, reference, settings), clock, settings)


@dataclass(slots=True)
class _Process:
    """A `Worker` at the other end of a pipe."""

    process: SpawnProcess
    pipe: Connection

    def run(self, run: Run, timeout_s: float) -> Completed | Failed:
        """See `Worker`."""
        # The process itself knows which runs are its first.
        data = request(run.operator.name, run.inputs, run.configuration)
        try:
            self.pipe.send_bytes(data)
            return read_answer(self.receive(timeout_s))
        except (EOFError, OSError) as error:
            raise self.death() from error

    def receive(self, timeout_s: float) -> bytes:
        """Give the next message.

        Raises:
            Died: If there is none in time.
        """
        if not self.pipe.poll(timeout_s):
            raise Died(f"took longer than {timeout_s:g} s", in_time=False)
        return self.pipe.recv_bytes()

    def death(self) -> Died:
        """Give how it ended."""
        self.process.join(_END_S)
        code = self.process.exitcode
        killed = code is not None and code < 0
        how = f"signal {-code}" if code is not None and killed else f"exit code {code}"
        how = "out of memory" if code == OUT_OF_MEMORY else how
        return Died(f"the worker process died ({how})", killed=killed)

    def end(self) -> None:
        """See `Worker`."""
        self.pipe.close()
        if (pid := self.process.pid) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # the programs that it called, too
        self.process.kill()
        self.process.join()


def _started(reference: str, settings: PoolSettings) -> _Process:
    # Spawned, not forked: threads and locks of this process are no business of its workers.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = (theirs, reference, settings.memory_bytes)
    process = context.Process(target=serve, args=arguments, daemon=True)
    process.start()
    theirs.close()
    worker = _Process(process, ours)
    try:
        is_ready = worker.receive(settings.start_timeout_s) == READY
    except (EOFError, OSError) as error:
        death = worker.death()
        worker.end()
        raise Died(f"{reference}: {death.cause}", killed=death.killed) from error
    except Died:
        worker.end()
        raise
    if not is_ready:
        worker.end()
        raise Died(f"{reference}: the worker did not greet")
    return worker
