"""Events of a cluster: what `kubectl describe` tells of an object. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from circinus.deploy.kubernetes.api import Object

_LONGEST = 1024  # characters of a message, as the cluster has it


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReporter:
    """Who tells."""

    component: str  # the program
    instance: str  # which process of it

    def event(
        self, of: Object, reason: str, message: str, *, warning: bool, at_s: float
    ) -> Object:
        """Return an event of an object, which has kind and version, at seconds since the epoch."""
        metadata, at = of["metadata"], iso_time(at_s)
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
                "apiVersion": of["apiVersion"],
                "kind": of["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
            },
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "message": message,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.instance,
        }


def iso_time(at_s: float) -> str:
    """Return seconds since the epoch as the cluster has times: ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
