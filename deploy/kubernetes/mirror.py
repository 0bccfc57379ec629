"""A collection of a cluster, mirrored: listed once, then followed by watching.

What a watch may lose does not matter: when it ends, breaks or is too old, it goes on from the last
version or lists again, and whoever listens is given the whole collection every time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event, Thread

from circinus.deploy.kubernetes.api import Cluster, Expired, Object
from circinus.deploy.kubernetes.capacity.paging import in_pages
from circinus.pipelines.errors import CircinusError, Unavailable

Heard = Callable[[Mapping[str, Object]], None]
"""Is given all objects by name, after every change. Called in the mirror's thread."""

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_WATCH_S = 240

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Mirror:
    """Follows a collection, in a thread of its own."""

    cluster: Cluster  # with the collection
    path: str  # of the collection
    heard: Heard  # is given its objects; an error of it is logged and changes nothing
    selector: str = ""  # only objects with these labels; empty: all
    fields: str = ""  # only objects with these fields; empty: all
    _over: Event = field(default_factory=Event, init=False)
    _objects: dict[str, Object] = field(default_factory=dict, init=False)
    _version: str | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def start(self) -> None:
        """Begin to follow; returns at once."""
        Thread(target=self.run, name=f"mirror {self.path}", daemon=True).start()

    def stop(self) -> None:
        """Tell nothing more. The thread ends with its watch, or with the process."""
        self._over.set()

    def run(self) -> None:
        """Follow until stopped."""
        while not self._over.is_set():
            try:
                self.step()
                self._failures = 0
            except CircinusError as error:
                self._give_up(error)
            except Exception:  # noqa: BLE001 - the thread's edge: the next step goes on
                _log.exception("mirror_failed path=%s", self.path)
                self._give_up(None)

    def step(self) -> None:
        """List if nothing is known, then follow one watch to its end; raises as `Cluster` does."""
        chosen = {"labelSelector": self.selector, "fieldSelector": self.fields}
        query = {name: value for name, value in chosen.items() if value}
        if self._version is None:
            found = in_pages(self.cluster.listed, self.path, **query)
            self._objects = {o["metadata"]["name"]: o for o in found["items"]}
            self._version = found["metadata"]["resourceVersion"]
            self._tell()
        for event in self.cluster.watch(self.path, self._version, for_s=_WATCH_S, **query):
            if self._over.is_set():
                return
            changed = event["object"]
            self._version = changed["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                continue
            if event["type"] == "DELETED":
                self._objects.pop(changed["metadata"]["name"], None)
            else:
                self._objects[changed["metadata"]["name"]] = changed
            self._tell()

    def _tell(self) -> None:
        if not self._over.is_set():
            self.heard(dict(self._objects))

    def _give_up(self, error: CircinusError | None) -> None:
        if not isinstance(error, Unavailable):
            self._version = None  # too old, refused or broken: begin anew
        if isinstance(error, Expired):
            return
        pause = min(_FIRST_PAUSE_S * 2**self._failures, _LONGEST_PAUSE_S)
        self._failures = min(self._failures + 1, 10)
        _log.warning("mirror_interrupted path=%s cause=%s", self.path, error)
        self._over.wait(pause)
