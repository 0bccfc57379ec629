"""One of several controllers leads: who holds the lease acts, the others wait.

A lease is a small record in the cluster with its holder and when that last renewed it. Whoever
finds it not renewed for its duration takes it; the cluster refuses all but one of those who try at
once. Times of holders are never compared with ours, as clocks differ: a lease is stale when *we*
have seen it unchanged for its duration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from api.event_log import event, trouble
from deploy.kubernetes.leases import Lease
from pipelines import checks
from pipelines.clock import Clock
from pipelines.errors import CircinusError

_LOG = logging.getLogger(__name__)


class Leases(Protocol):
    """Keeps the lease. Calls block."""

    def read(self) -> Lease:
        """Give the lease; one without version if there is none.

        Raises:
            CircinusError: If the cluster does not answer, or says no.
        """

    def write(self, lease: Lease, holder: str, *, at: float) -> Lease | None:
        """Put a holder, renewed at that time, into the lease that was read.

        None: somebody else was faster.

        Raises:
            CircinusError: If the cluster does not answer, or says no.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadershipSettings:
    """How long a lease lasts.

    Attributes:
        duration_s: A lease not renewed for so long is anybody's, `> 0`. 15: as Kubernetes' own
            controllers.
        renew_s: Pause between renewals, `> 0` and below half the duration: one may fail.
    """

    duration_s: float = 15.0
    renew_s: float = 3.0

    def __post_init__(self) -> None:
        checks.positive("duration_s", self.duration_s)
        checks.positive("renew_s", self.renew_s)
        rule = "must be below half of duration_s"
        checks.require(self.renew_s < self.duration_s / 2, "renew_s", rule, self.renew_s)


@dataclass(slots=True, kw_only=True)
class Candidate:
    """One controller's way to the lease and with it. Used within one thread at a time.

    Attributes:
        identity: Unlike that of any other.
        leases: With the lease.
        clock: Says when.
        settings: How long it lasts.
    """

    identity: str
    leases: Leases
    clock: Clock
    settings: LeadershipSettings
    _seen: Lease | None = field(default=None, init=False)
    _seen_at: float = field(default=0.0, init=False)
    _held_until: float | None = field(default=None, init=False)

    @property
    def leads(self) -> bool:
        """Whether the lease is surely ours at this moment."""
        return self._held_until is not None and self.clock.now() < self._held_until

    def tick(self) -> bool:
        """Try to get or renew the lease; give whether it is ours.

        Raises:
            CircinusError: If the cluster does not answer, or says no. We may lead on until the
                lease ends.
        """
        asked = self.clock.now()
        lease = self.leases.read()
        if self._seen is None or lease != self._seen:
            self._seen, self._seen_at = lease, asked
        stale = asked - self._seen_at >= self.settings.duration_s
        if lease.holder not in ("", self.identity) and not stale:
            self._held_until = None
            return False
        mine = self.leases.write(lease, self.identity, at=self.clock.timestamp())
        self._held_until = None if mine is None else asked + self.settings.duration_s
        return mine is not None

    def resign(self) -> None:
        """Give the lease up, so that the next one need not wait for its end.

        Also one that has ended meanwhile: others count its time from when they saw it.

        Raises:
            CircinusError: If the cluster does not answer, or says no.
        """
        if self._held_until is not None:
            self._held_until = None
            lease = self.leases.read()
            if lease.holder == self.identity:
                self.leases.write(lease, "", at=self.clock.timestamp())


async def lead(candidate: Candidate, act: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Act whenever the lease is ours, until cancelled.

    Args:
        candidate: Goes for the lease.
        act: Runs while we lead; it has to end soon after its event is set. If it ends before
            that, so do we, with its error if it had one.
    """
    try:
        while not await _tried(candidate):
            await asyncio.sleep(candidate.settings.renew_s)
        while True:
            event(_LOG, "leadership.won", identity=candidate.identity)
            over = asyncio.Event()
            acting = asyncio.ensure_future(act(over))
            try:
                await _held(candidate, acting)
            finally:
                over.set()
                await acting
            if candidate.leads:
                return
            trouble(_LOG, "leadership.lost", identity=candidate.identity)
            while not await _tried(candidate):
                await asyncio.sleep(candidate.settings.renew_s)
    finally:
        await _resigned(candidate)


async def _held(candidate: Candidate, acting: asyncio.Future[None]) -> None:
    """Return when the lease is lost, or the acting is over."""
    while not acting.done():
        await asyncio.wait([acting], timeout=candidate.settings.renew_s)
        if not acting.done() and not await _tried(candidate) and not candidate.leads:
            return


async def _tried(candidate: Candidate) -> bool:
    try:
        return await asyncio.to_thread(candidate.tick)
    except CircinusError as error:
        trouble(_LOG, "leadership.no_answer", identity=candidate.identity, reason=str(error))
        return False


async def _resigned(candidate: Candidate) -> None:
    try:
        await asyncio.to_thread(candidate.resign)
    except CircinusError as error:  # then it ends by itself
        trouble(_LOG, "leadership.not_resigned", identity=candidate.identity, reason=str(error))
