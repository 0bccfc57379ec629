"""Keeps one instance running: what ends unasked is started again, ever more patiently."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from deploy.dispatcher import Dispatcher
from deploy.emulation import emulation_of
from deploy.errors import LaunchFailed
from deploy.instances import InstanceSpec, Launcher, RunningInstance
from deploy.shares import Enforcement
from deploy.warm_up import WarmUp
from deploy.workers.client import WorkerClient
from pipelines import checks
from pipelines.clock import Clock

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartSettings:
    """When an instance that ended is started again.

    Attributes:
        first_s: Pause before the first restart, `> 0`. Short: one crash should cost little.
        longest_s: Pauses double up to this, `> 0`. 30: a broken operator must not eat the core.
        calm_s: An instance that lived this long ended by accident: pauses start anew, `> 0`.
    """

    first_s: float = 0.1
    longest_s: float = 30.0
    calm_s: float = 60.0

    def __post_init__(self) -> None:
        checks.positive("first_s", self.first_s)
        checks.positive("longest_s", self.longest_s)
        checks.positive("calm_s", self.calm_s)

    def pause_s(self, failures: int) -> float:
        """Give the pause after so many failures in a row, `>= 1`."""
        return min(self.first_s * 2.0 ** min(failures - 1, 60), self.longest_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """An instance, for people.

    Attributes:
        tier: That it stands for.
        replica: Number among its like.
        operators: That it serves.
        up: Whether it takes requests now.
        pid: Its process, if it has one on this computer.
        address: Where it listens; None while it is down.
        share: Of one machine.
        enforcement: How the share is enforced; None while it is down.
        note: Why so, in words; may be empty.
        emulated: How the tier's speed comes about, in words.
        restarts: Number of times it was started again.
        ended: How it ended last; None if it never did.
    """

    tier: str
    replica: int
    operators: tuple[str, ...]
    up: bool
    pid: int | None
    address: str | None
    share: float
    enforcement: Enforcement | None
    note: str
    emulated: str
    restarts: int
    ended: str | None


class Supervisor:
    """One instance of a deployment, over all its restarts. Used within one event loop."""

    def __init__(
        self,
        spec: InstanceSpec,
        launcher: Launcher,
        dispatcher: Dispatcher,
        warm_up: WarmUp,
        settings: RestartSettings,
        clock: Clock,
    ) -> None:
        self.spec = spec
        self._launcher = launcher
        self._dispatcher = dispatcher
        self._warm_up = warm_up
        self._settings = settings
        self._clock = clock
        self._instance: RunningInstance | None = None
        self._client: WorkerClient | None = None
        self._watch: asyncio.Task[None] | None = None
        self._up = False
        self._restarts = 0
        self._ended: str | None = None

    async def launch(self) -> WorkerClient:
        """Start the instance, free of its share, and give a client for warming it up.

        Raises:
            LaunchFailed: If it did not get healthy.
        """
        self._instance = await self._launcher.start(self.spec)
        self._client = WorkerClient(self._instance.address, self._instance.tls)
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
        instance = self._instance
        return InstanceStatus(
            tier=self.spec.tier.name,
            replica=self.spec.key.replica,
            operators=tuple(operator.name for operator in self.spec.operators),
            up=self._up,
            pid=instance.pid if instance else None,
            address=instance.address if instance else None,
            share=self.spec.share,
            enforcement=instance.enforcement if instance else None,
            note=instance.note if instance else "",
            emulated=emulation_of(self.spec.tier),
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
        self._dispatcher.add(self.spec.tier.name, self._client, self.spec.key.replica)
        self._up = True

    async def _discard(self) -> None:
        instance, client = self._instance, self._client
        self._instance = self._client = None
        self._up = False
        if client is not None:
            self._dispatcher.remove(self.spec.tier.name, client.address)
            await client.close()
        if instance is not None:
            await instance.stop()

    async def _keep_running(self) -> None:
        failures = 0
        while True:
            if self._instance is not None:
                began = self._clock.now()
                self._ended = await self._instance.ended()
                _log.warning("instance_ended instance=%s how=%s", self.spec.key, self._ended)
                if self._clock.now() - began > self._settings.calm_s:
                    failures = 0
                await self._discard()
            failures += 1
            await asyncio.sleep(self._settings.pause_s(failures))
            await self._restart()

    async def _restart(self) -> None:
        self._restarts += 1
        try:
            client = await self.launch()
            await self._warm_up.one(self.spec.tier.name, client)
            self._admit()
        except LaunchFailed as error:
            _log.warning("restart_failed instance=%s cause=%s", self.spec.key, error)
            self._ended = str(error)
            await self._discard()
