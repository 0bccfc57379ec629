"""Keeps one instance running: what ends unasked is started again, ever more patiently."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from circinus.deploy.runtime.instances import InstanceSpec, Launcher, RunningInstance
from circinus.deploy.runtime.segments import Segment
from circinus.deploy.runtime.tier_queue import InstanceType, TierQueue
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.payload import Payload, encode

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """When an instance that ended is started again."""

    first_s: float = 0.1  # pause before the first restart, `> 0`. One crash should cost little
    longest_s: float = 30.0  # pauses double up to it, `> 0`. What is broken must not eat the core
    calm_s: float = 60.0  # who lived this long ended by accident: pauses start anew, `> 0`

    def __post_init__(self) -> None:
        checks.positive("first_s", self.first_s)
        checks.positive("longest_s", self.longest_s)
        checks.positive("calm_s", self.calm_s)

    def pause_s(self, failures: int) -> float:
        """Give the pause after so many failures in a row, `>= 1`."""
        return min(self.first_s * 2.0 ** min(failures - 1, 60), self.longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """An instance, for people."""

    spec: InstanceSpec
    running: RunningInstance | None  # None while it is down
    up: bool  # whether it takes requests now
    restarts: int  # number of times it was started again
    ended: str | None  # how it ended last; None if it never did


class WarmUp:
    """A first run before requests come, so that what operators load on first use is there.

    Free of share and emulated speed: loading a model at a tenth of the speed helps nobody. What
    each segment got is kept, for restarts. A sample that fails is no reason not to serve: other
    inputs may do, so it is logged.
    """

    def __init__(
        self, segments: Sequence[Segment], sample: Payload | None, *, timeout_s: float
    ) -> None:
        self._segments = segments
        self._known = {} if sample is None else {INPUT: encode(sample)}
        self._timeout_s = timeout_s

    async def run(self, clients: Mapping[str, Sequence[WorkerClient]]) -> None:
        """Warm up instances, by tier, segment by segment."""
        for segment in self._segments:
            for client in clients.get(segment.tier, ()):
                await self._run(segment, client)

    async def _run(self, segment: Segment, client: WorkerClient) -> None:
        if not self._known.keys() >= set(segment.inputs):
            return
        try:
            reply = await client.run(
                segment.operators,
                {name: self._known[name] for name in segment.inputs},
                segment.wants,
                timeout_s=self._timeout_s,
                warm_up=True,
            )
        except CircinusError as error:
            _log.warning("warm_up_failed operators=%s cause=%s", segment.operators, error)
        else:
            self._known.update(reply.outputs)


@dataclass(slots=True, eq=False)
class InstanceSupervisor:
    """One instance of a deployment, over all its restarts. Used within one event loop."""

    spec: InstanceSpec
    launcher: Launcher
    queue: TierQueue
    warm_up: WarmUp
    settings: RestartSettings
    clock: Clock
    _instance: RunningInstance | None = None
    _client: WorkerClient | None = None
    _watch: asyncio.Task[None] | None = None
    _up: bool = False
    _restarts: int = 0
    _ended: str | None = None

    async def launch(self) -> WorkerClient:
        """Start the instance, free of its share, and give a client for warming it up.

        Raises:
            LaunchFailed: If it did not get healthy.
        """
        self._instance = await self.launcher.start(self.spec)
        self._client = self._instance.client()
        return self._client

    def serve(self) -> None:
        """Limit the launched instance to its share, give it requests, and keep it running.

        Raises:
            LaunchFailed: If it cannot be limited.
        """
        self._admit()
        self._watch = asyncio.get_running_loop().create_task(self._keep_running())

    async def stop(self) -> None:
        """End the instance and leave nothing of it."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        await self._discard()

    def status(self) -> InstanceStatus:
        """Give what is known of it."""
        return InstanceStatus(
            spec=self.spec,
            running=self._instance,
            up=self._up,
            restarts=self._restarts,
            ended=self._ended,
        )

    def _admit(self) -> None:
        if self._instance is None or self._client is None:
            return
        try:
            self._instance.limit()
        except OSError as error:
            cause = f"its share cannot be enforced ({error.strerror})"
            raise LaunchFailed(str(self.spec.key), cause, "") from error
        # A replica keeps what was learnt of it when it is started again at another address.
        self.queue.add(self._client, InstanceType(name=f"replica {self.spec.key.replica}"))
        self._up = True

    async def _discard(self) -> None:
        instance, client = self._instance, self._client
        self._instance = self._client = None
        self._up = False
        if client is not None:
            self.queue.remove(client.address)
            await client.close()
        if instance is not None:
            await instance.stop()

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            if self._instance is not None:
                began = self.clock.now()
                self._ended = await self._instance.ended()
                _log.warning("instance_ended instance=%s how=%s", self.spec.key, self._ended)
                if self.clock.now() - began > self.settings.calm_s:
                    failures = 0
                await self._discard()
            failures += 1
            await asyncio.sleep(self.settings.pause_s(failures))
            await self._restart()

    async def _restart(self) -> None:
        self._restarts += 1
        try:
            client = await self.launch()
            await self.warm_up.run({self.spec.tier.name: [client]})
            self._admit()
        except LaunchFailed as error:
            _log.warning("restart_failed instance=%s cause=%s", self.spec.key, error)
            self._ended = str(error)
            await self._discard()
