"""List and watch: a collection of a cluster, listed once, then followed by its changes.

What a watch may lose does not matter: when it ends, breaks or is too old, it goes on from the last
version or lists again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread

from circinus.deploy.kubernetes.api import Cluster, Expired, Object
from circinus.pipelines.backoff import Backoff
from circinus.pipelines.errors import CircinusError, Unavailable

_PAUSES = Backoff(0.2, 5.0)
_WATCH_S = 60  # then a watch is made anew: one that died in silence is noticed by then

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Reflector:
    """Lists and watches one collection, in the thread that calls `run`.

    An error of what takes the objects counts as a failure of the watch: all is listed anew.
    """

    cluster: Cluster
    path: str  # of the collection
    listed: Callable[[Sequence[Object]], None]  # takes the whole collection
    changed: Callable[[str, Object], None]  # takes `ADDED`, `MODIFIED` or `DELETED`, and an object
    failed: Callable[[Exception], object]  # takes why nothing comes for now
    recovered: Callable[[], object] = lambda: None  # is called after each watch that was whole
    over: Event = field(default_factory=Event)  # set: nothing more is followed
    query: Mapping[str, str] = field(default_factory=dict)  # which objects; empty: all
    _version: str | None = field(default=None, init=False)
    _failures: int = field(default=0, init=False)

    def run(self) -> None:
        """List and watch until it is over."""
        while not self.over.is_set():
            try:
                self.step()
                self.recovered()
            except Expired:
                self._version = None
            except Exception as error:  # noqa: BLE001 - the thread's edge: it goes on
                if not isinstance(error, Unavailable):
                    self._version = None  # refused or broken: begin anew
                self._failures += 1
                self.failed(error)
            self.over.wait(_PAUSES.pause_s(max(self._failures, 1)))

    def step(self) -> None:
        """List if nothing is known, then follow one watch to its end; raises as `Cluster` does."""
        if self._version is None:
            whole = self.cluster.listed_whole(self.path, **self.query)
            self.listed(whole["items"])
            self._version = whole["metadata"]["resourceVersion"]
        for event in self.cluster.watch(self.path, self._version, for_s=_WATCH_S, **self.query):
            if self.over.is_set():
                return
            self._failures = 0
            if event["type"] != "BOOKMARK":
                self.changed(event["type"], event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]


@dataclass(slots=True, kw_only=True)
class Mirror:
    """A whole collection by name, followed in a thread of its own."""

    cluster: Cluster  # with the collection
    path: str  # of the collection
    # Takes all objects after every change, in the mirror's thread; an error of it is logged
    on_change: Callable[[Mapping[str, Object]], None]
    selector: str = ""  # only objects with these labels; empty: all
    fields: str = ""  # only objects with these fields; empty: all
    reflector: Reflector = field(init=False)
    _objects: dict[str, Object] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        query = {"labelSelector": self.selector, "fieldSelector": self.fields}
        self.reflector = Reflector(
            cluster=self.cluster,
            path=self.path,
            listed=self._ingest_all,
            changed=self._ingest,
            failed=self._log_failure,
            query={name: value for name, value in query.items() if value},
        )

    def start(self) -> None:
        """Begin to follow; returns at once."""
        Thread(target=self.reflector.run, name=f"mirror {self.path}", daemon=True).start()

    def stop(self) -> None:
        """Report nothing more. The thread ends with its watch, or with the process."""
        self.reflector.over.set()

    def _ingest_all(self, objects: Sequence[Object]) -> None:
        self._objects = {each["metadata"]["name"]: each for each in objects}
        self._report()

    def _ingest(self, kind: str, changed: Object) -> None:
        name = changed["metadata"]["name"]
        if kind == "DELETED":
            self._objects.pop(name, None)
        else:
            self._objects[name] = changed
        self._report()

    def _report(self) -> None:
        if not self.reflector.over.is_set():
            self.on_change(dict(self._objects))

    def _log_failure(self, error: Exception) -> None:
        bug = None if isinstance(error, CircinusError) else error
        _log.warning("mirror_interrupted path=%s cause=%s", self.path, error, exc_info=bug)
