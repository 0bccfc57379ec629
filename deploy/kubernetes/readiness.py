"""Whether Deployments are ready, and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deploy.kubernetes.api import Object
from deploy.kubernetes.outcome import State


def is_ready(deployment: Object) -> bool:
    """Give whether all replicas are those of its newest template, and available."""
    status = deployment.get("status") or {}
    wanted = deployment["spec"].get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1)
    return seen and all(count == wanted for count in counts)


def ready_replicas(deployments: Iterable[Object]) -> tuple[int, int]:
    """Give how many replicas are available, and how many should be."""
    found = list(deployments)
    available = sum((d.get("status") or {}).get("availableReplicas", 0) for d in found)
    return available, sum(d["spec"].get("replicas", 1) for d in found)


def failure_of(deployment: Object) -> tuple[State, str] | None:
    """Give why the cluster makes no pods for it; None: it does."""
    for condition in (deployment.get("status") or {}).get("conditions") or []:
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            words = str(condition.get("message", ""))
            state = State.QUOTA if "exceeded quota" in words else State.REFUSED
            return state, f"{deployment['metadata']['name']}: {words}"
    return None


def why_waiting(pods: Iterable[Object]) -> tuple[State, str]:
    """Give why pods are not ready: unschedulable ones first, then what their containers say."""
    told = []
    for pod in pods:
        name = pod["metadata"]["name"]
        status = pod.get("status") or {}
        unschedulable = _unschedulable(status)
        if unschedulable:
            return State.UNSCHEDULABLE, f"{name}: {unschedulable}"
        told += [
            f"{name}: {words}" for words in map(_waiting, status.get("containerStatuses", []))
        ]
    return State.TIMED_OUT, told[0] if told else "no pod says why"


def _unschedulable(status: Mapping[str, object]) -> str:
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    return ""


def _waiting(container: Mapping[str, object]) -> str:
    state = container.get("state")
    waiting = state.get("waiting") if isinstance(state, dict) else None
    if isinstance(waiting, dict):
        return f"{waiting.get('reason')} {waiting.get('message') or ''}".strip()
    return "it runs and is not ready"
