"""Calls a worker. One table maps gRPC's status codes to the project's errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from circinus.deploy.workers.calling import from_wire
from circinus.deploy.workers.errors import CallFailed, DeadlineExceeded, InstanceLost
from circinus.deploy.workers.execution import INPUT
from circinus.deploy.workers.proto import worker_pb2, worker_pb2_grpc
from circinus.deploy.workers.transport import (
    CALL_KEY,
    CAUSE_KEY,
    FAULTS_KEY,
    LARGEST_MESSAGE,
    OPERATOR_KEY,
    TlsFiles,
    open_channel,
    too_large,
)
from circinus.pipelines.errors import CircinusError, InvalidInput, OperatorFailed, Violation
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.payload import decode, encode

_CLOSED = "it was given up"


class Health(Enum):
    """The state that a worker reports."""

    SERVING = auto()
    STOPPING = auto()  # it takes no calls any more, or not yet
    SILENT = auto()  # nothing, within the time that it had
    GONE = auto()  # nothing listens at its address


@dataclass(slots=True, eq=False)
class _Line:
    """A channel, and the certificates that it was opened with."""

    channel: grpc.aio.Channel
    version: tuple[int, int] | None  # of `TlsFiles`
    calls: int = 0  # in hand


class WorkerClient:
    """A channel to one worker; made and used within one event loop.

    A call, and its answer, have at most `largest` bytes. Once our certificates were replaced the
    next call opens another channel: the old one could not connect again when they are over.
    """

    def __init__(
        self, address: str, tls: TlsFiles | None = None, largest: int = LARGEST_MESSAGE
    ) -> None:
        self.address, self._tls, self._largest = address, tls, largest
        self._before: set[_Line] = set()  # with calls in hand
        self._open()
        self._calls = 0  # in hand
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(  # noqa: PLR0913 - the fields of the request
        self,
        operators: Sequence[str],
        inputs: Mapping[str, bytes],
        wants: Sequence[str],
        *,
        timeout_s: float,
        due_in_s: float | None = None,
        warm_up: bool = False,
        configuration: Configuration | None = None,
        attempt: int = 1,
    ) -> worker_pb2.RunReply:
        """Run operators, parents first, on encoded inputs; return the outputs of those wanted.

        The timeout, `> 0`, is the worker's deadline. The answer is in time within `due_in_s`, or
        whenever; as long as that allows, batches wait for more calls. A warm-up leaves out the
        waits that stand for share and speed. Without a configuration the knobs are the worker's
        own. Of an operator that calls endpoints it is the `attempt`-th call, from 1.

        DeadlineExceeded if it takes longer, InstanceLost if the worker is gone, OperatorFailed if
        an operator raised or an output is too large to be sent, CallFailed if endpoints were
        called before that, InvalidInput if the worker refuses the call or the input is too large.
        """
        knobs = {} if configuration is None else {o: configuration.of(o) for o in operators}
        settings = {name: encode({**values}) for name, values in knobs.items() if values}
        request = worker_pb2.RunRequest(
            operators=operators,
            inputs=inputs,
            wants=wants,
            warm_up=warm_up,
            settings=settings,
            due_in_s=due_in_s,
            attempt=attempt,
        )
        self._check_size(request)
        line = await self._newest()
        line.calls += 1
        self._calls += 1
        self._idle.clear()
        try:
            reply: worker_pb2.RunReply = await self._worker.Run(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._error(error, timeout_s) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The caller was not cancelled: the channel was closed under the call.
            raise InstanceLost(self.address, _CLOSED) from None
        except grpc.aio.UsageError as error:  # it was closed before the call
            raise InstanceLost(self.address, _CLOSED) from error
        finally:
            line.calls -= 1
            self._calls -= 1
            if not self._calls:
                self._idle.set()
            if line in self._before and not line.calls:
                self._before.discard(line)
                await line.channel.close(None)
        return reply

    def _check_size(self, request: worker_pb2.RunRequest) -> None:
        size = request.ByteSize()
        if size <= self._largest:
            return
        name = max(request.inputs, key=lambda each: len(request.inputs[each]), default=INPUT)
        if name == INPUT:
            rule = f"must have at most {self._largest} bytes (CIRCINUS_MESSAGE_LIMIT_BYTES)"
            raise InvalidInput.of("input", rule, f"{size} bytes")
        raise OperatorFailed(name, too_large("outputs", self._largest, size))

    async def settle(self, *, timeout_s: float) -> None:
        """Return when there is room for a call: without batching, when those before are over.

        Raises DeadlineExceeded if they are not within `timeout_s`, InstanceLost as `run` does.
        """
        await self.run((), {}, (), timeout_s=timeout_s)

    async def idle(self) -> None:
        """Return when all calls of this client were answered.

        A worker that has room again may still be sending the answer that made the room.
        """
        await self._idle.wait()

    async def healthy(self, *, timeout_s: float) -> bool:
        """Return whether the worker serves."""
        return await self.health(timeout_s=timeout_s) is Health.SERVING

    async def health(self, *, timeout_s: float) -> Health | str:
        """Return the state of the worker; text is the reason why it has to be replaced."""
        await self._newest()
        try:
            call = self._health.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
            answer = await call
        except grpc.aio.AioRpcError as error:
            silent = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            return Health.SILENT if silent else Health.GONE
        except grpc.aio.UsageError:
            return Health.GONE
        if answer.status == health_pb2.HealthCheckResponse.SERVING:
            return Health.SERVING
        metadata = dict(await call.trailing_metadata() or ())
        return str(metadata[CAUSE_KEY]) if CAUSE_KEY in metadata else Health.STOPPING

    async def close(self) -> None:
        """Close the channel; calls in hand are cancelled."""
        lines = (*self._before, self._line)
        self._before.clear()
        for line in lines:
            await line.channel.close(None)

    def _open(self) -> None:
        version = None if self._tls is None else self._tls.version()
        channel = open_channel(self.address, self._tls, self._largest)
        self._line = _Line(channel, version)
        self._worker = worker_pb2_grpc.WorkerStub(channel)
        self._health = health_pb2_grpc.HealthStub(channel)

    async def _newest(self) -> _Line:
        """Return the channel for the next call; calls in hand keep theirs until they are over."""
        before = self._line
        if self._tls is None or self._tls.version() in (before.version, None):
            return before
        with contextlib.suppress(InvalidInput):  # cannot be read just now: the next call looks
            self._open()
            if before.calls:
                self._before.add(before)
            else:
                await before.channel.close(None)
        return self._line

    def _error(self, error: grpc.aio.AioRpcError, timeout_s: float) -> CircinusError:
        cause = error.details() or error.code().name
        match error.code():
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineExceeded(timeout_s, f"the instance at {self.address} worked")
            case grpc.StatusCode.ABORTED:
                # The type stubs know only the blocking API's form of it.
                metadata = cast("grpc.aio.Metadata", error.trailing_metadata())
                violations = cast("list[list[str]]", decode(cast("bytes", metadata[FAULTS_KEY])))
                operator = str(metadata[OPERATOR_KEY])
                wrong = [Violation(*violation) for violation in violations]
                if CALL_KEY not in metadata:
                    return OperatorFailed(operator, cause, wrong)
                call = worker_pb2.FailedCall.FromString(cast("bytes", metadata[CALL_KEY]))
                again_in_s = call.again_in_s if call.HasField("again_in_s") else None
                return CallFailed(operator, cause, wrong, from_wire(call.used), again_in_s)
            case grpc.StatusCode.INVALID_ARGUMENT:
                return InvalidInput.of("call", "must be one that the worker can serve", cause)
            case grpc.StatusCode.RESOURCE_EXHAUSTED:  # the other end has another limit
                return OperatorFailed("call", cause)
            case grpc.StatusCode.UNKNOWN:  # the worker raised: another one would, too
                return OperatorFailed("call", cause)
            case _:
                return InstanceLost(self.address, cause)


async def answers(address: str, tls: TlsFiles | None, *, timeout_s: float) -> bool:
    """Return whether a worker serves at an address."""
    client = WorkerClient(address, tls)
    try:
        return await client.healthy(timeout_s=timeout_s)
    finally:
        await client.close()
