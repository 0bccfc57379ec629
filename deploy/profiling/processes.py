"""An Executor that runs operators in processes of their own on this computer.

A process serves its channel until it is closed. It has one numeric thread and a limit on memory,
and times what it runs itself, so that waiting for it is not counted. Requests and answers are
encoded payloads: nothing is unpickled. An answer that is none, or belongs to another request, ends
its process: that costs a run, as any other end does.

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
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from threadpoolctl import threadpool_limits

from circinus.deploy.profiling.calls import (
    Answered,
    AskingGate,
    CallingSide,
    asking_caller,
    endpoints_of,
)
from circinus.deploy.profiling.channel import Channel, Garbled
from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerPool, WorkerRun
from circinus.deploy.profiling.reaper import Reaper, kill_group
from circinus.deploy.profiling.warm import STARTER
from circinus.deploy.workers.process import (
    busy_s,
    forget_peak,
    limit_memory,
    operator_environment,
    peak_bytes,
    without_secrets,
)
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.execution.calling import EndpointCaller, OpenGate, PermitGate
from circinus.pipelines.execution.connections import runs_operators_alone
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.model.profile import UNPLANNABLE
from circinus.pipelines.registry import load_pipeline
from circinus.profiler.execution import Completed, FailedRun, calls, run_calling, run_once

_END_S = 5.0
_REST_S = 0.0003
"""Before a run: for as long others have the processor and its caches, as between two requests. Run
after run operators are a quarter faster than they serve (ADR 0071 has figures of other rests)."""
_LOOK_S = 0.1  # between two looks at whether to stop
_READY = b"ready"
_OUT_OF_MEMORY, _CLOSED = 12, 13
_ENDINGS = {_OUT_OF_MEMORY: "out of memory", _CLOSED: "an operator closed its descriptors"}
"""Of a process, by its exit code: its limit has no room for a request, or it has no channel."""


class ProcessPool(WorkerPool):
    """Runs operators of one pipeline in worker processes, see `WorkerPool`.

    The reference may be `module:attribute`, so it must not come over a network. Workers end with
    this process, also when it is killed.
    """

    is_local = True

    def __init__(
        self,
        reference: str,
        clock: Clock,
        settings: ProfilingPoolSettings | None = None,
        *,
        calling: CallingSide | None = None,  # None: there is nothing to call
    ) -> None:
        super().__init__(reference, clock, settings)
        self._side = calling or CallingSide(endpoints={}, gate=OpenGate())
        self._held = contextlib.ExitStack()
        self._held.enter_context(STARTER.used())

    def close(self) -> None:
        """See `WorkerPool`."""
        super().close()
        self._held.close()

    def start(self) -> _Process:
        """See `WorkerPool`; Stopped if it is over before the pipeline is loaded."""
        try:
            worker = self._process()
        except OSError as error:
            raise Died(f"{self._reference}: {error}", killed=True) from error
        try:
            worker.greeted(self._settings.start_timeout_s, self.is_over)
        except (EOFError, OSError, Garbled) as error:
            death = worker.death(error)
            worker.end()
            raise Died(f"{self._reference}: {death.cause}", killed=death.killed) from error
        except (Died, Stopped):
            worker.end()
            raise
        return worker

    def _process(self) -> _Process:
        asked: dict[str, Payload] = {
            "reference": self._reference,
            "memory_bytes": self._settings.memory_bytes,
            "endpoints": self._side.document,
            "longest_s": self._settings.timeout_s,
        }
        process, channel = STARTER.start(__name__, asked)
        gate, heard = self._side.gate, self.heard_peak
        return _Process(process.pid, process.wait, channel, gate, self._clock, heard)


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
        self._reaper = Reaper(operator_environment())
        self._held.callback(self._reaper.close)

    def _process(self) -> _Process:
        ours, theirs = Channel.pair()

        def serve() -> None:
            ours.close()
            channel = Channel(theirs)
            self._reaper.watch(os.getpid())
            self._reaper.forget()
            os.setpgid(0, 0)  # programs that operators call end with this process
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
            with without_secrets():
                caller = _caller(channel, self._side.endpoints, self._settings.timeout_s)
                memory_bytes = self._settings.memory_bytes
                _answer_all(channel, lambda: Answering(self._pipeline, memory_bytes, caller))

        process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
        with _interrupts_blocked():  # until it leads a group of its own
            process.start()
        theirs.close()

        def wait(timeout_s: float | None = None) -> int | None:
            process.join(timeout_s)
            if process.exitcode is not None:
                self._reaper.release(process.pid or 0)
            return process.exitcode

        def heard(_run: WorkerRun, _peak_bytes: int) -> None:
            """Forget it: what this process has is in it, and would be in no deployed worker."""

        return _Process(process.pid or 0, wait, ours, self._side.gate, self._clock, heard)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(slots=True)
class _Process:
    """A `ProfilingWorker` at the other end of a channel."""

    pid: int
    wait: Callable[[float | None], int | None]  # at most so many seconds, for its exit code
    channel: Channel
    gate: PermitGate  # gives leave to call
    clock: Clock
    heard_peak: Callable[[WorkerRun, int], None]  # hears of the memory that a run took

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        data = request(run)
        longest_wait_s = run.operator.retries.longest_wait_s
        calling = Answered(self.gate, self.clock, timeout_s, longest_wait_s)
        try:
            self.channel.ask(data, timeout_s)
            while True:
                answer = cast("dict[str, Any]", decode(self.receive(calling.limit_s)))
                if "ask" not in answer:
                    self.heard_peak(run, answer["peak_bytes"])
                    return _done(answer)
                calling.answer(answer, self.channel.send)
        except (EOFError, OSError, Garbled) as error:
            death = self.death(error)
            raise replace(death, used=calling.lost(), waited_s=calling.waited_s) from error
        except Died as late:
            raise replace(late, used=calling.lost(), waited_s=calling.waited_s) from late
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            cause = f"the worker process gave no answer ({type(error).__name__}: {error})"
            raise Died(cause, used=calling.lost(), waited_s=calling.waited_s) from error
        except BaseException:
            calling.lost()
            raise

    def greeted(self, timeout_s: float, over: Callable[[], bool]) -> None:
        """Return when it has loaded; Died if it does not in time, Stopped if it is over before."""

        def ended() -> bool:
            if over():
                raise Stopped("the pipeline was not loaded yet")
            return self.has_ended()

        self.receive(timeout_s, ended)

    def receive(self, timeout_s: float, ended: Callable[[], bool] | None = None) -> bytes:
        """Return the next message; Died if there is none in time."""
        try:
            return self.channel.receive(timeout_s, ended or self.has_ended)
        except TimeoutError as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error

    def has_ended(self) -> bool:
        return self.wait(0.0) is not None

    def death(self, error: Exception) -> Died:
        """Return how it ended, or what else ended its connection."""
        if isinstance(error, TimeoutError):
            return Died("the worker process took no request", in_time=False)
        if isinstance(error, Garbled):
            return Died(f"the worker process gave no answer ({error})")
        code = self.wait(_END_S)
        killed = code is not None and code < 0
        how = f"signal {-code}" if code is not None and killed else f"exit code {code}"
        how = _ENDINGS.get(code or 0, how)
        return Died(f"the worker process died ({how})", killed=killed)

    def end(self) -> None:
        kill_group(self.pid)  # the programs that it called, too
        self.wait(_END_S)
        self.channel.close()


def request(run: WorkerRun) -> bytes:
    """Return the request for a run; InvalidInput if the inputs are no payload."""
    name = run.operator.name
    settings: dict[str, Payload] = {**run.configuration.of(name)}
    return encode({"operator": name, "settings": settings, "inputs": run.inputs})


def read_answer(data: bytes) -> Completed | FailedRun:
    """Return what a worker answered."""
    return _done(cast("dict[str, Any]", decode(data)))


def _done(answer: dict[str, Any]) -> Completed | FailedRun:
    answer["used"], answer["hosts"] = Usage(*answer["used"]), tuple(answer["hosts"])
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
        runs_operators_alone()
        if isinstance(pipeline, str):
            pipeline = load_pipeline(pipeline, allow_import=True)
        self._pipeline = pipeline
        self._pipeline.make_ready()
        threadpool_limits(1)
        torch = sys.modules.get("torch")
        if torch is not None:  # loaded by the pipeline; threadpoolctl does not know its pool
            torch.set_num_threads(1)
        if memory_bytes is not None:
            limit_memory(memory_bytes)
        self._loading_bytes = peak_bytes()
        self._clock = SystemClock()

    def ready(self) -> bool:
        """Return True: it is loaded."""
        return True

    def answer(self, data: bytes) -> bytes:
        """Return the answer to a request."""
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
        told |= {"used": list(done.used), "hosts": list(done.hosts), "peak_bytes": peak}
        return encode(told)

    def _run(
        self, operator: Operator, inputs: Payload, settings: Configuration
    ) -> Completed | FailedRun:
        if not calls(operator, settings):
            self._clock.sleep(_REST_S)
            return run_once(self._clock, operator, inputs, settings, busy_s)
        if self._caller is None:
            cause = f"{UNPLANNABLE}it calls endpoints, which it cannot here"
            return FailedRun(cause=cause, spent_s=0.0)
        return run_calling(self._caller, operator, inputs, settings)


def _caller(
    channel: Channel, endpoints: Mapping[str, Endpoint], longest_s: float
) -> EndpointCaller:
    gate = AskingGate(channel.send, channel.receive)
    return asking_caller(gate, endpoints, SystemClock(), longest_s)


def _answer_all(channel: Channel, load: Callable[[], Answering]) -> None:
    os.dup2(2, 1)  # what operators print is no result of the command that plans
    sys.stdout = sys.stderr
    answering = load()
    try:
        channel.send(_READY)
        while True:
            channel.send(answering.answer(channel.requested()))
    except (EOFError, ConnectionError):  # the profiler is gone: nobody to answer
        return
    except OSError:
        sys.exit(_CLOSED)
    except MemoryError:  # half of a message may be in the channel: a new worker starts afresh
        sys.exit(_OUT_OF_MEMORY)


def serve(channel: Channel, asked: dict[str, Any]) -> None:
    """Answer requests, see `warm`."""
    caller = _caller(channel, endpoints_of(asked["endpoints"]), asked["longest_s"])
    _answer_all(channel, lambda: Answering(asked["reference"], asked["memory_bytes"], caller))
