"""How changing a cluster ended: a state for every way, in words for who must act."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from deploy.kubernetes.errors import Clash, ClusterRefused, Forbidden
from pipelines.errors import CircinusError, Unavailable

_NOT_FOUND = 404


class State(StrEnum):
    """How it ended."""

    READY = "ready"
    """Everything is as rendered, and every worker is ready."""
    PREVIEW = "preview"
    """A dry run: the server would take it."""
    CONFLICT = "conflict"
    """Another field manager owns a field, or another writer was faster."""
    QUOTA = "quota"
    """A ResourceQuota of the namespace is used up."""
    REFUSED = "refused"
    """Admission (a webhook, a policy, the schema) said no."""
    FORBIDDEN = "forbidden"
    """The account lacks a role."""
    NAMESPACE = "namespace"
    """The namespace is missing, or on its way out."""
    CAPACITY = "capacity"
    """The nodes have no room for it: nothing was changed."""
    UNSCHEDULABLE = "unschedulable"
    """No node takes a pod."""
    TIMED_OUT = "timed out"
    """Not ready in time."""
    UNAVAILABLE = "unavailable"
    """The API server does not answer, or answers that it cannot."""


_HINTS = {
    State.CONFLICT: "`--force` takes the fields over",
    State.FORBIDDEN: "the account needs a role for it",
    State.QUOTA: "raise the ResourceQuota, or deploy less",
    State.NAMESPACE: "create the namespace first",
    State.UNAVAILABLE: "try again: applying twice does no harm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What was done, and what was not.

    Attributes:
        state: How it ended.
        words: Why, for people; empty when it is ready.
        applied: `Kind/name` that were written.
        missing: `Kind/name` that should have been and were not.
        pruned: `Kind/name` that were deleted.
        unchanged: Number of objects that were as rendered already.
        revision: In the history; None: nothing was recorded.
        gap_s: Seconds without the old plan before the new one was ready; None: both overlapped.
    """

    state: State
    words: str = ""
    applied: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    unchanged: int = 0
    revision: int | None = None
    gap_s: float | None = None


def state_of(error: CircinusError) -> State:
    """Give the state that an answer of the cluster means."""
    if isinstance(error, Unavailable):
        return State.UNAVAILABLE
    words = str(error).lower()
    if "exceeded quota" in words:
        return State.QUOTA
    if isinstance(error, Clash):
        return State.CONFLICT
    if "being terminated" in words or _is_missing_namespace(error):
        return State.NAMESPACE
    # A denial of admission may have any status; of RBAC it says that a user cannot do something.
    if isinstance(error, Forbidden) and "denied" not in words:
        return State.FORBIDDEN
    return State.REFUSED


def in_words(state: State, cause: object) -> str:
    """Give the cause with what can be done."""
    hint = _HINTS.get(state)
    return f"{cause} ({hint})" if hint else str(cause)


def _is_missing_namespace(error: CircinusError) -> bool:
    return (
        isinstance(error, ClusterRefused)
        and error.status == _NOT_FOUND
        and "namespaces" in error.words
    )
