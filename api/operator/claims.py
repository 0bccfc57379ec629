"""Which `PipelineQuery` objects are a release's: taken for it, and ended with it.

The label `circinus.io/release` says whose an object is. One without it is for whoever writes the
label first: the write names the version of the object, so one release alone gets it. Nothing else
is done for an object before it is ours, and it stays with its release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from circinus.api.operator.definition import GROUP, KIND, VERSION
from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, ClusterRefused, Object
from circinus.deploy.kubernetes.ownership import RELEASE, check_release, queries_path
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock

FINALIZER = f"{GROUP}/finalizer"
"""Holds an object of ours until what it asked for is stopped."""


class Whose(Enum):
    """Whose an object is, seen from a release."""

    OURS = auto()
    NOBODYS = auto()  # nobody has written the label yet
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
        """Return whether the release may act on an object, having taken it if it was nobody's.

        False where somebody was faster, also with another change: the next look tells. Blocks,
        and raises as `Cluster` does.
        """
        found = whose(metadata, self.release)
        return found is Whose.OURS or (found is Whose.NOBODYS and self._taken(metadata))

    def _taken(self, metadata: Mapping[str, Any]) -> bool:
        known = ("name", "namespace", "resourceVersion")  # another of the name has another version
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
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

    Runs before the chart is uninstalled: an object that is deleted is released by its operator as
    ever. Where operator or service are down, the object is let go: the cluster then deletes what
    it owns. Objects of other releases, and those that nobody took, are left alone.
    """

    cluster: Cluster
    namespaces: Sequence[str | None]  # that its operator follows; None: all
    release: str
    clock: Clock
    # Seconds without an object released after which the rest is let go, `>= 0`. 20: an operator
    # takes one or two for an object, a new leader after a lease of 15
    patience_s: float = 20.0
    tell: Callable[[str], object] = lambda _: None  # hears of progress, in words

    def __post_init__(self) -> None:
        check_release(self.release)
        checks.require(self.patience_s >= 0, "patience_s", "must be >= 0", self.patience_s)

    def run(self) -> None:
        """Return when no object of the release is left; may be called again."""
        since, fewest = self.clock.now(), None
        while found := [each for each in self._found() if _is_ours_to_end(each)]:
            for each in found:  # also what was made meanwhile
                if not _is_ending(each):
                    self.cluster.delete(_path(each))
            if fewest is None or len(found) < fewest:
                since, fewest = self.clock.now(), len(found)
                self.tell(f"{fewest} PipelineQuery objects are being released")
            if self.clock.now() - since >= self.patience_s:
                self.tell(f"nobody releases {', '.join(_names(found))}: they are let go")
                for each in filter(_is_ours_to_end, self._found()):
                    self._let_go(each)
            self.clock.sleep(_POLL_S)
        self.tell(f"no PipelineQuery of release {self.release} is left")

    def _found(self) -> list[Object]:
        chosen = f"{RELEASE}={self.release}"
        found: list[Object] = []
        try:
            for namespace in self.namespaces:
                found += self.cluster.listed(queries_path(namespace), labelSelector=chosen)[
                    "items"
                ]
        except Absent:  # the definition is gone, and all objects with it
            return []
        return found

    def _let_go(self, found: Object) -> None:
        left = [name for name in _finalizers(found) if name != FINALIZER]
        body = {
            **found,
            "apiVersion": f"{GROUP}/{VERSION}",  # lists may leave it out
            "kind": KIND,
            "metadata": {**found["metadata"], "finalizers": left},
        }
        try:
            self.cluster.replace(_path(found), body)
        except (Clash, Absent):  # somebody was faster: the next look tells
            return


def _path(found: Object) -> str:
    metadata = found["metadata"]
    return f"{queries_path(metadata['namespace'])}/{metadata['name']}"


def _is_ours_to_end(found: Object) -> bool:
    """Whether it is not on its way out, or would be but for us: what others hold is theirs."""
    return not _is_ending(found) or FINALIZER in _finalizers(found)


def _is_ending(found: Object) -> bool:
    return "deletionTimestamp" in found["metadata"]


def _finalizers(found: Object) -> list[str]:
    return found["metadata"].get("finalizers") or []


def _names(found: list[Object]) -> list[str]:
    return [each["metadata"]["name"] for each in found]
