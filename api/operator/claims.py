"""Which `PipelineQuery` objects are a release's: two releases of a namespace share none.

The label `circinus.io/release` says whose an object is. One without it is for whoever writes the
label first: the cluster takes that of one release alone, as the write names the version of the
object that it was decided by. Nothing else is done for an object before it is ours, so that it is
held by one finalizer, planned by one service and released by the same.

An object stays with its release: a label that is changed later leaves behind what runs for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from circinus.api.operator.definition import GROUP, KIND, VERSION
from circinus.deploy.kubernetes.api import Clash, Cluster, ClusterRefused
from circinus.deploy.kubernetes.ownership import RELEASE, queries_path

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
