"""Leader election among controllers: the holder of the lease acts, the others wait.

A lease is a small record in the cluster (`coordination.k8s.io/v1`) with its holder and its time of
renewal. A contender takes one that was not renewed for its duration; the cluster refuses all but
one of simultaneous writes. Times of holders are never compared with ours, as clocks differ: a
lease is stale when *we* have observed it unchanged for its duration.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from circinus.api.event_log import event, trouble
from circinus.deploy.kubernetes.api import Clash, Cluster, Object, collection_of, path_of
from circinus.deploy.kubernetes.ownership import DEFAULT_RELEASE, ObjectOwner, owned_metadata
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Who leads, as the cluster has it."""

    holder: str = ""  # its identity; empty: the lease was released
    renewed: str = ""  # when the holder did last, by its own clock; to be compared for equality
    version: str | None = None  # of the record, for writing; None: there is no record


@dataclass(slots=True, kw_only=True, eq=False)
class ClusterLeases:
    """The lease of a release's operators in a namespace. Calls block, and raise as `Cluster` does.

    It belongs to the pod that wrote it last, so that none is left when the release is gone.
    """

    cluster: Cluster  # that stores it
    namespace: str  # where
    release: str = DEFAULT_RELEASE  # whose
    pod: ObjectOwner | None = None  # in which this runs; None: outside of the cluster
    # A lease not renewed for so long is anybody's, `> 0`. Kubernetes' own controllers have 15
    duration_s: float = 10.0

    def __post_init__(self) -> None:
        checks.positive("duration_s", self.duration_s)

    @property
    def name(self) -> str:
        """Its name in the cluster."""
        return f"{self.release}-operator"

    def read(self) -> Lease:
        """Return the lease; one without version if there is none."""
        manifest = self.cluster.get(path_of(self.namespace, f"Lease/{self.name}"))
        return Lease() if manifest is None else _lease(manifest)

    def write(self, lease: Lease, holder: str, *, at: float) -> Lease | None:
        """Put a holder into the lease that was read; None: another write was faster."""
        own = owned_metadata(self.pod)
        metadata = {"name": self.name, "namespace": self.namespace, **own}
        if lease.version is not None:
            metadata["resourceVersion"] = lease.version
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": holder or None,
                "leaseDurationSeconds": max(1, round(self.duration_s)),
                "renewTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        try:
            if lease.version is None:
                return _lease(self.cluster.create(collection_of("Lease", self.namespace), body))
            path = path_of(self.namespace, f"Lease/{self.name}")
            return _lease(self.cluster.replace(path, body))
        except Clash:
            return None


def _lease(manifest: Object) -> Lease:
    spec = manifest.get("spec") or {}
    return Lease(
        holder=spec.get("holderIdentity") or "",
        renewed=spec.get("renewTime") or "",
        version=manifest["metadata"]["resourceVersion"],
    )


@dataclass(slots=True, kw_only=True)
class Contender:
    """One controller's way to the lease and with it. Used within one thread at a time."""

    identity: str  # unlike that of any other
    leases: ClusterLeases
    clock: Clock
    renew_s: float = 2.0  # pause between renewals, `> 0` and below half the duration: one may fail
    tried_at: float = field(init=False)  # the last time, by its clock
    answered_at: float = field(init=False)  # when the cluster last did
    _latest: Lease | None = field(default=None, init=False)
    _latest_at: float = field(default=0.0, init=False)
    _held_until: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.tried_at = self.answered_at = self.clock.now()
        checks.positive("renew_s", self.renew_s)
        rule = "must be below half of duration_s"
        checks.require(self.renew_s < self.leases.duration_s / 2, "renew_s", rule, self.renew_s)

    @property
    def leads(self) -> bool:
        """Return whether the lease is surely ours at this moment."""
        return self._held_until is not None and self.clock.now() < self._held_until

    def tick(self) -> bool:
        """Try to get or renew the lease; return whether it is ours.

        CircinusError if the cluster does not answer, or refuses: we may lead on until it ends.
        """
        self.tried_at = tried_at = self.clock.now()
        lease = self.leases.read()
        self.answered_at = self.clock.now()
        if lease != self._latest:
            self._latest, self._latest_at = lease, tried_at
        stale = tried_at - self._latest_at >= self.leases.duration_s
        if lease.holder not in ("", self.identity) and not stale:
            self._held_until = None
            return False
        mine = self.leases.write(lease, self.identity, at=self.clock.timestamp())
        self._held_until = None if mine is None else tried_at + self.leases.duration_s
        return mine is not None

    @property
    def pause_s(self) -> float:
        """Return how long to wait for another's lease: at most until it is stale."""
        stale_s = self._latest_at + self.leases.duration_s - self.clock.now()
        return stale_s if 0.0 < stale_s < self.renew_s else self.renew_s

    def resign(self) -> None:
        """Release the lease, so that the next one need not wait for its end.

        Also one that has ended meanwhile: others count its time from their first observation.
        CircinusError if the cluster does not answer, or refuses.
        """
        if self._held_until is not None:
            self._held_until = None
            lease = self.leases.read()
            if lease.holder == self.identity:
                self.leases.write(lease, "", at=self.clock.timestamp())


async def lead(contender: Contender, act: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Act whenever the lease is ours, until cancelled.

    What acts has to end soon after its event is set. If it ends before that, so do we, with its
    error if it had one.
    """
    try:
        while True:
            while not await _renewed(contender):
                await asyncio.sleep(contender.pause_s)
            event(_LOG, "leadership.won", identity=contender.identity)
            over = asyncio.Event()
            acting = asyncio.ensure_future(act(over))
            try:
                leads = True
                while leads and not acting.done():
                    await asyncio.wait([acting], timeout=contender.renew_s)
                    leads = acting.done() or await _renewed(contender) or contender.leads
            finally:
                over.set()
                await acting
            if contender.leads:
                return
            trouble(_LOG, "leadership.lost", identity=contender.identity)
    finally:
        # If that fails, the lease ends by itself.
        await _answered(contender, contender.resign, "leadership.not_resigned")


async def _renewed(contender: Contender) -> bool:
    return await _answered(contender, contender.tick, "leadership.no_answer")


async def _answered(contender: Contender, ask: Callable[[], bool | None], otherwise: str) -> bool:
    try:
        return bool(await asyncio.to_thread(ask))
    except CircinusError as error:
        trouble(_LOG, otherwise, identity=contender.identity, reason=str(error))
        return False
