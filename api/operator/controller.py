"""A controller: watches objects, reads the service's queries once a tick, looks at what changed.

An object is looked at when the cluster tells of it, when its queries changed, and seldom besides,
so that whatever was lost comes to light. Few workers look, so a thousand objects at once are no
storm. Blocking calls in threads; it ends soon after it is told to.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Event, Thread

from circinus.api.client import Client
from circinus.api.event_log import Outage
from circinus.api.operator.elsewhere import SWEEP_S, Elsewhere
from circinus.api.operator.looking import Looks, Ours, everything
from circinus.api.operator.objects import WatchedObjects
from circinus.api.operator.queries import QueryBook
from circinus.api.operator.telling import EventTeller
from circinus.api.operator.work import WorkQueue
from circinus.deploy.kubernetes.api import Cluster
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError

WORKERS = 4
"""Looks at once. A look waits for four answers; more would take what the service needs."""
_PATIENCE_S = 10.0  # with a service that does not answer, such as one that is started again
_STUCK_S = 300.0  # of a look, or between two ticks: something hangs
_LEAVING_S = 20.0  # for the looks in hand, when it is told to end
_BROKEN = Backoff(first_s=1.0, longest_s=60.0)

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Controller:
    """Follows the objects of some namespaces. Runs once."""

    cluster: Cluster
    service: Client
    namespaces: Sequence[str | None]  # each is followed; None: all of the cluster
    identity: str  # who it is, for events
    clock: Clock
    tick_s: float  # between two readings of the service's queries, `> 0`
    elsewhere: bool = False  # whether it may tell objects of other namespaces
    ours: Ours = everything
    queue: WorkQueue = field(init=False)
    objects: WatchedObjects = field(init=False)
    looks: Looks = field(init=False)
    _over: Event = field(default_factory=Event, init=False)
    _ticked_at: float = field(init=False)
    _answered_at: float = field(init=False)
    _outage: Outage = field(init=False)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(clock=self.clock)
        self.objects = WatchedObjects(
            cluster=self.cluster, clock=self.clock, on_change=self.queue.add, over=self._over
        )
        self.looks = Looks(
            cluster=self.cluster,
            objects=self.objects,
            book=QueryBook(service=self.service),
            teller=EventTeller(cluster=self.cluster, identity=self.identity, clock=self.clock),
            clock=self.clock,
            ours=self.ours,
        )
        self._ticked_at = self._answered_at = self.clock.now()
        self._outage = Outage(_LOG, "operator.service_silent", self.clock)

    def run(self) -> None:
        """Follow until stopped."""
        self.tick()  # before the first look, which would ask for each query by itself
        for namespace in self.namespaces:
            name = f"watch {namespace or 'all'}"
            Thread(target=self.objects.follow, args=[namespace], name=name, daemon=True).start()
        if self.elsewhere and None not in self.namespaces:
            Thread(target=self._sweep, name="elsewhere", daemon=True).start()
        with_hands = ThreadPoolExecutor(WORKERS, thread_name_prefix="look")
        working = [with_hands.submit(self._work) for _ in range(WORKERS)]
        try:
            while not self._over.wait(self.tick_s):
                self.tick()
        finally:
            self.stop()
            wait(working, timeout=_LEAVING_S)
            with_hands.shutdown(wait=False, cancel_futures=True)

    def stop(self) -> None:
        """Let it end: no look begins any more."""
        self._over.set()
        self.queue.close()

    def tick(self) -> None:
        """Read the service's queries; let objects be looked at whose queries changed."""
        self._ticked_at = self.clock.now()
        try:
            changed = self.looks.book.read()
        except CircinusError as error:
            self._outage.lasts(cause=str(error))
            if self.looks.outage is None and self._ticked_at - self._answered_at > _PATIENCE_S:
                self._look_at_all(str(error))
            return
        except Exception:  # noqa: BLE001 - the next tick goes on
            _LOG.exception("operator.tick_failed")
            return
        self._outage.over()
        self._answered_at = self.clock.now()
        if self.looks.outage is not None:
            self._look_at_all(None)
        for key in filter(None, map(self.objects.key_of_uid, changed)):
            self.queue.add(key)

    def _look_at_all(self, outage: str | None) -> None:
        self.looks.outage = outage
        for key in self.objects.known():
            self.queue.add(key)

    def _work(self) -> None:
        while (key := self.queue.take()) is not None:
            again: Backoff | float | None = _BROKEN
            try:
                again = self.looks.look(key)
            except Exception:  # noqa: BLE001 - the thread's edge: the next look goes on
                _LOG.exception("operator.look_failed object=%s", key)
            finally:
                self.queue.done(key, again)

    def _sweep(self) -> None:
        told = Elsewhere(
            cluster=self.cluster,
            followed=frozenset(filter(None, self.namespaces)),
            teller=self.looks.teller,
            clock=self.clock,
        )
        outage = Outage(_LOG, "operator.elsewhere_unseen", self.clock)
        while not self._over.is_set():
            try:
                told.sweep()
                outage.over()
            except Exception as error:  # noqa: BLE001 - the thread's edge: the next one goes on
                outage.lasts(cause=f"{type(error).__name__}: {error}")
            self._over.wait(SWEEP_S)

    def stuck(self) -> list[str]:
        """Return what hangs, in words."""
        now = self.clock.now()
        since = {f"the look at {key}": at for key, at in self.queue.in_hand.items()}
        since["reading the service's queries"] = self._ticked_at
        return [
            f"{what} lasts {now - at:.0f} s" for what, at in since.items() if now - at > _STUCK_S
        ]

    def unsynced(self) -> list[str]:
        """Return what is not known yet, in words."""
        return [
            f"the objects of {namespace or 'all namespaces'} are not listed yet"
            for namespace in self.namespaces
            if namespace not in self.objects.synced
        ]
