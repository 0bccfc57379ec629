"""Reconciles one object: hold it, call the service, write changes, publish events.

Also the only code that decides whether an object is ours: nothing is written to it before.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeAlias
from zlib import crc32

from circinus.api.client import Refused
from circinus.api.event_log import trouble
from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.following import (
    REFUSED,
    Event,
    QueryObject,
    Status,
    follow,
    release,
    transition,
)
from circinus.api.operator.objects import WatchedObjects
from circinus.api.operator.queries import QueryBook
from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, Object
from circinus.deploy.kubernetes.diagnosis import EventReporter
from circinus.deploy.kubernetes.ownership import API_VERSION, KIND, query_path
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError, Unavailable

_COMPONENT = "circinus-operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPublisher:
    """Makes events of objects. Safe to share between threads."""

    cluster: Cluster
    identity: str  # of the reporter
    clock: Clock

    def publish(self, obj: Object, events: Iterable[Event]) -> None:
        """Publish events of an object; events that the cluster refuses are only logged."""
        reporter = EventReporter(component=_COMPONENT, instance=self.identity)
        of = {**obj, "apiVersion": API_VERSION, "kind": KIND}  # lists leave them out
        for event in events:
            try:
                namespace = obj["metadata"]["namespace"]
                path = f"/api/v1/namespaces/{namespace}/events"
                document = reporter.event(
                    of,
                    event.reason,
                    event.message,
                    warning=event.warning,
                    at_s=self.clock.timestamp(),
                )
                self.cluster.create(path, document)
            except CircinusError as error:
                uid = obj["metadata"]["uid"]
                trouble(_LOG, "operator.event_not_told", uid=uid, event=event, reason=str(error))


REST_S = 300.0
"""After so many seconds without news an object is reconciled again."""
_REFUSED_SPEC = Backoff(first_s=1.0, longest_s=300.0)  # the pipeline may be registered later
_STOPPING = Backoff(first_s=0.5, longest_s=2.0)
_OVERTAKEN = Backoff(first_s=0.1, longest_s=5.0)
_UNHEARD = Backoff(first_s=15.0, longest_s=15.0)  # the end of an outage is noticed
_LONGEST_S = 30.0  # between two tries of what the service or the cluster cannot answer now
_REFUSED_BACKOFF = Backoff(first_s=1.0, longest_s=60.0)
_REMEMBERED = 10_000  # retirements

Ours: TypeAlias = Callable[[Object], bool]
"""Whether this operator reconciles an object. Called at every look, before anything is written;
may write to the cluster itself, and raise as `Cluster` does."""

_LOG = logging.getLogger(__name__)


def everything(_: Object) -> bool:
    """Whatever is in a namespace that is followed."""
    return True


@dataclass(slots=True, kw_only=True, eq=False)
class ObjectReconciler:
    """Reconciles objects. Safe to share between threads, which take different objects."""

    cluster: Cluster
    objects: WatchedObjects
    book: QueryBook
    publisher: EventPublisher
    clock: Clock
    ours: Ours = everything
    outage: str | None = field(default=None, init=False)  # why the service cannot be called
    _retired: OrderedDict[tuple[str, str], None] = field(default_factory=OrderedDict, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def reconcile(self, key: str) -> Backoff | float | None:
        """Reconcile an object; return when to do so again without news of it; None: never."""
        obj = self.objects.get(key)
        if obj is None:
            return None
        try:
            if not self.ours(obj):
                return REST_S
            if obj["metadata"].get("deletionTimestamp"):
                return self._let_go(obj)
            return self._follow(obj)
        except Absent:  # it was deleted meanwhile: the watch is behind
            return None
        except Clash:  # another write was faster: the watch has it soon
            return _OVERTAKEN
        except Unavailable as error:
            return _no_answer(error)
        except CircinusError as error:
            trouble(_LOG, "operator.refused", object=key, reason=str(error))
            return _REFUSED_BACKOFF

    def _follow(self, obj: Object) -> Backoff | float | None:
        if FINALIZER not in (held := obj["metadata"].get("finalizers") or []):
            obj = self._write(obj, {"metadata": {"finalizers": [*held, FINALIZER]}})
        target = QueryObject.of(obj)
        status, events, again = self._ask_service(target)
        self.publisher.publish(obj, self._unreported(target.uid, events))
        document = status.document(target.status, at=self.clock.timestamp())
        if changed := {k: v for k, v in document.items() if target.status.get(k) != v}:
            obj = self._write(obj, {"status": changed}, part="/status")
        self.publisher.publish(obj, transition(target.status, document))
        # Another part of the time for each object, so that they spread.
        return again or REST_S * (0.75 + 0.25 * crc32(target.uid.encode()) / 2**32)

    def _ask_service(self, target: QueryObject) -> tuple[Status, list[Event], Backoff | None]:
        """Return the status, events, and when to call again if not at rest."""
        if self.outage is not None:
            return Status.unreachable(target, self.outage), [], _UNHEARD
        try:
            status, events = follow(target, self.book)
        except Unavailable as error:
            return Status.unreachable(target, str(error)), [], _no_answer(error)
        except Refused as error:  # such as a token that the service does not know
            trouble(_LOG, "operator.refused", uid=target.uid, reason=str(error))
            return Status.unreachable(target, str(error)), [], _REFUSED_BACKOFF
        refused = status.facts["phase"] == REFUSED
        return status, events, _REFUSED_SPEC if refused else None

    def _let_go(self, obj: Object) -> Backoff | float | None:
        """Stop the queries of an object; release it when none of them runs."""
        held = obj["metadata"].get("finalizers") or []
        if FINALIZER not in held:
            return None
        if release(QueryObject.of(obj), self.book):
            return _STOPPING
        rest = [name for name in held if name != FINALIZER]
        self._write(obj, {"metadata": {"finalizers": rest}})
        return None

    def _write(self, obj: Object, change: Mapping[str, Any], part: str = "") -> Object:
        """Merge a change into an object; Clash if it was changed, or made anew, meanwhile."""
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        whole = {**change, "metadata": {**change.get("metadata", {}), **version}}
        written = self.cluster.merge(f"{query_path(obj)}{part}", whole)
        self.objects.wrote(written)
        return written

    def _unreported(self, uid: str, events: Iterable[Event]) -> Iterator[Event]:
        """Yield unpublished events: a query that is slow to stop is stopped at every look."""
        for event in events:
            with self._lock:
                known = (uid, event.message) in self._retired
                self._retired[uid, event.message] = None
                while len(self._retired) > _REMEMBERED:
                    self._retired.popitem(last=False)
            if not known:
                yield event


def _no_answer(error: Unavailable) -> Backoff:
    first_s = max(error.retry_after_s, 1.0)
    return Backoff(first_s=first_s, longest_s=max(first_s, _LONGEST_S))
