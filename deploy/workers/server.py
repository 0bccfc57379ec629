"""The worker process: `python -m circinus.deploy.workers.server --pipeline NAME ...`.

When it is ready it writes one line of JSON with its address to standard output, and
nothing after: what operators print goes to standard error with the log. SIGTERM lets
the call in hand finish. As many calls run at a time as operators take; errors are status codes.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf
from queue import SimpleQueue
from traceback import clear_frames

import grpc
import numpy as np
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from circinus.deploy.workers.batching import Batches
from circinus.deploy.workers.calling import Attempts, from_wire, to_wire
from circinus.deploy.workers.errors import CallFailed
from circinus.deploy.workers.execution import CallEnded, Execution
from circinus.deploy.workers.options import WorkerOptions, parse
from circinus.deploy.workers.process import (
    OUT_OF_MEMORY,
    PRIVATE,
    lift_if_held,
    limit_memory,
    processor_seconds,
    programs_s,
    sharpen_timers,
)
from circinus.deploy.workers.proto import worker_pb2, worker_pb2_grpc
from circinus.deploy.workers.proto.worker_pb2 import RunRequest
from circinus.deploy.workers.shares import Pace
from circinus.deploy.workers.transport import (
    CALL_KEY,
    CAUSE_KEY,
    FAULTS_KEY,
    OPERATOR_KEY,
    TlsFiles,
    message_options,
    server_credentials,
    socket_of,
    split_address,
    too_large,
)
from circinus.pipelines.clock import Clock, SystemClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed, words_of
from circinus.pipelines.execution.connections import runs_operators_alone
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Endpoint
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.registry import load_pipeline

_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPatience:
    """How long calls may run on."""

    left_s: float = 5.0  # after their caller left, `> 0`
    late_s: float = 10.0  # after their answer was due, though the caller waits, `> 0`
    # of either, times the seconds of the longest call that was answered, `> 0`
    times_longest: float = 5.0
    first_s: float = 60.0  # of either, before any was answered: a first call may load models

    def beyond(self, seconds: float) -> CallPatience:
        """Return the patience with calls that may take so many seconds by themselves."""
        return replace(
            self,
            left_s=self.left_s + seconds,
            late_s=self.late_s + seconds,
            first_s=self.first_s + seconds,
        )


@dataclass(slots=True, eq=False)
class _Call:
    operators: str
    began: float
    due: float
    left: float = inf  # when its caller left


@dataclass(slots=True, eq=False)
class CallWatch:
    """The calls that run in a worker. Safe to share between threads."""

    clock: Clock
    places: int  # calls that run at once: with one of them free, the worker serves
    patience: CallPatience = field(default_factory=CallPatience)
    _running: set[_Call] = field(default_factory=set, init=False)
    _longest_s: float | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @contextmanager
    def running(
        self, request: RunRequest, due: float, context: grpc.ServicerContext
    ) -> Iterator[None]:
        """Watch a call whose answer is due then; one without operators is ignored."""
        if not request.operators:
            yield
            return
        call = _Call(", ".join(request.operators), self.clock.now(), due)

        def leave() -> None:
            call.left = self.clock.now()

        if not context.add_callback(leave):
            leave()
        with self._lock:
            self._running.add(call)
        try:
            yield
            with self._lock:
                # A first run loads what later ones have: its seconds are no measure for them.
                call_s = 0.0 if request.warm_up else self.clock.now() - call.began
                self._longest_s = max(call_s, self._longest_s or 0.0)
        finally:
            with self._lock:
                self._running.discard(call)

    def hang(self) -> str:
        """Return what hangs, in words; empty while a call may still end, or a place is free."""
        with self._lock:
            now, running = self.clock.now(), list(self._running)
            if len(running) < self.places or not all(self._hangs(call, now) for call in running):
                return ""
            oldest = min(running, key=lambda call: call.began)
        return f"{oldest.operators} ran for {now - oldest.began:.0f} s and did not end"

    def _hangs(self, call: _Call, now: float) -> bool:
        patience, longest_s = self.patience, self._longest_s
        if longest_s is None:
            left_s = late_s = patience.first_s
        else:
            most_s = patience.times_longest * longest_s
            left_s, late_s = max(patience.left_s, most_s), max(patience.late_s, most_s)
        return now > min(call.left + left_s, max(call.due, call.began) + late_s)


class WatchedHealth(health.HealthServicer):
    """Health that also reports which calls hang."""

    def __init__(self, watch: CallWatch) -> None:
        super().__init__()
        self._watch = watch

    def Check(
        self, request: health_pb2.HealthCheckRequest, context: grpc.ServicerContext
    ) -> health_pb2.HealthCheckResponse:
        """Return whether the worker serves."""
        answer: health_pb2.HealthCheckResponse = super().Check(request, context)
        if (hang := self._watch.hang()) and answer.status:
            context.set_trailing_metadata(((CAUSE_KEY, hang),))
            return health_pb2.HealthCheckResponse(status=_NOT_SERVING)
        return answer


SERVICE = worker_pb2.DESCRIPTOR.services_by_name["Worker"].full_name
DRAIN_S = 10.0
_WAITING_CALLS = 7  # beyond those that run: they wait, or ask for health

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal, and return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.umask(PRIVATE)
    announce = os.dup(1)
    os.dup2(2, 1)
    # Not an Event: its lock may be ours already when the handler interrupts us.
    stops: SimpleQueue[int] = SimpleQueue()
    try:
        options = parse(arguments)
        sharpen_timers()
        servers, health_service, address = _start(options, lambda: stops.put(OUT_OF_MEMORY))
    except InvalidInput as error:
        _log.error("refused reason=%s", error)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _received, _frame: stops.put(0))
    os.write(announce, json.dumps({"address": address, "pid": os.getpid()}).encode() + b"\n")
    os.close(announce)
    code = stops.get()
    health_service.enter_graceful_shutdown()
    servers[0].stop(DRAIN_S).wait()
    for server in servers[1:]:
        server.stop(None)
    return code


def _start(
    options: WorkerOptions, give_up: Callable[[], None]
) -> tuple[list[grpc.Server], health.HealthServicer, str]:
    runs_operators_alone()
    pipeline = load_pipeline(options.pipeline, allow_import=options.allow_import)
    clock = SystemClock()
    execution = Execution(
        pipeline=pipeline,
        served=frozenset(options.operators),
        configuration=ConfigurationSpace(pipeline.graph).parse(options.configuration),
        pace=options.pace,
        clock=clock,
        processor_seconds=processor_seconds,
        batches=Batches(clock),
        attempts=_attempts(options.endpoints, clock) if options.endpoints else None,
        concurrent=options.concurrent,
    )
    if options.memory_bytes is not None:
        limit_memory(options.memory_bytes)
    server = grpc.server(
        ThreadPoolExecutor(max_workers=execution.concurrency + _WAITING_CALLS),
        options=[*message_options(options.message_bytes), ("grpc.so_reuseport", 0)],
    )
    service = OperatorService(execution, options, give_up)
    worker_pb2_grpc.add_WorkerServicer_to_server(service, server)
    health_service = WatchedHealth(service.watch)
    health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
    names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    address = _listen(server, "bind", options.bind, options.tls)
    servers = [server]
    if options.health is not None:  # anybody may ask there for health, and for nothing else
        open_to_all = grpc.server(ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
        health_pb2_grpc.add_HealthServicer_to_server(health_service, open_to_all)
        _listen(open_to_all, "health", options.health, None)
        open_to_all.start()
        servers.append(open_to_all)
    server.start()
    for name in ("", SERVICE):
        health_service.set(name, health_pb2.HealthCheckResponse.SERVING)
    _log.info("serving address=%s operators=%s", address, ",".join(options.operators))
    return servers, health_service, address


def _attempts(endpoints: Sequence[Endpoint], clock: SystemClock) -> Attempts:
    return Attempts(
        endpoints={each.name: each for each in endpoints},
        clock=clock,
        rng=np.random.default_rng(),  # noqa: TID251 - an entry point; it spreads waits
    )


def _listen(server: grpc.Server, option: str, address: str, tls: TlsFiles | None) -> str:
    """Return the address with the port that was taken."""
    try:
        if tls is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, server_credentials(tls))
    except RuntimeError as error:
        raise InvalidInput.of(option, "must be an address that is free", address) from error
    if socket_of(address) is not None:
        return address
    host = split_address(address)[0]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class OperatorService(worker_pb2_grpc.WorkerServicer):
    """Serves an execution over gRPC; it exits when its operators keep their memory."""

    def __init__(
        self, execution: Execution, options: WorkerOptions, give_up: Callable[[], None]
    ) -> None:
        self._execution, self._options, self._give_up = execution, options, give_up
        self._turn = threading.Semaphore(execution.concurrency)
        longest_s = max((each.timeout_s for each in options.endpoints), default=0.0)
        self.watch = CallWatch(
            execution.clock, execution.concurrency, CallPatience().beyond(longest_s)
        )

    def Run(
        self, request: worker_pb2.RunRequest, context: grpc.ServicerContext
    ) -> worker_pb2.RunReply:
        """Run the operators of a request."""
        due_in_s = request.due_in_s if request.HasField("due_in_s") else inf
        due = self._execution.clock.now() + due_in_s
        ended = threading.Event()
        context.add_callback(ended.set)
        if not context.is_active():  # ended before the callback was there
            ended.set()
        # Without a deadline, as long as a lock can wait.
        time_left_s = min(context.time_remaining(), threading.TIMEOUT_MAX)
        if not self._turn.acquire(timeout=time_left_s):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "waiting for the calls before")
        try:
            with self.watch.running(request, due, context):
                return self._answer(request, ended, due)
        except InvalidInput as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OperatorFailed as error:
            self._fail(context, error)
        except CallEnded:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call ended while it ran")
        except BaseException as error:  # noqa: BLE001 - gRPC would leave the caller waiting
            failed = OperatorFailed(", ".join(request.operators), words_of(error))
            failed.__cause__ = error
            self._fail(context, failed)
        finally:
            self._turn.release()
        raise AssertionError("abort raises")  # pragma: no cover - for the type checker

    def _fail(self, context: grpc.ServicerContext, error: OperatorFailed) -> None:
        _log.warning("operator_failed operator=%s cause=%s", error.operator, error.cause)
        limit, cause = self._options.memory_bytes, error.__cause__
        if limit is not None and isinstance(cause, MemoryError):
            clear_frames(cause.__traceback__)  # what the call alone held
            if lift_if_held(limit):
                _log.error("memory_used_up limit=%d: operators hold it, the worker ends", limit)
                self._give_up()
        violations = encode([[one.field, one.rule, one.value] for one in error.violations])
        metadata: list[tuple[str, str | bytes]]
        metadata = [(OPERATOR_KEY, error.operator), (FAULTS_KEY, violations)]
        if isinstance(error, CallFailed):
            call = worker_pb2.FailedCall(used=to_wire(error.used), again_in_s=error.again_in_s)
            metadata.append((CALL_KEY, call.SerializeToString()))
        context.set_trailing_metadata(tuple(metadata))
        context.abort(grpc.StatusCode.ABORTED, error.cause)

    def _answer(
        self, request: worker_pb2.RunRequest, ended: threading.Event, due: float
    ) -> worker_pb2.RunReply:
        def pause(seconds: float) -> None:
            if ended.wait(max(seconds, 0.0)):
                raise CallEnded

        reply = self._configured(request.settings).run(
            request.operators,
            {name: decode(data) for name, data in request.inputs.items()},
            request.wants,
            pause,
            Pace(devices=self._execution.pace.devices) if request.warm_up else None,
            due,
            max(request.attempt, 1),
        )
        reply.worker_cpu_s = time.process_time() + programs_s()
        largest = self._options.message_bytes
        if (size := reply.ByteSize()) > largest:
            name = max(reply.outputs, key=lambda output: len(reply.outputs[output]))
            cause = too_large("outputs", largest, size)
            raise CallFailed(name, cause, (), from_wire(reply.used), None)
        return reply

    def _configured(self, settings: Mapping[str, bytes]) -> Execution:
        """Return the execution with other settings of some operators; InvalidInput if wrong."""
        if not settings:
            return self._execution
        changed = {name: _knobs(decode(data)) for name, data in settings.items()}
        nested = {**self._execution.configuration.as_dict(), **changed}
        space = ConfigurationSpace(self._execution.pipeline.graph)
        return replace(self._execution, configuration=space.parse(nested))


def _knobs(value: Payload) -> dict[str, KnobValue]:
    if isinstance(value, dict):
        knobs = {k: v for k, v in value.items() if isinstance(v, bool | int | float | str)}
        if len(knobs) == len(value):
            return knobs
    raise InvalidInput.of("settings", "must be a mapping of knobs to values per operator", value)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
