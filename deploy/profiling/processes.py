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
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, cast

from threadpoolctl import threadpool_limits

from circinus.deploy.profiling.calls import (
    Answered,
    CallingSide,
    caller_of,
)
from circinus.deploy.profiling.channel import Channel, Garbled
from circinus.deploy.profiling.isolated import Child, ChildFailed, Forker
from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerPool, WorkerRun
from circinus.deploy.profiling.warm import STARTER
from circinus.deploy.workers.options import endpoints_from
from circinus.deploy.workers.process import (
    busy_s,
    forget_peak,
    limit_memory,
    peak_bytes,
)
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import InvalidInput, Stopped
from circinus.pipelines.execution.calling import EndpointCaller, OpenGate, PermitGate
from circinus.pipelines.execution.connections import runs_operators_alone
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.operators import Operator
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.model.profile import UNPLANNABLE
from circinus.pipelines.registry import load_pipeline
from circinus.profiler.execution import Completed, FailedRun, calls, run_calling, run_once

_END_S = 5.0
_REST_S = 0.0003
"""Before a run: for as long others have the processor and its caches, as between two requests. Run
after run operators are a quarter faster than they serve (ADR 0071 has figures of other rests)."""
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
        except ChildFailed as error:
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
        request: dict[str, Payload] = {
            "reference": self._reference,
            "memory_bytes": self._settings.memory_bytes,
            "endpoints": self._side.document,
            "longest_s": self._settings.timeout_s,
        }
        child = STARTER.start(__name__, request)
        return _Process(child, self._side.gate, self._clock, self.record_peak)


class ForkedPool(ProcessPool):
    """The same for a pipeline that fresh processes cannot import: workers are copies of this one.

    It is for pipelines made in a notebook or a shell. A worker that hangs, see `Forker`, is ended
    by its time-out.
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
        self._forker = self._held.enter_context(Forker())

    def _process(self) -> _Process:
        def serve(channel: Channel) -> None:
            caller = caller_of(channel, self._side.endpoints, self._settings.timeout_s)
            memory_bytes = self._settings.memory_bytes
            _answer_all(channel, lambda: Answering(self._pipeline, memory_bytes, caller))

        def record(_run: WorkerRun, _peak_bytes: int) -> None:
            """Forget it: what this process has is in it, and would be in no deployed worker."""

        return _Process(self._forker.start(serve), self._side.gate, self._clock, record)


@dataclass(slots=True)
class _Process:
    """A `ProfilingWorker` in a child."""

    child: Child
    gate: PermitGate  # grants permits to call
    clock: Clock
    record_peak: Callable[[WorkerRun, int], None]  # of the memory that a run took

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        data = request(run)
        longest_wait_s = run.operator.retries.longest_wait_s
        calling = Answered(self.gate, self.clock, timeout_s, longest_wait_s)
        try:
            self.child.channel.ask(data, timeout_s)
            while True:
                answer = cast("dict[str, Any]", decode(self.receive(calling.limit_s)))
                if "ask" not in answer:
                    self.record_peak(run, answer["peak_bytes"])
                    return _done(answer)
                calling.answer(answer, self.child.channel.send)
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
            return self.child.has_ended()

        self.receive(timeout_s, ended)

    def receive(self, timeout_s: float, ended: Callable[[], bool] | None = None) -> bytes:
        """Return the next message; Died if there is none in time."""
        try:
            return self.child.channel.receive(timeout_s, ended or self.child.has_ended)
        except TimeoutError as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error

    def death(self, error: Exception) -> Died:
        """Return how it ended, or what else ended its connection."""
        if isinstance(error, TimeoutError):
            return Died("the worker process took no request", in_time=False)
        if isinstance(error, Garbled):
            return Died(f"the worker process gave no answer ({error})")
        code = self.child.wait(_END_S)
        killed = code is not None and code < 0
        how = f"signal {-code}" if code is not None and killed else f"exit code {code}"
        how = _ENDINGS.get(code or 0, how)
        return Died(f"the worker process died ({how})", killed=killed)

    def end(self) -> None:
        self.child.end()


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
        request = cast("dict[str, Any]", decode(data))
        operator = self._pipeline.by_name[request["operator"]]
        knobs = ((operator.name, knob, value) for knob, value in request["settings"].items())
        forget_peak()
        settings, start_s = Configuration(tuple(knobs)), self._clock.now()
        try:
            done = self._run(operator, request["inputs"], settings)
        except Stopped:
            return encode({"ask": "stopped"})
        except KeyboardInterrupt:  # the operator's: a worker is never interrupted, it is ended
            done = FailedRun(cause="KeyboardInterrupt", spent_s=self._clock.now() - start_s)
        answer = {field.name: getattr(done, field.name) for field in fields(done)}
        peak = max(peak_bytes(), self._loading_bytes)
        answer |= {"used": list(done.used), "hosts": list(done.hosts), "peak_bytes": peak}
        return encode(answer)

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


def _answer_all(channel: Channel, load: Callable[[], Answering]) -> None:
    os.dup2(2, 1)  # what operators print is no result of the command that plans
    sys.stdout = sys.stderr
    answering = load()
    try:
        channel.send(_READY)
        while True:
            channel.send(answering.answer(channel.requested()))
    except (EOFError, ConnectionError):  # the profiler is gone: there is no caller to answer
        return
    except OSError:
        sys.exit(_CLOSED)
    except MemoryError:  # half of a message may be in the channel: a new worker starts afresh
        sys.exit(_OUT_OF_MEMORY)


def serve(channel: Channel, request: dict[str, Any]) -> None:
    """Answer requests, see `warm`."""
    endpoints = {each.name: each for each in endpoints_from(request["endpoints"])}
    caller = caller_of(channel, endpoints, request["longest_s"])
    _answer_all(channel, lambda: Answering(request["reference"], request["memory_bytes"], caller))
