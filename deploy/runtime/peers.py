"""Further workers beside an instance: whoever runs it was told to have more of them.

A Deployment of one pod may be scaled by hand or by a rule of the cluster's. What comes of that
serves as the instance does, at the same queue; who made it ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from circinus.deploy.runtime.instances import RunningInstance
from circinus.deploy.runtime.tier_queue import InstanceType, TierQueue
from circinus.deploy.workers.client import WorkerClient

_HEALTH_S, _PAUSE_S = 2.0, 1.0
_DRAIN_S = 30.0  # for what it has in hand, once it is on its way out

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Peers:
    """The workers beside an instance, over all its restarts. Used within one event loop."""

    queue: TierQueue
    type: InstanceType
    warm_up: Callable[[WorkerClient], Awaitable[None]]  # before it gets requests
    changed: Callable[[tuple[str, ...]], None]  # is told the addresses of those that serve
    _ways: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)  # by address
    _leaving: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _serving: set[str] = field(default_factory=set, init=False)
    _drain_s: float = field(default=_DRAIN_S, init=False)

    async def follow(self, instance: RunningInstance) -> None:
        """Let those serve that are beside an instance, as they come and go, until cancelled."""
        while True:
            there = await instance.beside(frozenset(self._ways))
            for address in self._ways.keys() - there:
                self._let_go(address)
            for address in sorted(there - self._ways.keys()):
                client = instance.client(address)
                self._ways[address] = asyncio.create_task(self._serve(client))

    async def stop(self, *, drain_s: float = 0.0) -> None:
        """Let all go, each after what it has in hand, which may go on for `drain_s`."""
        self._drain_s = drain_s
        for address in tuple(self._ways):
            self._let_go(address)
        while self._leaving:
            await asyncio.wait(self._leaving)
        self._drain_s = _DRAIN_S

    def _let_go(self, address: str) -> None:
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
            self._tell(client.address, serves=True)
            _log.info("peer_serves tier=%s address=%s", self.queue.tier, client.address)
            await asyncio.Event().wait()
        finally:
            self._tell(client.address, serves=False)
            self.queue.drop(client)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._drain_s):
                    await client.idle()
            await client.close()

    def _tell(self, address: str, *, serves: bool) -> None:
        before = set(self._serving)
        (self._serving.add if serves else self._serving.discard)(address)
        if before != self._serving:
            self.changed(tuple(sorted(self._serving)))
