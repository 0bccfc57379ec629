"""Keeps one instance running: what ends unasked is started again, ever more patiently.

A Deployment of one pod may be scaled by hand or by a rule of the cluster's. The workers that come
of that serve as the instance does, at the same queue; who made them ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from circinus.deploy.runtime.instances import InstanceSpec, Launcher, RunningInstance
from circinus.deploy.runtime.places import InstanceType
from circinus.deploy.runtime.segments import Segment
from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError
from circinus.pipelines.model.payload import Payload, encode

_WARM_UP_S = 120.0  # longest first run of a segment: it may load a large model
# One crash should cost little, and what is broken must not eat the core.
_RESTARTS = Backoff(0.1, 30.0)
_LAST_S = 5.0  # that calls of an instance that ended may go on: a pod that is ending answers them
_CALM_S = 60.0  # who lived this long ended by accident: pauses start anew

_log = logging.getLogger(__name__)


def instance_type(spec: InstanceSpec) -> InstanceType:
    """Return the type of an instance, as queues have it.

    Those on machines of a type take alike long, and learn together. A replica elsewhere keeps what
    was learnt of it when it is started again at another address.
    """
    name = spec.machine_type or f"replica {spec.key.replica}"
    return InstanceType(name=name, places=spec.calls_at_once or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """An instance, for people."""

    spec: InstanceSpec
    running: RunningInstance | None = None  # None while it is down
    up: bool = False  # whether it takes requests now
    restarts: int = 0  # number of times it was started again
    ended: str | None = None  # how it ended last; None if it never did
    beside: tuple[str, ...] = ()  # addresses of further workers that serve as it does

    def without_handle(self) -> InstanceStatus:
        """Return the status without the means to end its instance, for any process."""
        return replace(
            self, running=None if self.running is None else self.running.without_handle()
        )


class WarmUp:
    """A first run before requests come, so that what operators load on first use is there.

    Free of share and emulated speed: loading a model at a tenth of the speed has no use. The
    inputs of each segment are stored, for restarts. A sample that fails is logged and does not
    prevent serving: other inputs may do. No endpoint is called to be warm, as calls cost; so what
    needs the answer of a call is not warmed up.
    """

    def __init__(
        self, segments: Sequence[Segment], sample: Payload | None, remote: Collection[str] = ()
    ) -> None:
        self._segments = [segment for segment in segments if segment.tier not in remote]
        self._known = {} if sample is None else {INPUT: encode(sample)}

    async def run(self, clients: Iterable[tuple[str, WorkerClient]]) -> None:
        """Warm up instances, each with its slice, segment by segment."""
        for segment, (name, client) in product(self._segments, clients):
            if name != segment.slice or not self._known.keys() >= set(segment.inputs):
                continue
            inputs = {name: self._known[name] for name in segment.inputs}
            work = (segment.operators, inputs, segment.wants)
            try:
                reply = await client.run(*work, timeout_s=_WARM_UP_S, warm_up=True)
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
    clock: Clock
    status: InstanceStatus = field(init=False)
    _client: WorkerClient | None = None
    _watch: asyncio.Task[None] | None = None
    # channels with their last calls
    _leaving: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _peers: Peers = field(init=False)
    _follow: asyncio.Task[None] | None = None  # of those beside it, while it runs

    def __post_init__(self) -> None:
        self.status = InstanceStatus(spec=self.spec)
        kind = instance_type(self.spec)
        self._peers = Peers(self.queue, kind, self._warm, self._note_beside)

    async def launch(self) -> tuple[str, WorkerClient]:
        """Start it, free of its share; return its slice and a client, or raise LaunchFailed."""
        running = await self.launcher.start(self.spec)
        self.status = replace(self.status, running=running)
        self._client = running.client()
        return self.spec.key.queue, self._client

    def serve(self) -> None:
        """Limit it to its share (LaunchFailed if it cannot be), send it requests, keep it up."""
        self._admit()
        self._watch = asyncio.get_running_loop().create_task(self._keep_running())

    async def retire(self, *, drain_s: float) -> None:
        """End it after what it has in hand, which may go on for `drain_s`; others serve on."""
        await self._watch_no_longer()
        leaving = asyncio.ensure_future(self._peers.stop(drain_s=drain_s))
        if self._client is not None:
            self.queue.remove(self._client.address)
            with contextlib.suppress(CircinusError, TimeoutError):
                async with asyncio.timeout(drain_s):
                    await self._client.settle(timeout_s=drain_s)
                    await self._client.idle()
        await leaving
        await self._discard()

    async def stop(self) -> None:
        """End the instance and leave nothing of it."""
        await self._watch_no_longer()
        await self._peers.stop()
        await self._discard()

    async def _watch_no_longer(self) -> None:
        for task in (self._watch, self._follow, *self._leaving):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def _warm(self, client: WorkerClient) -> None:
        await self.warm_up.run([(self.spec.key.queue, client)])

    def _note_beside(self, addresses: tuple[str, ...]) -> None:
        self.status = replace(self.status, beside=addresses)

    def _admit(self) -> None:
        running = self.status.running
        if running is None or self._client is None:
            return
        try:
            running.limit()
        except OSError as error:
            cause = f"its share cannot be enforced ({error.strerror})"
            raise LaunchFailed(str(self.spec.key), cause, "") from error
        self.queue.add(self._client, instance_type(self.spec))
        self.status = replace(self.status, up=True)
        follow = self._peers.follow(running)
        self._follow = asyncio.get_running_loop().create_task(follow)

    def _let_finish(self) -> None:
        """Send no more requests to an instance that ended; those in hand may be answered."""
        client, self._client = self._client, None
        if client is not None:
            self.queue.remove(client.address)
            task = asyncio.get_running_loop().create_task(_close_when_idle(client, _LAST_S))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _discard(self) -> None:
        instance, client = self.status.running, self._client
        self._client = None
        if self._follow is not None:  # those beside it serve on
            self._follow.cancel()
        self.status = replace(self.status, running=None, up=False)
        if client is not None:
            self.queue.drop(client)
            await client.close()
        if instance is not None:
            await instance.stop()

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            if self.status.running is not None:
                began = self.clock.now()
                how = await self.status.running.ended()
                self.status = replace(self.status, ended=how)  # as it is by now
                _log.warning("instance_ended instance=%s how=%s", self.spec.key, self.status.ended)
                if self.clock.now() - began > _CALM_S:
                    failures = 0
                self._let_finish()
                await self._discard()
            failures += 1
            await asyncio.sleep(_RESTARTS.pause_s(failures))
            self.status = replace(self.status, restarts=self.status.restarts + 1)
            try:
                await self.warm_up.run([await self.launch()])
                self._admit()
            except LaunchFailed as error:
                _log.warning("restart_failed instance=%s cause=%s", self.spec.key, error)
                self.status = replace(self.status, ended=str(error))
                await self._discard()


async def _close_when_idle(client: WorkerClient, longest_s: float) -> None:
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                await client.idle()
    finally:
        await client.close()


_HEALTH_S, _PAUSE_S = 2.0, 1.0
_DRAIN_S = 30.0  # for what it has in hand, once it is on its way out


@dataclass(slots=True, eq=False)
class Peers:
    """The workers beside an instance, over all its restarts. Used within one event loop."""

    queue: TierQueue
    type: InstanceType
    warm_up: Callable[[WorkerClient], Awaitable[None]]  # before it gets requests
    changed: Callable[[tuple[str, ...]], None]  # receives the addresses of those that serve
    _ways: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)  # by address
    _leaving: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _serving: set[str] = field(default_factory=set, init=False)
    _drain_s: float = field(default=_DRAIN_S, init=False)

    async def follow(self, instance: RunningInstance) -> None:
        """Serve by the workers beside an instance, as they come and go, until cancelled."""
        while True:
            there = await instance.beside(frozenset(self._ways))
            for address in self._ways.keys() - there:
                self._release(address)
            for address in sorted(there - self._ways.keys()):
                client = instance.client(address)
                self._ways[address] = asyncio.create_task(self._serve(client))

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Stop serving by all, each after its requests in hand, which may go on for `drain_s`."""
        self._drain_s = drain_s
        for address in tuple(self._ways):
            self._release(address)
        while self._leaving:
            await asyncio.wait(self._leaving)
        self._drain_s = _DRAIN_S

    def _release(self, address: str) -> None:
        task = self._ways.pop(address)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        task.cancel()

    async def _serve(self, client: WorkerClient) -> None:
        """Serve by a worker until cancelled."""
        try:
            while not await client.healthy(timeout_s=_HEALTH_S):
                await asyncio.sleep(_PAUSE_S)
            await self.warm_up(client)
            self.queue.add(client, self.type)
            self._mark(client.address, serves=True)
            _log.info("peer_serves tier=%s address=%s", self.queue.tier, client.address)
            await asyncio.Event().wait()
        finally:
            self._mark(client.address, serves=False)
            self.queue.drop(client)
            await _close_when_idle(client, self._drain_s)

    def _mark(self, address: str, *, serves: bool) -> None:
        before = set(self._serving)
        (self._serving.add if serves else self._serving.discard)(address)
        if before != self._serving:
            self.changed(tuple(sorted(self._serving)))
