"""The end of a release: its `PipelineQuery` objects go before those who would release them do.

Runs while operator and service are still there, before the chart is uninstalled: an object that is
deleted is released by its operator as ever, which ends what serves it. Where nobody does that any
more, as operator or service are down, the object is let go: the cluster then deletes what it owns,
its workers among them. Objects of other releases, and those that nobody took, are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.definition import GROUP, KIND, VERSION
from circinus.deploy.kubernetes.api import Absent, Clash, Cluster, Object
from circinus.deploy.kubernetes.ownership import RELEASE, check_release, queries_path
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock

_POLL_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Retirement:
    """Ends the objects of a release. Calls block, and raise as `Cluster` does."""

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
