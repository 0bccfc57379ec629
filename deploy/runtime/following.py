"""Several senders of requests to the same instances: one orchestrator makes them, others follow.

Who follows has a dispatcher of its own for each plan, and starts and ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from circinus.deploy.runtime.instances import DesiredDeployment, InstanceSpec, RunningInstance
from circinus.deploy.workers.client import answers
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.shares import enforcement_for
from circinus.deploy.workers.transport import LARGEST_MESSAGE

_HEALTH_S = 2.0
_LOOK_S = 0.5  # between two looks at an instance that is known and does not answer yet


class Followers(Protocol):
    """Other senders of requests to the instances of an orchestrator."""

    async def left(self) -> None:
        """Return when they know what serves now, and have nothing in hand of what does not.

        Or when they had time enough for it: a silent one delays no other for long.
        """


class NoFollowers:
    """No process follows."""

    async def left(self) -> None:
        """See `Followers`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedDeployment:
    """A plan that serves, as others who send it requests have to know it."""

    desired: DesiredDeployment  # without a sample: its instances are warm
    addresses: Mapping[str, str]  # of the instances that are up, by their keys in words

    @property
    def known(self) -> object:
        """What equals only where others have nothing to change."""
        return (self.desired.goal, self.desired.deadline_s, sorted(self.addresses.items()))


@dataclass(slots=True, eq=False)
class AddressedLauncher:
    """A `Launcher` that starts nothing: instances of this computer listen at known addresses.

    Used within one event loop.
    """

    message_bytes: int = LARGEST_MESSAGE  # of the largest call or answer
    patience_s: float = 60.0  # until an instance is known and answers
    _addresses: Mapping[str, str] = field(default_factory=dict, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def set_addresses(self, addresses: Mapping[str, str]) -> None:
        """Take the addresses of all instances that are up, by their keys in words."""
        self._addresses = dict(addresses)
        self._changed.set()
        self._changed = asyncio.Event()

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        """See `Launcher`."""
        name = str(spec.key)
        try:
            async with asyncio.timeout(self.patience_s):
                while (address := await self._answering(name)) is None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_S):
                            await self._changed.wait()
        except TimeoutError as error:
            where = self._addresses.get(name, "an address that is known")
            cause = f"nobody answers at {where} within {self.patience_s:g} s"
            raise LaunchFailed(name, cause, "(no log)") from error
        return _AddressedInstance(
            address=address,
            enforcement=enforcement_for(spec.operators, spec.share, cgroups=True),
            note="started by somebody else",
            message_bytes=self.message_bytes,
            name=name,
            launcher=self,
        )

    async def gone(self, name: str, address: str) -> None:
        """Return when an instance is not at an address any more."""
        while self._addresses.get(name) == address:
            await self._changed.wait()

    async def _answering(self, name: str) -> str | None:
        address = self._addresses.get(name)
        if address is None or not await answers(address, None, timeout_s=_HEALTH_S):
            return None
        return address


@dataclass(slots=True, kw_only=True, eq=False)
class _AddressedInstance(RunningInstance):
    name: str
    launcher: AddressedLauncher

    async def ended(self) -> str:
        await self.launcher.gone(self.name, self.address)
        return f"it is not at {self.address} any more"
