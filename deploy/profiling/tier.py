"""An Executor over deployed workers: a pipeline is profiled on the tier where it will run.

The seconds that a worker reports are turned into seconds on the reference machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, TypeVar

from circinus.deploy.profiling.pool import Died, ProfilingPoolSettings, WorkerPool, WorkerRun
from circinus.deploy.runtime.instances import (
    InstanceKey,
    InstanceSpec,
    Launcher,
    RunningInstance,
    opened,
)
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded, InstanceLost, LaunchFailed
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import OperatorFailed
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.graph import PipelineGraph
from circinus.pipelines.model.operators import OperatorSpec
from circinus.pipelines.model.payload import Payload, decode, encode
from circinus.pipelines.model.tiers import Tier
from circinus.profiler.execution import Completed, FailedRun

_END_S = 5.0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledTier:
    """Where operators run, and what their seconds there are worth."""

    tier: Tier  # whose machines; each worker has one
    # Operator -> seconds on the reference machine over seconds there, `> 0`; 1 where missing
    speeds: Mapping[str, float] = field(default_factory=dict)


class TierExecutor(WorkerPool):
    """Runs operators of one pipeline on deployed workers, see `WorkerPool`.

    The clock times calls that give no seconds; the launcher knows about memory.
    """

    def __init__(
        self,
        reference: str,
        graph: PipelineGraph,
        place: ProfiledTier,
        launcher: Launcher,
        clock: Clock,
        *,
        settings: ProfilingPoolSettings | None = None,
    ) -> None:
        self._loop = _Loop()
        self._serials = count()
        self._spec = InstanceSpec(
            key=InstanceKey("profiling", reference, place.tier.name, 0),
            pipeline_reference=reference,
            operators=graph.operators,
            configuration=ConfigurationSpace(graph).configuration(0),
            tier=place.tier,
            share=1.0,
        )
        self._place = place
        self._launcher = launcher
        super().__init__(reference, clock, settings)

    def close(self) -> None:
        """End all workers; runs that are under way end first. It cannot run afterwards."""
        super().close()
        self._loop.close()

    def start(self) -> _Deployed:
        """See `WorkerPool`."""
        key = self._spec.key._replace(replica=next(self._serials))
        stack = AsyncExitStack()
        worker = opened(self._launcher, replace(self._spec, key=key))
        try:
            instance, client = self._loop.wait_for(stack.enter_async_context(worker))
        except LaunchFailed as error:
            raise Died(str(error), killed=error.killed) from error
        return _Deployed(instance, client, stack, self._loop, self._place, self._clock)


@dataclass(slots=True)
class _Deployed:
    """A `ProfilingWorker` at the other end of a gRPC channel."""

    instance: RunningInstance
    client: WorkerClient
    stack: AsyncExitStack
    loop: _Loop
    place: ProfiledTier
    clock: Clock

    def run(self, run: WorkerRun, timeout_s: float) -> Completed | FailedRun:
        name, began = run.operator.name, self.clock.now()
        speed = self.place.speeds.get(name, 1.0)
        inputs = _inputs(run.operator.spec, run.inputs)
        ask = partial(self.client.run, (name,), inputs, (name,), configuration=run.configuration)
        try:
            reply = self.loop.wait_for(ask(timeout_s=timeout_s, warm_up=run.is_warm_up))
        except OperatorFailed as error:
            return FailedRun(cause=error.cause, spent_s=(self.clock.now() - began) * speed)
        except DeadlineExceeded as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error
        except InstanceLost as error:
            raise Died(f"the worker process died ({self._how_it_ended()})") from error
        waited_s = reply.waited_s[name]
        seconds = waited_s + (reply.seconds[name] - waited_s) * speed
        return Completed(
            output=decode(reply.outputs[name]),
            output_bytes=reply.sizes[name],
            seconds=seconds,
            waited_s=waited_s,
            spent_s=seconds,
        )

    def end(self) -> None:
        self.loop.wait_for(self.stack.aclose())

    def _how_it_ended(self) -> str:
        with suppress(TimeoutError):
            return self.loop.wait_for(asyncio.wait_for(self.instance.ended(), _END_S))
        return "its connection was lost"


class _Loop:
    """An event loop in a thread of its own: gRPC's clients and the launcher live there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="profiling-workers", daemon=True
        )
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _inputs(operator: OperatorSpec, inputs: Payload) -> Mapping[str, bytes]:
    """Return an operator's inputs by name, as a call carries them."""
    if len(operator.after) < 2:
        return {(operator.after or (INPUT,))[0]: encode(inputs)}
    if not isinstance(inputs, dict):
        raise TypeError(f"must be a mapping, got {type(inputs).__name__}")
    return {parent: encode(inputs[parent]) for parent in operator.after}
