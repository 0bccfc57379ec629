"""The `PipelineQuery` objects of one namespace, of several, or of all: listed, then watched.

A watch that ends goes on from the last version; one that is too old lists again and finds out
what was missed. What we wrote ourselves comes back by the watch and is no news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from circinus.api.event_log import Outage
from circinus.api.operator.definition import GROUP, PLURAL, VERSION
from circinus.deploy.kubernetes.api import Cluster, Expired, Object
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import Unavailable

_PAGE = 500  # objects
_WATCH_S = 60  # then a watch is made anew: one that died in silence is noticed by then
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0

_LOG = logging.getLogger(__name__)


def path_of_objects(namespace: str | None, name: str = "") -> str:
    """Return the path of the objects of a namespace, None: of all, or of one of them."""
    where = "" if namespace is None else f"/namespaces/{namespace}"
    return f"/apis/{GROUP}/{VERSION}{where}/{PLURAL}{'/' if name else ''}{name}"


def path_of_object(found: Object) -> str:
    """Return the path of an object."""
    return path_of_objects(found["metadata"]["namespace"], found["metadata"]["name"])


def key_of_object(found: Object) -> str:
    """Return `NAMESPACE/NAME`."""
    return f"{found['metadata']['namespace']}/{found['metadata']['name']}"


def pages_of(cluster: Cluster, path: str) -> Iterator[Object]:
    """Yield a list page by page, each with the version to watch from; raises as `Cluster` does."""
    more: dict[str, str] = {}
    while True:
        page = cluster.listed(path, limit=str(_PAGE), **more)
        yield page
        if not (token := page["metadata"].get("continue")):
            return
        more = {"continue": token}


@dataclass(slots=True, kw_only=True, eq=False)
class WatchedObjects:
    """Mirrors the objects. Safe to share between threads; each namespace has one that follows."""

    cluster: Cluster
    clock: Clock
    heard: Callable[[str], None]  # is told the key of what is new, changed or gone
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

    def wrote(self, found: Object) -> None:
        """Take an object as the cluster gave it back to who wrote it: the watch is behind."""
        with self._lock:
            known = self._objects.get(key_of_object(found))
            if known is not None and known["metadata"]["uid"] == found["metadata"]["uid"]:
                self._take(found)

    def follow(self, namespace: str | None) -> None:
        """Follow a namespace, None: all, until it is over."""
        version: str | None = None
        failures = 0
        outage = Outage(_LOG, "operator.watch_interrupted", self.clock)
        while not self.over.is_set():
            pause_s = _FIRST_PAUSE_S
            try:
                version = version or self._list(namespace)
                for version in self._watch(namespace, version):  # noqa: B007, B020 - where to go on
                    failures = 0
                outage.over()
            except Expired:
                version = None
            except Unavailable as error:
                outage.lasts(cause=str(error))
                pause_s *= 2.0**failures
                failures = min(failures + 1, 10)
            except Exception as error:  # noqa: BLE001 - the thread's edge: it begins anew
                outage.lasts(cause=f"{type(error).__name__}: {error}")
                version, pause_s = None, _LONGEST_PAUSE_S
            self.over.wait(min(pause_s, _LONGEST_PAUSE_S))

    def _list(self, namespace: str | None) -> str:
        found: list[Object] = []
        for page in pages_of(self.cluster, path_of_objects(namespace)):
            found += page["items"]
            version: str = page["metadata"]["resourceVersion"]
        there = set(map(key_of_object, found))
        for key in self.known():
            if key not in there and namespace in (None, key.partition("/")[0]):
                self._drop(key)
        for each in found:
            self._hear(each)
        self.synced.add(namespace)
        return version

    def _watch(self, namespace: str | None, version: str) -> Iterator[str]:
        """Yield the versions up to which everything was heard."""
        path = path_of_objects(namespace)
        for event in self.cluster.watch(path, version, for_s=_WATCH_S):
            if self.over.is_set():
                return
            found = event["object"]
            if event["type"] == "DELETED":
                self._drop(key_of_object(found), found["metadata"]["uid"])
            elif event["type"] != "BOOKMARK":
                self._hear(found)
            yield found["metadata"]["resourceVersion"]

    def _hear(self, found: Object) -> None:
        with self._lock:
            news = self._take(found)
        if news:
            self.heard(key_of_object(found))

    def _take(self, found: Object) -> bool:
        """Keep an object unless a newer state of it is known; give whether that is news."""
        key, metadata = key_of_object(found), found["metadata"]
        known = self._objects.get(key)
        if known is not None:
            if known["metadata"]["uid"] == metadata["uid"] and not _is_newer(found, known):
                return False
            self._keys.pop(known["metadata"]["uid"], None)
        metadata.pop("managedFields", None)  # half of an object, and nobody reads it
        self._objects[key] = found
        self._keys[metadata["uid"]] = key
        return True

    def _drop(self, key: str, uid: str | None = None) -> None:
        with self._lock:
            known = self._objects.get(key)
            if known is None or uid not in (None, known["metadata"]["uid"]):
                return
            del self._objects[key]
            del self._keys[known["metadata"]["uid"]]
        self.heard(key)


def _is_newer(found: Object, known: Object) -> bool:
    """Whether an object is of a later version; versions of one object grow."""
    return int(found["metadata"]["resourceVersion"]) > int(known["metadata"]["resourceVersion"])
