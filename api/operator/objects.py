"""The `PipelineQuery` objects of one namespace, of several, or of all, as the cluster has them.

The watch returns our own writes, which are no news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock

from circinus.api.event_log import Outage
from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.mirror import Reflector
from circinus.deploy.kubernetes.ownership import queries_path
from circinus.pipelines.clock import Clock

_LOG = logging.getLogger(__name__)


def key_of_object(obj: Object) -> str:
    """Return `NAMESPACE/NAME`."""
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


@dataclass(slots=True, kw_only=True, eq=False)
class WatchedObjects:
    """Mirrors the objects. Safe to share between threads; each namespace has one that follows."""

    cluster: Cluster
    clock: Clock
    on_change: Callable[[str], None]  # takes the key of what is new, changed or gone
    over: Event = field(default_factory=Event)  # set: nothing more is followed
    synced: set[str | None] = field(default_factory=set, init=False)  # namespaces known whole
    _objects: dict[str, Object] = field(default_factory=dict, init=False)
    _keys: dict[str, str] = field(default_factory=dict, init=False)  # uid -> key
    _lock: Lock = field(default_factory=Lock, init=False)

    def get(self, key: str) -> Object | None:
        """Return an object as far as is known; not to be changed. None: there is none."""
        return self._objects.get(key)

    def key_of_uid(self, uid: str) -> str | None:
        """Return the key of the object of a uid; None: there is none."""
        return self._keys.get(uid)

    def known(self) -> Sequence[str]:
        """Return the keys of all."""
        with self._lock:
            return tuple(self._objects)

    def wrote(self, obj: Object) -> None:
        """Store an object as the cluster returned it to a write: the watch is behind."""
        with self._lock:
            known = self._objects.get(key_of_object(obj))
            if known is not None and known["metadata"]["uid"] == obj["metadata"]["uid"]:
                self._take(obj)

    def follow(self, namespace: str | None) -> None:
        """Follow a namespace, None: all, until it is over."""
        outage = Outage(_LOG, "operator.watch_interrupted", self.clock)
        Reflector(
            cluster=self.cluster,
            path=queries_path(namespace),
            listed=partial(self._ingest_all, namespace),
            changed=self._ingest,
            failed=lambda error: outage.lasts(cause=f"{type(error).__name__}: {error}"),
            recovered=outage.over,
            over=self.over,
        ).run()

    def _ingest_all(self, namespace: str | None, objects: Sequence[Object]) -> None:
        there = set(map(key_of_object, objects))
        for key in self.known():
            if key not in there and namespace in (None, key.partition("/")[0]):
                self._drop(key)
        for each in objects:
            self._ingest("ADDED", each)
        self.synced.add(namespace)

    def _ingest(self, kind: str, changed: Object) -> None:
        key = key_of_object(changed)
        if kind == "DELETED":
            self._drop(key, changed["metadata"]["uid"])
            return
        with self._lock:
            news = self._take(changed)
        if news:
            self.on_change(key)

    def _take(self, obj: Object) -> bool:
        """Store an object unless a newer state of it is known; return whether that is news."""
        key, metadata = key_of_object(obj), obj["metadata"]
        known = self._objects.get(key)
        if known is not None:
            before = known["metadata"]
            newer = int(metadata["resourceVersion"]) > int(before["resourceVersion"])
            if before["uid"] == metadata["uid"] and not newer:  # versions of one object grow
                return False
            self._keys.pop(before["uid"], None)
        metadata.pop("managedFields", None)  # half of an object, and unused
        self._objects[key] = obj
        self._keys[metadata["uid"]] = key
        return True

    def _drop(self, key: str, uid: str | None = None) -> None:
        with self._lock:
            known = self._objects.get(key)
            if known is None or uid not in (None, known["metadata"]["uid"]):
                return
            del self._objects[key]
            del self._keys[known["metadata"]["uid"]]
        self.on_change(key)
