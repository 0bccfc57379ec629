"""Calls a worker. One table maps what gRPC says to the project's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from deploy.errors import DeadlineExceeded, InstanceLost
from deploy.tls import TlsFiles
from deploy.workers.proto import worker_pb2, worker_pb2_grpc
from deploy.workers.service import OPERATOR_KEY
from deploy.workers.transport import channel_credentials, channel_options, check_transport
from pipelines.errors import CircinusError, InvalidInput, OperatorFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a worker answers.

    Attributes:
        outputs: Encoded payload of each wanted operator.
        seconds: Of each operator that ran, waits for share and speed included.
        sizes: Bytes of each output as links are charged for it.
        concurrency: Calls that it takes at a time, `>= 1`.
    """

    outputs: Mapping[str, bytes]
    seconds: Mapping[str, float]
    sizes: Mapping[str, int]
    concurrency: int = 1


class WorkerClient:
    """A channel to one worker; made and used within one event loop."""

    def __init__(self, address: str, tls: TlsFiles | None = None) -> None:
        check_transport(address, tls)
        self.address = address
        # A lost local worker is not worth waiting for: it is started again elsewhere.
        options = [*channel_options(tls), ("grpc.enable_retries", 0)]
        self._channel = (
            grpc.aio.insecure_channel(address, options=options)
            if tls is None
            else grpc.aio.secure_channel(address, channel_credentials(tls), options=options)
        )
        self._worker = worker_pb2_grpc.WorkerStub(self._channel)
        self._health = health_pb2_grpc.HealthStub(self._channel)

    async def run(
        self,
        operators: Sequence[str],
        inputs: Mapping[str, bytes],
        wants: Sequence[str],
        *,
        timeout_s: float,
        warm_up: bool = False,
        settings: Mapping[str, bytes] | None = None,
    ) -> Reply:
        """Give what the worker answers.

        Args:
            operators: To run, parents first.
            inputs: Encoded payloads, see the protocol.
            wants: Operators whose outputs to send back.
            timeout_s: Carried to the worker as the deadline, `> 0`.
            warm_up: Whether to leave out the waits.
            settings: Knobs of operators instead of the worker's own, encoded; None: its own.

        Raises:
            DeadlineExceeded: If it took longer.
            InstanceLost: If the worker is gone.
            OperatorFailed: If an operator raised.
            InvalidInput: If the worker refuses the call.
        """
        request = worker_pb2.RunRequest(
            operators=operators,
            inputs=inputs,
            wants=wants,
            warm_up=warm_up,
            settings=settings,
        )
        try:
            reply = await self._worker.Run(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise self._error(error, timeout_s) from error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # Nobody cancelled the caller: the channel was closed under the call.
            raise InstanceLost(self.address, "it was given up") from None
        return Reply(
            outputs=dict(reply.outputs),
            seconds=dict(reply.seconds),
            sizes=dict(reply.sizes),
            concurrency=max(reply.concurrency, 1),
        )

    async def settle(self, *, timeout_s: float) -> None:
        """Return when there is room for a call: without batching, when those before are over.

        Raises:
            DeadlineExceeded: If they are not within `timeout_s`.
            InstanceLost: If the worker is gone.
        """
        await self.run((), {}, (), timeout_s=timeout_s)

    async def healthy(self, *, timeout_s: float) -> bool:
        """Give whether the worker says that it serves."""
        try:
            answer = await self._health.Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.aio.AioRpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        """Close the channel; calls in hand are cancelled."""
        await self._channel.close(None)

    def _error(self, error: grpc.aio.AioRpcError, timeout_s: float) -> CircinusError:
        cause = error.details() or error.code().name
        match error.code():
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return DeadlineExceeded(timeout_s, f"the instance at {self.address} worked")
            case grpc.StatusCode.ABORTED:
                # The type stubs know only the blocking API's form of it.
                metadata = cast("grpc.aio.Metadata", error.trailing_metadata())
                return OperatorFailed(str(metadata.get(OPERATOR_KEY, "?")), cause)
            case grpc.StatusCode.INVALID_ARGUMENT:
                return InvalidInput.of("call", "must be one that the worker can serve", cause)
            case _:
                return InstanceLost(self.address, cause)
