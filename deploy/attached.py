"""Workers that somebody else started: a launcher that only says where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.errors import LaunchFailed
from deploy.instances import InstanceSpec, Launcher, RunningInstance
from deploy.shares import Enforcement
from deploy.tls import TlsFiles
from deploy.workers.client import WorkerClient
from deploy.workers.transport import is_loopback, split_address

_HEALTH_S = 5.0


@dataclass(frozen=True, slots=True)
class AttachedInstance:
    """A worker that runs already, with the share that it was started with."""

    address: str
    pid: int | None = None
    tls: TlsFiles | None = None
    enforcement: Enforcement = Enforcement.NONE
    note: str = "started by somebody else"

    def limit(self) -> None:
        """Leave it as it is."""

    async def ended(self) -> str:
        """Wait for ever: nothing tells."""
        await asyncio.Event().wait()
        return ""

    async def stop(self) -> None:
        """Leave it running."""


@dataclass(frozen=True, slots=True)
class AttachedLauncher:
    """A `Launcher` for tiers whose workers are known.

    Attributes:
        addresses: Tier -> `host:port` of a worker that serves the pipeline.
        others: Starts those of the other tiers.
        tls: With what to call those on other computers; None: there are none.
    """

    addresses: Mapping[str, str]
    others: Launcher
    tls: TlsFiles | None = None

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """See `Launcher`."""
        address = self.addresses.get(spec.tier.name)
        if address is None:
            return await self.others.start(spec)
        host, _ = split_address(address)
        tls = None if is_loopback(host) else self.tls
        client = WorkerClient(address, tls)
        try:
            if not await client.healthy(timeout_s=_HEALTH_S):
                raise LaunchFailed(str(spec.key), f"nobody serves at {address}", "(no log)")
        finally:
            await client.close()
        return AttachedInstance(address, tls=tls)
