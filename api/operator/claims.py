"""Which `PipelineQuery` objects belong to a release: claimed for it, and ended with it.

The label `circinus.io/release` names the release of an object. One without it belongs to the
release that writes the label first: the write names the version of the object, so only one
succeeds. Nothing else is done for an object before it is ours, and it stays with its release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, ClusterRefused, Object
from circinus.deploy.kubernetes.ownership import (
    API_VERSION,
    GROUP,
    KIND,
    RELEASE,
    check_release,
    queries_path,
    query_path,
)
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock

FINALIZER = f"{GROUP}/finalizer"
"""Holds an object of ours until its queries are stopped."""


class Whose(Enum):
    """The owner of an object, relative to a release."""

    OURS = auto()
    NOBODYS = auto()  # it has no label yet
    ANOTHERS = auto()


def whose(metadata: Mapping[str, Any], release: str) -> Whose:
    """Return whose an object with this metadata is."""
    named = (metadata.get("labels") or {}).get(RELEASE)
    if not named:
        return Whose.NOBODYS
    return Whose.OURS if named == release else Whose.ANOTHERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Takes objects of a namespace for a release."""

    cluster: Cluster
    release: str

    def ours(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether the release may act on an object; claim it if it has no label.

        False where another write was faster, whatever it changed: the next look decides. Blocks,
        and raises as `Cluster` does.
        """
        objects = whose(metadata, self.release)
        return objects is Whose.OURS or (objects is Whose.NOBODYS and self._taken(metadata))

    def _taken(self, metadata: Mapping[str, Any]) -> bool:
        known = ("name", "namespace", "resourceVersion")  # another of the name has another version
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {
                **{field: metadata[field] for field in known},
                "labels": {RELEASE: self.release},
            },
        }
        path = queries_path(metadata["namespace"])
        try:
            self.cluster.apply(f"{path}/{metadata['name']}", body)
        except Clash:
            return False
        except ClusterRefused:
            # One that is gone would be made anew by this, and is refused as it lacks a spec.
            chosen = f"metadata.name={metadata['name']}"
            if self.cluster.listed(path, fieldSelector=chosen)["items"]:
                raise
            return False
        return True


_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Ends the objects of a release. Calls block, and raise as `Cluster` does.

    Runs before the chart is uninstalled: its operator releases a deleted object as always. Where
    operator or service are down, the object is let go: the cluster then deletes what it owns.
    Objects of other releases, and those without a label, stay as they are.
    """

    cluster: Cluster
    namespaces: Sequence[str | None]  # that its operator follows; None: all
    release: str
    clock: Clock
    # Seconds without an object released after which the rest is let go, `>= 0`. 20: an operator
    # takes one or two for an object, a new leader after a lease of 15
    patience_s: float = 20.0
    tell: Callable[[str], object] = lambda _: None  # receives progress, in words

    def __post_init__(self) -> None:
        check_release(self.release)
        checks.require(self.patience_s >= 0, "patience_s", "must be >= 0", self.patience_s)

    def run(self) -> None:
        """Return when no object of the release is left; may be called again."""
        since, fewest = self.clock.now(), None
        while objects := [each for each in self._listed() if _is_ours_to_end(each)]:
            for each in objects:  # also what was made meanwhile
                if not _is_ending(each):
                    self.cluster.delete(query_path(each))
            if fewest is None or len(objects) < fewest:
                since, fewest = self.clock.now(), len(objects)
                self.tell(f"{fewest} PipelineQuery objects are being released")
            if self.clock.now() - since >= self.patience_s:
                names = ", ".join(each["metadata"]["name"] for each in objects)
                self.tell(f"nobody releases {names}: they are let go")
                for each in filter(_is_ours_to_end, self._listed()):
                    self._let_go(each)
            self.clock.sleep(_POLL_S)
        self.tell(f"no PipelineQuery of release {self.release} is left")

    def _listed(self) -> list[Object]:
        chosen = f"{RELEASE}={self.release}"
        paths = map(queries_path, self.namespaces)
        try:
            pages = [self.cluster.listed(path, labelSelector=chosen) for path in paths]
        except Absent:  # the definition is gone, and all objects with it
            return []
        return [each for page in pages for each in page["items"]]

    def _let_go(self, objects: Object) -> None:
        left = [name for name in _finalizers(objects) if name != FINALIZER]
        body = {
            **objects,
            "apiVersion": API_VERSION,  # lists may leave it out
            "kind": KIND,
            "metadata": {**objects["metadata"], "finalizers": left},
        }
        try:
            self.cluster.replace(query_path(objects), body)
        except (Clash, Absent):  # another write was faster: the next look decides
            return


def _is_ours_to_end(objects: Object) -> bool:
    """Return whether it is not being deleted, or has our finalizer."""
    return not _is_ending(objects) or FINALIZER in _finalizers(objects)


def _is_ending(objects: Object) -> bool:
    return "deletionTimestamp" in objects["metadata"]


def _finalizers(objects: Object) -> list[str]:
    return objects["metadata"].get("finalizers") or []
