"""An Executor over deployed workers: operators run on machines of a tier, over gRPC.

So a pipeline is profiled where it will run: the same worker, transport and share as a deployment
has. What a worker says it took is turned into seconds on the reference machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, TypeVar

from deploy.errors import DeadlineExceeded, InstanceLost, LaunchFailed
from deploy.instances import InstanceKey, InstanceSpec, Launcher, RunningInstance
from deploy.profiling_pool import Died, PoolSettings, Run, WorkerPool
from deploy.workers.client import Reply, WorkerClient
from deploy.workers.execution import INPUT
from pipelines.clock import Clock
from pipelines.configuration import Configuration, ConfigurationSpace
from pipelines.errors import OperatorFailed
from pipelines.graph import PipelineGraph
from pipelines.infrastructure import Tier
from pipelines.operators import OperatorSpec
from pipelines.payload import Payload, decode, encode
from profiler.execution import Completed, Failed

_END_S = 5.0

Given = TypeVar("Given")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledTier:
    """Where operators run, and what their seconds there are worth.

    Attributes:
        tier: Whose machines.
        share: Of one of them, for each worker, in (0, 1].
        speeds: Operator -> seconds on the reference machine over seconds there, `> 0`; those of
            an operator that is missing are taken to be 1.
    """

    tier: Tier
    share: float = 1.0
    speeds: Mapping[str, float] = field(default_factory=dict)


class TierExecutor(WorkerPool):
    """Runs operators of one pipeline on deployed workers, see `WorkerPool`.

    Args:
        reference: What names the pipeline, see `pipelines.registry.load_pipeline`.
        graph: Of the pipeline.
        place: Where its workers are.
        launcher: Starts them.
        clock: Times calls that give no seconds.
        settings: How; the launcher knows about memory.
    """

    def __init__(
        self,
        reference: str,
        graph: PipelineGraph,
        place: ProfiledTier,
        launcher: Launcher,
        clock: Clock,
        *,
        settings: PoolSettings | None = None,
    ) -> None:
        self._loop = _Loop()
        self._serials = count()
        self._spec = InstanceSpec(
            key=InstanceKey("profiling", reference, place.tier.name, 0),
            pipeline_reference=reference,
            operators=graph.operators,
            configuration=ConfigurationSpace(graph).configuration(0),
            tier=place.tier,
            share=place.share,
        )
        self._place = place
        self._launcher = launcher
        self._timer = clock
        super().__init__(self._launched, clock, settings)

    def close(self) -> None:
        """End all workers; runs that are under way end first. It cannot run afterwards."""
        super().close()
        self._loop.close()

    def _launched(self) -> _Deployed:
        key = self._spec.key._replace(replica=next(self._serials))
        try:
            instance, client = self._loop.wait_for(self._open(replace(self._spec, key=key)))
        except LaunchFailed as error:
            raise Died(str(error), killed=error.killed) from error
        return _Deployed(instance, client, self._loop, self._place, self._timer)

    async def _open(self, spec: InstanceSpec) -> tuple[RunningInstance, WorkerClient]:
        instance = await self._launcher.start(spec)
        instance.limit()
        return instance, WorkerClient(instance.address, instance.tls)


@dataclass(slots=True)
class _Deployed:
    """A `Worker` at the other end of a gRPC channel."""

    instance: RunningInstance
    client: WorkerClient
    loop: _Loop
    place: ProfiledTier
    clock: Clock

    def run(self, run: Run, timeout_s: float) -> Completed | Failed:
        """See `Worker`."""
        name, began = run.operator.name, self.clock.now()
        speed = self.place.speeds.get(name, 1.0)
        inputs = _inputs(run.operator.spec, run.inputs)
        warm_up_s = 0.0
        try:
            if run.is_first:
                reply = self._asked(run, inputs, timeout_s, warm_up=True)
                warm_up_s = reply.seconds[name]
            left_s = max(timeout_s - (self.clock.now() - began), 0.001)
            reply = self._asked(run, inputs, left_s, warm_up=False)
        except OperatorFailed as error:
            return Failed(cause=error.cause, spent_s=(self.clock.now() - began) * speed)
        except DeadlineExceeded as error:
            raise Died(f"took longer than {timeout_s:g} s", in_time=False) from error
        except InstanceLost as error:
            raise Died(f"the worker process died ({self._how_it_ended()})") from error
        seconds = reply.seconds[name]
        return Completed(
            output=decode(reply.outputs[name]),
            output_bytes=reply.sizes[name],
            seconds=seconds * speed,
            spent_s=seconds * speed + warm_up_s * speed,
        )

    def end(self) -> None:
        """See `Worker`."""
        self.loop.wait_for(self._end())

    def _asked(
        self, run: Run, inputs: Mapping[str, bytes], timeout_s: float, *, warm_up: bool
    ) -> Reply:
        name = run.operator.name
        asked = self.client.run(
            (name,),
            inputs,
            (name,),
            timeout_s=timeout_s,
            warm_up=warm_up,
            settings=_settings(name, run.configuration),
        )
        return self.loop.wait_for(asked)

    async def _end(self) -> None:
        await self.client.close()
        await self.instance.stop()

    def _how_it_ended(self) -> str:
        async def ended() -> str:
            return await asyncio.wait_for(self.instance.ended(), _END_S)

        with suppress(TimeoutError):
            return self.loop.wait_for(ended())
        return "its connection was lost"


class _Loop:
    """An event loop in a thread of its own: gRPC's clients and the launcher live there."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="profiling-workers", daemon=True
        )
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, Given]) -> Given:
        """Give what the coroutine gives."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


def _inputs(operator: OperatorSpec, inputs: Payload) -> Mapping[str, bytes]:
    """Give an operator's inputs by name, as a call carries them.

    Raises:
        InvalidInput: If they are no payload.
    """
    if len(operator.after) < 2:
        return {(operator.after or (INPUT,))[0]: encode(inputs)}
    if not isinstance(inputs, dict):
        raise TypeError(f"must be a mapping, got {type(inputs).__name__}")
    return {parent: encode(inputs[parent]) for parent in operator.after}


def _settings(operator: str, configuration: Configuration) -> Mapping[str, bytes]:
    settings: dict[str, Payload] = dict(configuration.of(operator))
    return {operator: encode(settings)} if settings else {}
