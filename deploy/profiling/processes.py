"""An Executor that runs operators in processes of their own on this computer.

A process serves its pipe until it is closed. It has one numeric thread and a limit on memory, and
times what it runs itself, so that waiting for it is not counted. Requests and answers are encoded
payloads: nothing is unpickled.

    request   {operator, settings of the operator, inputs}
    answer    the fields of `Completed` or `FailedRun`
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, cast

from threadpoolctl import threadpool_limits

from circinus.deploy.profiling.pool import Died, WorkerPool, WorkerRun
from circinus.deploy.workers.process import limit_memory
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.payload import Payload, decode, encode
from circinus.pipelines.registry import load_pipeline
from circinus.profiler.execution import Completed, FailedRun, InProcess

_END_S = 5.0
_READY = b"ready"
_OUT_OF_MEMORY = 12  # exit code of a process whose limit has no room for a request


class ProcessPool(WorkerPool):
    """Runs operators of one pipeline in worker processes, see `WorkerPool`.

    The reference may be `module:attribute`, so it must not come over a network.
    """

    def start(self) -> _Process:
        """See `WorkerPool`."""
        # Spawned, not forked: threads and locks of this process are no business of its workers.
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self._reference, self._settings.memory_bytes)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        worker = _Process(process, ours)
        try:
            worker.receive(self._settings.start_timeout_s)  # its greeting
        except (EOFError, OSError) as error:
            death = worker.death()
            worker.end()
            raise Died(f"{self._reference}: {death.cause}", killed=death.killed) from error
        except Died:
            worker.end()
            raise
        return worker


@dataclass(slots=True)
class _Process:
    """A `ProfilingWorker` at the other end of a pipe."""

    process: SpawnProcess
    pipe: Connection

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        data = request(run)
        try:
            self.pipe.send_bytes(data)
            return read_answer(self.receive(timeout_s))
        except (EOFError, OSError) as error:
            raise self.death() from error

    def receive(self, timeout_s: float) -> bytes:
        """Give the next message; Died if there is none in time."""
        if not self.pipe.poll(timeout_s):
            raise Died(f"took longer than {timeout_s:g} s", in_time=False)
        return self.pipe.recv_bytes()

    def death(self) -> Died:
        self.process.join(_END_S)
        code = self.process.exitcode
        killed = code is not None and code < 0
        how = f"signal {-code}" if code is not None and killed else f"exit code {code}"
        how = "out of memory" if code == _OUT_OF_MEMORY else how
        return Died(f"the worker process died ({how})", killed=killed)

    def end(self) -> None:
        self.pipe.close()
        if (pid := self.process.pid) is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # the programs that it called, too
        self.process.kill()
        self.process.join()


def request(run: WorkerRun) -> bytes:
    """Give the request for a run; InvalidInput if the inputs are no payload."""
    name = run.operator.name
    settings: dict[str, Payload] = {**run.configuration.of(name)}
    return encode({"operator": name, "settings": settings, "inputs": run.inputs})


def read_answer(data: bytes) -> Completed | FailedRun:
    """Give what a worker answered."""
    answer = cast("dict[str, Any]", decode(data))
    return FailedRun(**answer) if "cause" in answer else Completed(**answer)


class Answering:
    """A loaded pipeline that answers requests, with one numeric thread.

    The process may have `memory_bytes` beyond what it has once the pipeline is loaded; None: any.
    """

    def __init__(self, reference: str, memory_bytes: int | None) -> None:
        self._pipeline = load_pipeline(reference, allow_import=True)
        if self._pipeline.prepare is not None:
            self._pipeline.prepare()
        threadpool_limits(1)
        torch = sys.modules.get("torch")
        if torch is not None:  # loaded by the pipeline; threadpoolctl does not know its pool
            torch.set_num_threads(1)
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        self._executor = InProcess(SystemClock())

    def ready(self) -> bool:
        """Give True: it is loaded."""
        return True

    def answer(self, data: bytes) -> bytes:
        """Give the answer to a request."""
        asked = cast("dict[str, Any]", decode(data))
        operator = self._pipeline.by_name[asked["operator"]]
        knobs = ((operator.name, knob, value) for knob, value in asked["settings"].items())
        done = self._executor.run(operator, asked["inputs"], Configuration(tuple(knobs)))
        return encode({field.name: getattr(done, field.name) for field in fields(done)})


def _serve(pipe: Connection, reference: str, memory_bytes: int | None) -> None:
    os.setpgid(0, 0)  # programs that operators call end with this process: see `_Process.end`
    answering = Answering(reference, memory_bytes)
    with contextlib.suppress(EOFError, OSError):  # the profiler is gone: nobody to answer
        pipe.send_bytes(_READY)
        try:
            while True:
                pipe.send_bytes(answering.answer(pipe.recv_bytes()))
        except MemoryError:  # half of a message may be in the pipe: a new worker starts afresh
            sys.exit(_OUT_OF_MEMORY)
