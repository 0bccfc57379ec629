"""An Executor that runs operators in processes of their own on this computer.

A process serves its pipe until it is closed. It has one numeric thread and a limit on memory, and
times what it runs itself, so that waiting for it is not counted. Requests and answers are encoded
payloads: nothing is unpickled.

    request   {operator, settings of the operator, inputs}
    answer    the fields of `Completed` or `FailedRun`, and `peak_bytes`: the most memory that the
              process had while it ran the operator or loaded the pipeline

Between the two an operator that calls endpoints asks for leave, see `asking`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from multiprocessing.connection import Connection
from typing import Any, cast

from threadpoolctl import threadpool_limits

from circinus.deploy.profiling.asking import (
    Answered,
    AskingGate,
    CallingSide,
    asking_caller,
    endpoints_of,
)
from circinus.deploy.profiling.fresh_process import started_under, taken
from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerPool, WorkerRun
from circinus.deploy.profiling.reaper import Reaper, kill_group
from circinus.deploy.workers.process import forget_peak, limit_memory, peak_bytes
from circinus.deploy.workers.settings import operator_environment, without_secrets
from circinus.pipelines.calling import EndpointCaller, LeaveGate, OpenGate
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.configuration import Configuration
from circinus.pipelines.endpoints import Endpoint, Usage
from circinus.pipelines.errors import Stopped
from circinus.pipelines.operators import Operator
from circinus.pipelines.payload import Payload, decode, encode
from circinus.pipelines.pipeline import Pipeline
from circinus.pipelines.profile import UNPLANNABLE
from circinus.pipelines.registry import load_pipeline
from circinus.profiler.execution import Completed, FailedRun, calls, run_calling, run_once

_END_S = 5.0
_REST_S = 0.0003
"""Before a run: for as long others have the processor and its caches, as between two requests. Run
after run operators are a quarter faster than they serve (ADR 0071 has figures of other rests)."""
_LOOK_S = 0.1  # between two looks at whether to stop
_READY = b"ready"
_OUT_OF_MEMORY = 12  # exit code of a process whose limit has no room for a request


class ProcessPool(WorkerPool):
    """Runs operators of one pipeline in worker processes, see `WorkerPool`.

    The reference may be `module:attribute`, so it must not come over a network. Workers end with
    this process, also when it is killed.
    """

    def __init__(
        self,
        reference: str,
        clock: Clock,
        settings: ProfilingPoolSettings | None = None,
        *,
        calling: CallingSide | None = None,  # None: there is nothing to call
    ) -> None:
        super().__init__(reference, clock, settings)
        self._calling = calling or CallingSide(endpoints={}, gate=OpenGate())
        self._reaper = Reaper(operator_environment())

    def close(self) -> None:
        """See `WorkerPool`."""
        super().close()
        self._reaper.close()

    def start(self) -> _Process:
        """See `WorkerPool`; Stopped if it is over before the pipeline is loaded."""
        worker = self._process()
        try:
            worker.greeted(self._settings.start_timeout_s, self.is_over)
        except (EOFError, OSError) as error:
            death = worker.death()
            worker.end()
            raise Died(f"{self._reference}: {death.cause}", killed=death.killed) from error
        except (Died, Stopped):
            worker.end()
            raise
        return worker

    def _process(self) -> _Process:
        # Fresh, not forked: threads and locks of this process are no business of its workers.
        asked: dict[str, Payload] = {
            "reference": self._reference,
            "memory_bytes": self._settings.memory_bytes,
            "endpoints": self._calling.document,
            "longest_s": self._settings.timeout_s,
        }
        process, pipe = started_under(self._reaper, __name__, asked)

        def wait(timeout_s: float | None) -> int | None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout_s)
            return process.returncode

        gate, heard = self._calling.gate, self.heard_peak
        return _Process(process.pid, wait, pipe, self._reaper, gate, heard)


class ForkedPool(ProcessPool):
    """The same for a pipeline that fresh processes cannot import: workers are copies of this one.

    It is for pipelines made in a notebook or a shell. What this process has loaded is there at
    once; threads and locks that it holds are not copied whole, so that a worker may hang in them,
    which its time-out ends.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        clock: Clock,
        settings: ProfilingPoolSettings | None = None,
        *,
        calling: CallingSide | None = None,
    ) -> None:
        super().__init__(pipeline.name, clock, settings, calling=calling)
        self._pipeline = pipeline

    def _process(self) -> _Process:
        ours, theirs = multiprocessing.Pipe()

        def serve() -> None:
            ours.close()
            self._reaper.watch(os.getpid())
            self._reaper.forget()
            os.setpgid(0, 0)  # programs that operators call end with this process
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            with without_secrets():
                caller = _caller(theirs, self._calling.endpoints, self._settings.timeout_s)
                memory_bytes = self._settings.memory_bytes
                _answer_all(theirs, lambda: Answering(self._pipeline, memory_bytes, caller))

        process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
        with _interrupts_blocked():  # until it leads a group of its own
            process.start()
        theirs.close()

        def wait(timeout_s: float | None) -> int | None:
            process.join(timeout_s)
            return process.exitcode

        def heard(_run: WorkerRun, _peak_bytes: int) -> None:
            """Forget it: what this process has is in it, and would be in no deployed worker."""

        return _Process(process.pid or 0, wait, ours, self._reaper, self._calling.gate, heard)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Process:
    """A `ProfilingWorker` at the other end of a pipe."""

    pid: int
    wait: Callable[[float | None], int | None]  # at most so many seconds, for its exit code
    pipe: Connection
    reaper: Reaper
    gate: LeaveGate  # gives leave to call
    heard_peak: Callable[[WorkerRun, int], None]  # hears of the memory that a run took

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        data = request(run)
        longest_wait_s = run.operator.retries.longest_wait_s
        calling = Answered(self.gate, timeout_s, longest_wait_s)
        try:
            self.pipe.send_bytes(data)
            while True:
                told = cast("dict[str, Any]", decode(self.receive(calling.limit_s)))
                if "ask" not in told:
                    self.heard_peak(run, told["peak_bytes"])
                    return _done(told)
                calling.answer(told, self.pipe.send_bytes)
        except (EOFError, OSError) as error:
            raise replace(self.death(), used=calling.lost()) from error
        except Died as death:
            raise replace(death, used=calling.lost()) from death
        except BaseException:
            calling.lost()
            raise

    def greeted(self, timeout_s: float, over: Callable[[], bool]) -> None:
        """Return when it has loaded; Died if it does not in time, Stopped if it is over before."""
        left_s = timeout_s
        while not self.pipe.poll(min(_LOOK_S, left_s)):
            left_s -= _LOOK_S
            if over():
                raise Stopped("the pipeline was not loaded yet")
            if left_s <= 0:
                break
        self.receive(0)

    def receive(self, timeout_s: float) -> bytes:
        """Give the next message; Died if there is none in time."""
        if not self.pipe.poll(timeout_s):
            raise Died(f"took longer than {timeout_s:g} s", in_time=False)
        return self.pipe.recv_bytes()

    def death(self) -> Died:
        code = self.wait(_END_S)
        killed = code is not None and code < 0
        how = f"signal {-code}" if code is not None and killed else f"exit code {code}"
        how = "out of memory" if code == _OUT_OF_MEMORY else how
        return Died(f"the worker process died ({how})", killed=killed)

    def end(self) -> None:
        kill_group(self.pid)  # the programs that it called, too
        self.wait(None)
        self.reaper.release(self.pid)
        self.pipe.close()


def request(run: WorkerRun) -> bytes:
    """Give the request for a run; InvalidInput if the inputs are no payload."""
    name = run.operator.name
    settings: dict[str, Payload] = {**run.configuration.of(name)}
    return encode({"operator": name, "settings": settings, "inputs": run.inputs})


def read_answer(data: bytes) -> Completed | FailedRun:
    """Give what a worker answered."""
    return _done(cast("dict[str, Any]", decode(data)))


def _done(answer: dict[str, Any]) -> Completed | FailedRun:
    answer["used"] = Usage(*answer["used"])
    answer.pop("peak_bytes", None)
    return FailedRun(**answer) if "cause" in answer else Completed(**answer)


class Answering:
    """A loaded pipeline that answers requests, with one numeric thread.

    The process may have `memory_bytes` beyond what it has once the pipeline is loaded; None: any.
    A caller runs operators that call endpoints; None: such runs fail.
    """

    def __init__(
        self,
        pipeline: str | Pipeline,
        memory_bytes: int | None,
        caller: EndpointCaller | None = None,
    ) -> None:
        self._caller = caller
        if isinstance(pipeline, str):
            pipeline = load_pipeline(pipeline, allow_import=True)
        self._pipeline = pipeline
        if self._pipeline.prepare is not None:
            self._pipeline.prepare()
        threadpool_limits(1)
        torch = sys.modules.get("torch")
        if torch is not None:  # loaded by the pipeline; threadpoolctl does not know its pool
            torch.set_num_threads(1)
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        self._loading_bytes = peak_bytes()
        self._clock = SystemClock()

    def ready(self) -> bool:
        """Give True: it is loaded."""
        return True

    def answer(self, data: bytes) -> bytes:
        """Give the answer to a request."""
        asked = cast("dict[str, Any]", decode(data))
        operator = self._pipeline.by_name[asked["operator"]]
        knobs = ((operator.name, knob, value) for knob, value in asked["settings"].items())
        forget_peak()
        settings, start_s = Configuration(tuple(knobs)), self._clock.now()
        try:
            done = self._run(operator, asked["inputs"], settings)
        except Stopped:
            return encode({"ask": "stopped"})
        except KeyboardInterrupt:  # the operator's: nobody interrupts a worker, it is ended
            done = FailedRun(cause="KeyboardInterrupt", spent_s=self._clock.now() - start_s)
        told = {field.name: getattr(done, field.name) for field in fields(done)}
        peak = max(peak_bytes(), self._loading_bytes)
        return encode({**told, "used": list(done.used), "peak_bytes": peak})

    def _run(
        self, operator: Operator, inputs: Payload, settings: Configuration
    ) -> Completed | FailedRun:
        if not calls(operator, settings):
            self._clock.sleep(_REST_S)
            return run_once(self._clock, operator, inputs, settings)
        if self._caller is None:
            cause = f"{UNPLANNABLE}it calls endpoints, which it cannot here"
            return FailedRun(cause=cause, spent_s=0.0)
        return run_calling(self._caller, operator, inputs, settings)


def _caller(
    pipe: Connection, endpoints: Mapping[str, Endpoint], longest_s: float
) -> EndpointCaller:
    gate = AskingGate(pipe.send_bytes, pipe.recv_bytes)
    return asking_caller(gate, endpoints, SystemClock(), longest_s)


def _answer_all(pipe: Connection, load: Callable[[], Answering]) -> None:
    os.dup2(2, 1)  # what operators print is no result of the command that plans
    sys.stdout = sys.stderr
    answering = load()
    with contextlib.suppress(EOFError, OSError):  # the profiler is gone: nobody to answer
        pipe.send_bytes(_READY)
        try:
            while True:
                pipe.send_bytes(answering.answer(pipe.recv_bytes()))
        except MemoryError:  # half of a message may be in the pipe: a new worker starts afresh
            sys.exit(_OUT_OF_MEMORY)


def _main(descriptor: str) -> None:
    pipe, asked = taken(descriptor)
    caller = _caller(pipe, endpoints_of(asked["endpoints"]), asked["longest_s"])
    _answer_all(pipe, lambda: Answering(asked["reference"], asked["memory_bytes"], caller))


if __name__ == "__main__":
    _main(*sys.argv[1:])
