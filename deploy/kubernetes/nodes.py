"""The nodes of a cluster: which machines of tiers they are.

A node with the label of a tier is a machine. It counts while it is ready, takes our pods (it is
not cordoned, and they tolerate its taints) and is not being removed; what it may give
(`allocatable`) has to reach the least of a machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.names import MACHINE_TYPE, TIER
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import CircinusError, InvalidInput

NODES = "/api/v1/nodes"
_DRIVES_OUT = "NoExecute"
_KEEPS_AWAY = ("NoSchedule", _DRIVES_OUT)
_EQUAL, _EXISTS = "Equal", "Exists"

_log = logging.getLogger(__name__)


def machines_of(
    nodes: Iterable[Object],
    tiers: Iterable[str],
    least: Mapping[str, str] | None = None,
    tolerations: Sequence[Object] = (),
    own: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, int]:
    """Return how many nodes of each tier have `least`: resource -> quantity, such as `cpu: 500m`.

    A tier may be a type of one, `TIER/TYPE`: of that are the nodes with the labels of both.
    `tolerations` are those of the pods that would run there; `own`: what a node of a tier or type
    has to give besides, or instead where it names the same.
    """
    counts = dict.fromkeys(tiers, 0)
    for node in nodes:
        tier = pool_of(node, counts)
        if tier is not None:
            needed = {**(least or {}), **(own or {}).get(tier, {})}
            counts[tier] += not why_no_machine(node, needed, tolerations)
    return counts


def pool_of(node: Object, tiers: Container[str]) -> str | None:
    """Return the tier, or type `TIER/TYPE`, of a node by its labels; None: none of these."""
    labels = node["metadata"].get("labels") or {}
    tier = labels.get(TIER)
    both = f"{tier}/{labels.get(MACHINE_TYPE)}"
    return next((pool for pool in (tier, both) if pool in tiers), None)


def why_no_machine(
    node: Object, least: Mapping[str, str] | None = None, tolerations: Sequence[Object] = ()
) -> str:
    """Return why a node is no machine for pods with these tolerations; empty: it is one."""
    spec = node.get("spec") or {}
    if node["metadata"].get("deletionTimestamp"):
        return "is being removed"
    if spec.get("unschedulable"):
        return "is cordoned"
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return "is not ready"
    if taints := untolerated(spec.get("taints") or (), tolerations):
        return f"has the taint {', '.join(taints)}, which our pods do not tolerate"
    there = (node.get("status") or {}).get("allocatable") or {}
    short = [
        f"{there.get(resource, '0')} {resource} to give where {amount} is asked for"
        for resource, amount in (least or {}).items()
        if quantity(there.get(resource, "0")) < quantity(amount)
    ]
    return f"has {', '.join(short)}" if short else ""


@dataclass(slots=True, kw_only=True)
class Discovery:
    """Reports how many machines there are, whenever that changes."""

    cluster: Cluster
    tiers: tuple[str, ...]  # that are followed, or types `TIER/TYPE`
    # Takes every change, in the mirror's thread; if it fails, again with any node's next event
    report: Callable[[Mapping[str, int]], object]
    least: Mapping[str, str] = field(default_factory=dict)  # see `machines_of`
    tolerations: tuple[Object, ...] = ()  # likewise
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # likewise
    mirror: Mirror = field(init=False)
    _last: dict[str, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.mirror = Mirror(cluster=self.cluster, path=NODES, on_change=self.ingest)

    def ingest(self, nodes: Mapping[str, Object]) -> None:
        """Report the machines that these nodes are, unless they are those reported last."""
        machines = machines_of(nodes.values(), self.tiers, self.least, self.tolerations, self.own)
        if machines == self._last:
            return
        try:
            self.report(machines)
        except InvalidInput:
            raise
        except CircinusError as error:
            _log.warning("machines_not_reported machines=%s cause=%s", machines, error)
            return
        _log.info("machines_found machines=%s before=%s", machines, self._last)
        self._last = machines


def untolerated(taints: Iterable[Object], tolerations: Iterable[Object]) -> tuple[str, ...]:
    """Return the taints that keep such pods away or drive them out, as kubectl writes them.

    That is `key=value:effect`, or `key:effect`.
    """
    known = list(tolerations)
    return tuple(
        "=".join(filter(None, (taint.get("key"), taint.get("value")))) + f":{taint['effect']}"
        for taint in taints
        if taint.get("effect") in _KEEPS_AWAY and not _is_tolerated(taint, known)
    )


def _is_tolerated(taint: Object, tolerations: list[Object]) -> bool:
    # Of several that match, Kubernetes uses the first.
    first = next((each for each in tolerations if _matches(each, taint)), None)
    if first is None:
        return False
    return taint["effect"] != _DRIVES_OUT or first.get("tolerationSeconds") is None


def _matches(toleration: Object, taint: Object) -> bool:
    for part in ("effect", "key"):
        if (toleration.get(part) or taint.get(part)) != taint.get(part):
            return False
    if (toleration.get("operator") or _EQUAL) == _EXISTS:
        return True
    return (toleration.get("value") or "") == (taint.get("value") or "")
