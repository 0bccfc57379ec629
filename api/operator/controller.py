"""A controller: watches objects, reads the service's queries once a tick, reconciles changes.

An object is reconciled after events of the cluster, after changes of its queries, and at long
intervals, which finds missed changes. A few workers do it, so that a thousand objects at once do
not flood the service.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from threading import Condition, Event, Thread

from circinus.api.client import Client
from circinus.api.event_log import Outage, trouble
from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.following import QueryObject, Status, transition
from circinus.api.operator.objects import WatchedObjects
from circinus.api.operator.queries import QueryBook
from circinus.api.operator.reconciling import EventPublisher, ObjectReconciler, Ours, everything
from circinus.deploy.kubernetes.api import Cluster, ClusterRefused, Object
from circinus.deploy.kubernetes.ownership import queries_path, query_path
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError

WORKERS = 4
"""Looks at once. A look waits for four answers; more would take what the service needs."""
_PATIENCE_S = 10.0  # with a service that does not answer, such as one that is started again
_STUCK_S = 300.0  # of a look, or between two ticks: something hangs
_LEAVING_S = 20.0  # for the looks in hand, when it is to end
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
    elsewhere: bool = False  # whether it may mark objects of other namespaces
    ours: Ours = everything
    queue: WorkQueue = field(init=False)
    objects: WatchedObjects = field(init=False)
    reconciler: ObjectReconciler = field(init=False)
    _over: Event = field(default_factory=Event, init=False)
    _ticked_at: float = field(init=False)
    _answered_at: float = field(init=False)
    _outage: Outage = field(init=False)

    def __post_init__(self) -> None:
        self.queue = WorkQueue(clock=self.clock)
        self.objects = WatchedObjects(
            cluster=self.cluster, clock=self.clock, on_change=self.queue.add, over=self._over
        )
        self.reconciler = ObjectReconciler(
            cluster=self.cluster,
            objects=self.objects,
            book=QueryBook(service=self.service),
            publisher=EventPublisher(
                cluster=self.cluster, identity=self.identity, clock=self.clock
            ),
            clock=self.clock,
            ours=self.ours,
        )
        self._ticked_at = self._answered_at = self.clock.now()
        self._outage = Outage(_LOG, "operator.service_silent", self.clock)

    def run(self) -> None:
        """Follow until stopped."""
        self.tick()  # before the first look, which would request each query by itself
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
        """End it: no object is reconciled any more."""
        self._over.set()
        self.queue.close()

    def tick(self) -> None:
        """Read the service's queries; let objects be looked at whose queries changed."""
        self._ticked_at = self.clock.now()
        try:
            changed = self.reconciler.book.read()
        except CircinusError as error:
            self._outage.lasts(cause=str(error))
            if (
                self.reconciler.outage is None
                and self._ticked_at - self._answered_at > _PATIENCE_S
            ):
                self._reconcile_all(str(error))
            return
        except Exception:  # noqa: BLE001 - the next tick goes on
            _LOG.exception("operator.tick_failed")
            return
        self._outage.over()
        self._answered_at = self.clock.now()
        if self.reconciler.outage is not None:
            self._reconcile_all(None)
        for key in filter(None, map(self.objects.key_of_uid, changed)):
            self.queue.add(key)

    def _reconcile_all(self, outage: str | None) -> None:
        self.reconciler.outage = outage
        for key in self.objects.known():
            self.queue.add(key)

    def _work(self) -> None:
        while (key := self.queue.take()) is not None:
            again: Backoff | float | None = _BROKEN
            try:
                again = self.reconciler.reconcile(key)
            except Exception:  # noqa: BLE001 - the thread's edge: the next look goes on
                _LOG.exception("operator.look_failed object=%s", key)
            finally:
                self.queue.done(key, again)

    def _sweep(self) -> None:
        elsewhere = Elsewhere(
            cluster=self.cluster,
            followed=frozenset(filter(None, self.namespaces)),
            publisher=self.reconciler.publisher,
            clock=self.clock,
        )
        outage = Outage(_LOG, "operator.elsewhere_unseen", self.clock)
        while not self._over.is_set():
            try:
                elsewhere.sweep()
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


@dataclass(slots=True, kw_only=True, eq=False)
class WorkQueue:
    """Keys of objects and when each is due. Safe to share between threads."""

    clock: Clock
    _due: dict[str, float] = field(default_factory=dict, init=False)  # key -> when
    _order: list[tuple[float, str]] = field(default_factory=list, init=False)  # may have old ones
    _in_hand: dict[str, float] = field(default_factory=dict, init=False)  # key -> since when
    _times: dict[str, int] = field(default_factory=dict, init=False)  # key -> in a row
    _changed: Condition = field(default_factory=Condition, init=False)
    _closed: bool = field(default=False, init=False)

    def add(self, key: str) -> None:
        """Make an object due now: something about it changed."""
        with self._changed:
            self._times.pop(key, None)
            self._put(key, self.clock.now())

    def take(self) -> str | None:
        """Wait for an object that is due and return it; None: the queue is closed."""
        with self._changed:
            while not self._closed:
                picked = self._pick()
                if isinstance(picked, str):
                    return picked
                self._changed.wait(picked)
            return None

    def ready(self) -> str | None:
        """Return an object that is due, as `take`; None: there is none now."""
        with self._changed:
            picked = self._pick()
            return picked if isinstance(picked, str) else None

    def done(self, key: str, again: Backoff | float | None) -> None:
        """Return a key that was taken, due again by a back-off, in so many seconds, or not."""
        with self._changed:
            self._in_hand.pop(key, None)
            if isinstance(again, Backoff):
                self._times[key] = times = self._times.get(key, 0) + 1
                again = again.pause_s(times)
            else:
                self._times.pop(key, None)
            if again is not None:
                self._put(key, self.clock.now() + again)
            self._changed.notify_all()  # it may have been added meanwhile

    def close(self) -> None:
        """Close the queue: `take` returns None."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def in_hand(self) -> Mapping[str, float]:
        """Return what workers have, and since when."""
        with self._changed:
            return dict(self._in_hand)

    def __len__(self) -> int:
        """Return how many objects are to be looked at some time."""
        return len(self._due)

    def _put(self, key: str, when: float) -> None:
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            heapq.heappush(self._order, (when, key))
            self._changed.notify_all()  # who waits for a later one waits too long now

    def _pick(self) -> str | float | None:
        """Return a due key, else the seconds until one is; None: when one is added."""
        now, held = self.clock.now(), []
        try:
            while self._order:
                when, key = self._order[0]
                if self._due.get(key) != when:  # it was due earlier, and is done
                    heapq.heappop(self._order)
                elif when > now:
                    return when - now
                elif key in self._in_hand:
                    held.append(heapq.heappop(self._order))
                else:
                    heapq.heappop(self._order)
                    del self._due[key]
                    self._in_hand[key] = now
                    return key
            return None
        finally:
            for entry in held:
                heapq.heappush(self._order, entry)


SWEEP_S = 30.0
"""Between two sweeps."""


@dataclass(slots=True, kw_only=True, eq=False)
class Elsewhere:
    """Looks after objects outside of the namespaces that are followed. For one thread."""

    cluster: Cluster
    followed: Collection[str]  # namespaces
    publisher: EventPublisher
    clock: Clock
    _alone: frozenset[str] = field(default=frozenset(), init=False)  # uids, at the last sweep

    def sweep(self) -> int:
        """Mark every object without a controller; return how many. Raises as `Cluster` does."""
        alone = [
            obj
            for obj in self.cluster.listed_whole(queries_path(None))["items"]
            if self._is_alone(obj)
        ]
        still = [obj for obj in alone if obj["metadata"]["uid"] in self._alone]
        self._alone = frozenset(obj["metadata"]["uid"] for obj in alone)
        return sum(map(self._tell, still))

    def _is_alone(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        met = FINALIZER in metadata.get("finalizers", ()) or obj.get("status")
        return metadata["namespace"] not in self.followed and not met

    def _tell(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        message = (
            f"no operator follows namespace {metadata['namespace']}: this one follows "
            f"{', '.join(sorted(self.followed))}. Let it be started with --namespace "
            f"{metadata['namespace']} or --all-namespaces, or make the object there."
        )
        status = Status.unwatched(metadata["generation"], message)
        document = status.document({}, at=self.clock.timestamp())
        version = {"resourceVersion": metadata["resourceVersion"]}
        change = {"metadata": version, "status": document}
        try:
            self.cluster.merge(f"{query_path(obj)}/status", change)
        except ClusterRefused as error:  # it changed, or was deleted; or permissions lack
            trouble(_LOG, "operator.elsewhere_not_told", uid=metadata["uid"], reason=str(error))
            return False
        self.publisher.publish(obj, transition(QueryObject.of(obj).status, document))
        return True
