"""Why a cluster refuses something, or does not run it, and events that report it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from circinus.deploy.kubernetes.api import Absent, Clash, ClusterRefused, Forbidden, Object


def with_remedy(error: ClusterRefused) -> str:
    """Return the message of a refusal, and what can be done where that is known."""
    remedy = _remedy(error)
    return f"{error} ({remedy})" if remedy else str(error)


def _remedy(error: ClusterRefused) -> str:
    words = str(error).lower()
    if "exceeded quota" in words:
        return "raise the ResourceQuota, or deploy less"
    if isinstance(error, Clash):
        return "`--force` takes the fields over"
    if "being terminated" in words or (isinstance(error, Absent) and "namespaces" in error.words):
        return "create the namespace first"
    # A denial of admission may have any status; of RBAC it states that a user cannot do something.
    if isinstance(error, Forbidden) and "denied" not in words:
        return "the account needs a role for it"
    return ""


def replica_failure(deployment: Object) -> str:
    """Return why the cluster makes no pods for a Deployment; empty: it does."""
    for condition in _conditions(deployment, "ReplicaFailure", "True"):
        return f"{deployment['metadata']['name']}: {condition.get('message', '')}"
    return ""


def why_not_ready(pods: Sequence[Object]) -> str:
    """Return a line for every pod of an instance that is not ready, with its containers."""
    if not pods:
        return "there is no pod: the cluster made none (a quota, or an admission rule?)"
    lines = [line for pod in pods for line in _lines(pod)]
    return "\n".join(lines) or "its pods are ready, but do not answer"


def _lines(pod: Object) -> Iterator[str]:
    name = pod["metadata"]["name"]
    for condition in _conditions(pod, "PodScheduled", "False"):
        yield f"pod {name} finds no node: {condition.get('message', '')}"
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason") != "ContainerCreating":
            words = f"{waiting.get('reason')} {waiting.get('message') or ''}"
            yield f"pod {name} waits: {words.strip()}"
        if ended:
            yield f"pod {name} ended with code {ended.get('exitCode')}: {ended.get('reason', '')}"
        if state.get("running") and not container.get("ready"):
            yield f"pod {name} runs, but is not ready yet"


def _conditions(thing: Object, type: str, status: str) -> list[Object]:
    conditions = (thing.get("status") or {}).get("conditions") or []
    return [c for c in conditions if (c["type"], c["status"]) == (type, status)]


_LONGEST = 1024  # characters of a message, as the cluster has it


@dataclass(frozen=True, slots=True, kw_only=True)
class EventReporter:
    """The source of an event."""

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
