"""The gRPC face of a worker: as many calls at a time as operators take, errors as status codes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace

import grpc

from deploy.shares import Pace
from deploy.workers.execution import CallEnded, Execution
from deploy.workers.proto import worker_pb2, worker_pb2_grpc
from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput, OperatorFailed
from pipelines.operators import KnobValue
from pipelines.payload import Payload, decode

OPERATOR_KEY = "circinus-operator"
"""Trailing metadata that names the operator that failed."""

_log = logging.getLogger(__name__)


class OperatorService(worker_pb2_grpc.WorkerServicer):
    """Serves an execution."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._turn = threading.Semaphore(execution.concurrency)

    def Run(
        self, request: worker_pb2.RunRequest, context: grpc.ServicerContext
    ) -> worker_pb2.RunReply:
        """Run the operators of a request."""
        call = _GrpcCall(context)
        if not self._turn.acquire(timeout=call.time_left_s()):
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "waiting for the calls before")
        try:
            return self._answer(request, call)
        except InvalidInput as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OperatorFailed as error:
            _log.warning("operator_failed operator=%s cause=%s", error.operator, error.cause)
            context.set_trailing_metadata(((OPERATOR_KEY, error.operator),))
            context.abort(grpc.StatusCode.ABORTED, error.cause)
        except CallEnded:
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the call ended while it ran")
        finally:
            self._turn.release()
        raise AssertionError("abort raises")  # pragma: no cover - for the type checker

    def _configured(self, settings: Mapping[str, bytes]) -> Execution:
        """Give the execution with other settings of some operators.

        Raises:
            InvalidInput: If they are none of the pipeline.
        """
        if not settings:
            return self._execution
        asked = {name: _knobs(value) for name, value in _decoded(settings).items()}
        nested = {**self._execution.configuration.as_dict(), **asked}
        space = ConfigurationSpace(self._execution.pipeline.graph)
        return replace(self._execution, configuration=space.parse(nested))

    def _answer(self, request: worker_pb2.RunRequest, call: _GrpcCall) -> worker_pb2.RunReply:
        outcome = self._configured(request.settings).run(
            request.operators,
            _decoded(request.inputs),
            request.wants,
            call,
            Pace() if request.warm_up else None,
        )
        return worker_pb2.RunReply(
            outputs=outcome.outputs,
            seconds=outcome.seconds,
            sizes=outcome.sizes,
            concurrency=self._execution.concurrency,
        )


def _knobs(value: Payload) -> dict[str, KnobValue]:
    rule = "must be a mapping of knobs to values per operator"
    if not isinstance(value, dict):
        raise InvalidInput.of("settings", rule, value)
    knobs = {k: v for k, v in value.items() if isinstance(v, bool | int | float | str)}
    if len(knobs) < len(value):
        raise InvalidInput.of("settings", rule, value)
    return knobs


class _GrpcCall:
    """A call whose pauses end with it."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context
        self._ended = threading.Event()
        context.add_callback(self._ended.set)
        if not context.is_active():  # ended before the callback was there
            self._ended.set()

    def time_left_s(self) -> float:
        """Give the seconds until the deadline; without one, as long as a lock can wait."""
        return min(self._context.time_remaining(), threading.TIMEOUT_MAX)

    def pause(self, seconds: float) -> None:
        if self._ended.wait(max(seconds, 0.0)):
            raise CallEnded


def _decoded(inputs: Mapping[str, bytes]) -> dict[str, Payload]:
    return {name: decode(data) for name, data in inputs.items()}
