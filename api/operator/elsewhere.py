"""Objects in namespaces that no operator follows: they are told so, where rights allow it.

Whoever follows an object holds it and writes its status within seconds. One that has neither from
one sweep to the next is followed by nobody, whichever operators there are.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from circinus.api.event_log import trouble
from circinus.api.operator.claims import FINALIZER
from circinus.api.operator.following import Status, transition
from circinus.api.operator.looking import seen_of
from circinus.api.operator.objects import path_of_object, path_of_objects
from circinus.api.operator.telling import EventTeller
from circinus.deploy.kubernetes.api import Cluster, ClusterRefused, Object
from circinus.pipelines.clock import Clock

SWEEP_S = 30.0
"""Between two sweeps."""
_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class Elsewhere:
    """Looks after objects outside of the namespaces that are followed. For one thread."""

    cluster: Cluster
    followed: Collection[str]  # namespaces
    teller: EventTeller
    clock: Clock
    _alone: frozenset[str] = field(default=frozenset(), init=False)  # uids, at the last sweep

    def sweep(self) -> int:
        """Tell every object that nobody follows; give how many. Raises as `Cluster` does."""
        alone = [
            found
            for found in self.cluster.listed_whole(path_of_objects(None))["items"]
            if self._is_alone(found)
        ]
        still = [found for found in alone if found["metadata"]["uid"] in self._alone]
        self._alone = frozenset(found["metadata"]["uid"] for found in alone)
        return sum(map(self._tell, still))

    def _is_alone(self, found: Object) -> bool:
        metadata = found["metadata"]
        met = FINALIZER in metadata.get("finalizers", ()) or found.get("status")
        return metadata["namespace"] not in self.followed and not met

    def _tell(self, found: Object) -> bool:
        metadata = found["metadata"]
        message = (
            f"no operator follows namespace {metadata['namespace']}: this one follows "
            f"{', '.join(sorted(self.followed))}. Let it be started with --namespace "
            f"{metadata['namespace']} or --all-namespaces, or make the object there."
        )
        status = Status.unwatched(metadata["generation"], message)
        document = status.document({}, at=self.clock.timestamp())
        version = {"resourceVersion": metadata["resourceVersion"]}
        change = {"metadata": version, "status": document}
        try:
            self.cluster.merge(f"{path_of_object(found)}/status", change)
        except ClusterRefused as error:  # it changed, or went; or rights end here
            trouble(_LOG, "operator.elsewhere_not_told", uid=metadata["uid"], reason=str(error))
            return False
        self.teller.tell(found, transition(seen_of(found).status, document))
        return True
