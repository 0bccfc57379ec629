"""An API server in memory with `PipelineQuery` objects and events, for controllers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

from circinus.api.operator.objects import key_of_object
from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, Expired, Object
from circinus.pipelines.errors import Unavailable

SPEC = {"pipeline": "add", "data": {"examples": 10}, "slo": {"accuracy": 0.5, "latency_s": 1.0}}
_ROOT = "/apis/circinus.io/v1alpha1/"


@dataclass
class FakeCluster(Cluster):
    """Objects by `NAMESPACE/NAME`; every change is a version.

    Attributes:
        events: What was told, `(name, reason)`.
        writes: `(key, what)` of every change by a client.
        forgets: Versions up to which nobody may watch from.
        down: Whether it does not answer.
        between: Is called before a write, as somebody who is faster.
    """

    objects: dict[str, Object] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    writes: list[tuple[str, str]] = field(default_factory=list)
    forgets: int = 0
    down: bool = False
    between: Callable[[], object] = lambda: None
    version: int = 0
    page_size: int = 500
    lock: RLock = field(default_factory=RLock)
    _log: list[tuple[int, str, Object]] = field(default_factory=list)

    def put(self, name: str, namespace: str = "ns", **metadata: object) -> Object:
        """Let somebody make an object, or change its spec."""
        key = f"{namespace}/{name}"
        known = self.objects.get(key)
        uid = known["metadata"]["uid"] if known else f"uid-{self.version}-{name}"
        generation = known["metadata"]["generation"] + 1 if known else 1
        made = {
            "metadata": {
                **(known["metadata"] if known else {}),
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "generation": generation,
                **metadata,
            },
            "spec": {**SPEC, "data": {"examples": 9 + generation}},
            **({"status": known["status"]} if known and "status" in known else {}),
        }
        return self._store("MODIFIED" if known else "ADDED", key, made)

    def remove(self, name: str, namespace: str = "ns") -> None:
        """Let somebody delete an object: it goes when nobody holds it."""
        key = f"{namespace}/{name}"
        found = copy.deepcopy(self.objects[key])
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._store("MODIFIED", key, found)
        else:
            self._gone(key)

    def status(self, name: str, namespace: str = "ns") -> dict[str, Any]:
        """Return the status of an object."""
        found: dict[str, Any] = self.objects[f"{namespace}/{name}"].get("status", {})
        return found

    def listed(self, path: str, **query: str) -> Object:
        self._answer()
        with self.lock:
            return self._page(path, query)

    def _page(self, path: str, query: Mapping[str, str]) -> Object:
        first = int(query.get("continue", 0))
        last = first + min(int(query.get("limit", self.page_size)), self.page_size)
        found = [o for k, o in sorted(self.objects.items()) if self._is_in(path, k)]
        metadata = {"resourceVersion": str(self.version)}
        if last < len(found):
            metadata["continue"] = str(last)
        return {"items": copy.deepcopy(found[first:last]), "metadata": metadata}

    def watch(self, path: str, version: str, *, for_s: int, **query: str) -> Iterator[Object]:
        self._answer()
        if int(version) < self.forgets:
            raise Expired(f"watch {path}", "Expired", "too old resource version")
        with self.lock:
            log, last = list(self._log), self.version
        for at, kind, found in log:
            if at > int(version) and self._is_in(path, key_of_object(found)):
                yield {"type": kind, "object": copy.deepcopy(found)}
        bookmark = {"metadata": {"resourceVersion": str(last)}}
        yield {"type": "BOOKMARK", "object": bookmark}

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        self._answer()
        self.between()
        with self.lock:
            return self._changed(path, body)

    def _changed(self, path: str, body: Mapping[str, Any]) -> Object:
        key, _, _ = self._key(path).partition("/status")
        if key not in self.objects:
            raise Absent(f"PATCH {path}", "NotFound", "not found")
        found = copy.deepcopy(self.objects[key])
        if body["metadata"].get("resourceVersion") != found["metadata"]["resourceVersion"]:
            raise Clash(f"PATCH {path}", "Conflict", "the object has been modified")
        if path.endswith("/status"):
            found["status"] = _merged(found.get("status", {}), body["status"])
            self.writes.append((key, "status"))
        else:
            found["metadata"] = _merged(found["metadata"], body["metadata"])
            self.writes.append((key, "finalizers"))
        if found["metadata"].get("deletionTimestamp") and not found["metadata"]["finalizers"]:
            return self._gone(key)
        return copy.deepcopy(self._store("MODIFIED", key, found))

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        self._answer()
        assert path.endswith("/events")
        self.events.append((body["involvedObject"]["name"], body["reason"]))
        return dict(body)

    def reasons(self, name: str) -> list[str]:
        """Return what was told of an object."""
        return [reason for of, reason in self.events if of == name]

    def _store(self, kind: str, key: str, found: Object) -> Object:
        with self.lock:
            self.version += 1
            found["metadata"]["resourceVersion"] = str(self.version)
            found["metadata"].setdefault("managedFields", ["much"])
            self.objects[key] = found
            self._log.append((self.version, kind, copy.deepcopy(found)))
            return found

    def _gone(self, key: str) -> Object:
        found = self._store("DELETED", key, copy.deepcopy(self.objects[key]))
        del self.objects[key]
        return found

    def _answer(self) -> None:
        if self.down:
            raise Unavailable("the cluster does not answer", retry_after_s=1.0)

    def _is_in(self, path: str, key: str) -> bool:
        namespace = key.partition("/")[0]
        return path in (
            f"{_ROOT}pipelinequeries",
            f"{_ROOT}namespaces/{namespace}/pipelinequeries",
        )

    def _key(self, path: str) -> str:
        return path.removeprefix(f"{_ROOT}namespaces/").replace("/pipelinequeries", "")


def _merged(before: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Merge as RFC 7396 says."""
    merged = dict(before)
    for name, value in change.items():
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged
