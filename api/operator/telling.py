"""Tells whoever watches an object what happened: as events of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from circinus.api.event_log import trouble
from circinus.api.operator.definition import GROUP, KIND, VERSION
from circinus.api.operator.following import Event
from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import CircinusError

_COMPONENT = "circinus-operator"
_LONGEST = 1024  # characters of a message, as the cluster has it
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTeller:
    """Makes events of objects. Safe to share between threads."""

    cluster: Cluster
    identity: str  # who tells
    clock: Clock

    def tell(self, found: Object, events: Iterable[Event]) -> None:
        """Tell events of an object; what the cluster does not take is logged, and no trouble."""
        for event in events:
            try:
                namespace = found["metadata"]["namespace"]
                path = f"/api/v1/namespaces/{namespace}/events"
                self.cluster.create(path, self._document(found, event))
            except CircinusError as error:
                uid = found["metadata"]["uid"]
                trouble(_LOG, "operator.event_not_told", uid=uid, event=event, reason=str(error))

    def _document(self, found: Object, event: Event) -> Object:
        metadata = found["metadata"]
        at = datetime.fromtimestamp(self.clock.timestamp(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        message = event.message
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST - 3]}..."
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "generateName": f"{metadata['name']}-",
                "namespace": metadata["namespace"],
            },
            "involvedObject": {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": message,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self.identity,
        }
