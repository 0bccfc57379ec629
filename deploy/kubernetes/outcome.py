"""How changing a cluster ended: a state for every way, in words for who must act.

And whether Deployments are ready, and why not. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from circinus.deploy.kubernetes.api import Absent, Clash, Forbidden, Object
from circinus.pipelines.errors import CircinusError, Unavailable


class State(StrEnum):
    """How it ended."""

    READY = "ready"  # everything is as rendered, and every worker is ready
    PREVIEW = "preview"  # a dry run: the server would take it
    CONFLICT = "conflict"  # another field manager owns a field, or another writer was faster
    QUOTA = "quota"  # a ResourceQuota of the namespace is used up
    REFUSED = "refused"  # admission (a webhook, a policy, the schema) said no
    FORBIDDEN = "forbidden"  # the account lacks a role
    NAMESPACE = "namespace"  # the namespace is missing, or on its way out
    CAPACITY = "capacity"  # the nodes have no room for it: nothing was changed
    UNSCHEDULABLE = "unschedulable"  # no node takes a pod
    TIMED_OUT = "timed out"  # not ready in time
    UNAVAILABLE = "unavailable"  # the API server does not answer, or answers that it cannot


_HINTS = {
    State.CONFLICT: "`--force` takes the fields over",
    State.FORBIDDEN: "the account needs a role for it",
    State.QUOTA: "raise the ResourceQuota, or deploy less",
    State.NAMESPACE: "create the namespace first",
    State.UNAVAILABLE: "try again: applying twice does no harm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutOutcome:
    """What was done, and what was not."""

    state: State  # how it ended
    words: str = ""  # why, for people; empty when it is ready
    applied: tuple[str, ...] = ()  # `Kind/name` that were written
    missing: tuple[str, ...] = ()  # `Kind/name` that should have been and were not
    pruned: tuple[str, ...] = ()  # `Kind/name` that were deleted
    unchanged: int = 0  # number of objects that were as rendered already
    revision: int | None = None  # in the history; None: nothing was recorded
    gap_s: float | None = None  # without the old plan or the new one; None: both overlapped


def state_of(error: CircinusError) -> State:
    """Return the state that an answer of the cluster means."""
    if isinstance(error, Unavailable):
        return State.UNAVAILABLE
    words = str(error).lower()
    if "exceeded quota" in words:
        return State.QUOTA
    if isinstance(error, Clash):
        return State.CONFLICT
    if "being terminated" in words or (isinstance(error, Absent) and "namespaces" in error.words):
        return State.NAMESPACE
    # A denial of admission may have any status; of RBAC it says that a user cannot do something.
    if isinstance(error, Forbidden) and "denied" not in words:
        return State.FORBIDDEN
    return State.REFUSED


def told_of(error: CircinusError) -> tuple[State, str]:
    """Return the state that an answer of the cluster means, with what can be done."""
    state = state_of(error)
    return state, in_words(state, error)


def in_words(state: State, cause: object) -> str:
    """Return the cause with what can be done."""
    hint = _HINTS.get(state)
    return f"{cause} ({hint})" if hint else str(cause)


def is_ready(deployment: Object) -> bool:
    """Return whether all replicas are those of its newest template, and available."""
    status = deployment.get("status") or {}
    wanted = deployment["spec"].get("replicas", 1)
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    seen = status.get("observedGeneration", 0) >= deployment["metadata"].get("generation", 1)
    return seen and all(count == wanted for count in counts)


def ready_replicas(deployments: Iterable[Object]) -> tuple[int, int]:
    """Return how many replicas are available, and how many should be."""
    found = list(deployments)
    available = sum((d.get("status") or {}).get("availableReplicas", 0) for d in found)
    return available, sum(d["spec"].get("replicas", 1) for d in found)


def failure_of(deployment: Object) -> tuple[State, str] | None:
    """Return why the cluster makes no pods for it; None: it does."""
    for condition in _conditions(deployment, "ReplicaFailure", "True"):
        words = str(condition.get("message", ""))
        state = State.QUOTA if "exceeded quota" in words else State.REFUSED
        return state, f"{deployment['metadata']['name']}: {words}"
    return None


def why_waiting(pods: Iterable[Object]) -> tuple[State, str]:
    """Return why pods of a rollout are not ready: an unschedulable one, or a container's words."""
    told = []
    for pod in pods:
        name = pod["metadata"]["name"]
        for condition in _conditions(pod, "PodScheduled", "False"):
            words = condition.get("message") or condition.get("reason")
            return State.UNSCHEDULABLE, f"{name}: {words}"
        for container in _containers(pod):
            waiting = (container.get("state") or {}).get("waiting")
            words = _reason(waiting) if waiting else "it runs and is not ready"
            told.append(f"{name}: {words}")
    return State.TIMED_OUT, told[0] if told else "no pod says why"


def why_not_ready(pods: Iterable[Object]) -> str:
    """Return a line for every pod of an instance that is not ready, with its containers."""
    found = list(pods)
    if not found:
        return "there is no pod: the cluster made none (a quota, or an admission rule?)"
    lines = [line for pod in found for line in _lines(pod)]
    return "\n".join(lines) or "its pods are ready, but do not answer"


def _lines(pod: Object) -> Iterator[str]:
    name = pod["metadata"]["name"]
    for condition in _conditions(pod, "PodScheduled", "False"):
        yield f"pod {name} finds no node: {condition.get('message', '')}"
    for container in _containers(pod):
        state = container.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason") != "ContainerCreating":
            yield f"pod {name} waits: {_reason(waiting)}"
        if ended:
            yield f"pod {name} ended with code {ended.get('exitCode')}: {ended.get('reason', '')}"
        if state.get("running") and not container.get("ready"):
            yield f"pod {name} runs, but is not ready yet"


def _conditions(thing: Object, type: str, status: str) -> list[Object]:
    found = (thing.get("status") or {}).get("conditions") or []
    return [c for c in found if (c["type"], c["status"]) == (type, status)]


def _containers(pod: Object) -> list[Object]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _reason(waiting: Object) -> str:
    return f"{waiting.get('reason')} {waiting.get('message') or ''}".strip()
