"""The nodes of a cluster: which machines of tiers they are, and whether they have room for pods.

A node with the label of a tier is a machine. It counts while it is ready, takes our pods (it is
not cordoned, and they tolerate its taints) and is not being removed; what it may give
(`allocatable`) has to reach the least of a machine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.capacity.requests import Amounts, amounts_of, requested
from circinus.deploy.kubernetes.capacity.taints import tolerates, untolerated
from circinus.deploy.kubernetes.mirror import Heard, Mirror
from circinus.deploy.kubernetes.names import GROUP, MACHINE_TYPE, TIER
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import CircinusError, InvalidInput

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_OVER = ("Succeeded", "Failed")

_log = logging.getLogger(__name__)


def machines_of(
    nodes: Iterable[Object],
    tiers: Iterable[str],
    least: Mapping[str, str] | None = None,
    tolerations: Sequence[Object] = (),
    own: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, int]:
    """Return how many nodes of each tier give `least`: resource -> quantity, such as `cpu: 500m`.

    A tier may be a type of one, `TIER/TYPE`: of that are the nodes with the labels of both.
    `tolerations` are those of the pods that would run there; `own`: what a node of a tier or type
    has to give besides, or instead where it names the same.
    """
    found = dict.fromkeys(tiers, 0)
    for node in nodes:
        tier = pool_of(node, found)
        if tier is not None:
            needed = {**(least or {}), **(own or {}).get(tier, {})}
            found[tier] += not why_no_machine(node, needed, tolerations)
    return found


def pool_of(node: Object, tiers: Container[str]) -> str | None:
    """Return the tier, or type `TIER/TYPE`, of a node by its labels; None: none of these."""
    labels = node["metadata"].get("labels") or {}
    tier = labels.get(TIER)
    both = f"{tier}/{labels.get(MACHINE_TYPE)}"
    return next((pool for pool in (tier, both) if pool in tiers), None)


def why_no_machine(
    node: Object, least: Mapping[str, str] | None = None, tolerations: Sequence[Object] = ()
) -> str:
    """Say why a node is no machine for pods with these tolerations; empty: it is one."""
    spec = node.get("spec") or {}
    if node["metadata"].get("deletionTimestamp"):
        return "is being removed"
    if spec.get("unschedulable"):
        return "is cordoned"
    conditions = (node.get("status") or {}).get("conditions") or []
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        return "is not ready"
    if kept_away := untolerated(_taints(node), tolerations):
        return f"has the taint {', '.join(kept_away)}, which our pods do not tolerate"
    there = (node.get("status") or {}).get("allocatable") or {}
    short = [
        f"{there.get(resource, '0')} {resource} to give where {asked} is asked for"
        for resource, asked in (least or {}).items()
        if quantity(there.get(resource, "0")) < quantity(asked)
    ]
    return f"has {', '.join(short)}" if short else ""


@dataclass(slots=True, kw_only=True)
class Discovery(Mirror):
    """Tells how many machines there are, whenever that changes."""

    path: str = field(default=NODES, init=False)
    heard: Heard = field(init=False)
    tiers: tuple[str, ...]  # that are followed, or types `TIER/TYPE`
    # Hears of every change, in the mirror's thread; if it fails, again with any node's next event
    told: Callable[[Mapping[str, int]], object]
    least: Mapping[str, str] = field(default_factory=dict)  # see `machines_of`
    tolerations: tuple[Object, ...] = ()  # likewise
    own: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # likewise
    _last: dict[str, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.heard = self.hear

    def hear(self, nodes: Mapping[str, Object]) -> None:
        """Take the nodes as they are now."""
        machines = machines_of(nodes.values(), self.tiers, self.least, self.tolerations, self.own)
        if machines == self._last:
            return
        try:
            self.told(machines)
        except InvalidInput:
            raise
        except CircinusError as error:
            _log.warning("machines_not_told machines=%s cause=%s", machines, error)
            return
        _log.info("machines_found machines=%s before=%s", machines, self._last)
        self._last = machines


def free_of(
    nodes: Iterable[Object], pods: Iterable[Object], *, without: Collection[str] = ()
) -> dict[str, Amounts]:
    """Return what nodes that are not cordoned have left, by name, beside all pods.

    But those pods whose group is in `without`. Taints keep away some pods and not others, so
    `shortage` looks at them.
    """
    free = {
        _name(node): amounts_of(node["status"].get("allocatable"))
        for node in nodes
        if not (node.get("spec") or {}).get("unschedulable")
    }
    for pod in pods:
        node = pod.get("spec", {}).get("nodeName")
        gone = (pod["metadata"].get("labels") or {}).get(GROUP) in without
        if node in free and not gone and pod.get("status", {}).get("phase") not in _OVER:
            _take(free[node], requested(pod["spec"]))
    return free


def shortage(
    deployments: Iterable[Object], nodes: Iterable[Object], free: Mapping[str, Amounts]
) -> str:
    """Say in words what does not fit; empty: everything does.

    Pods are placed where most is left, the largest first: a heuristic, so what it finds no room
    for may fit by a luckier packing of the tier; what is bound to machines has no choice anyway.
    """
    left = {name: amounts.copy() for name, amounts in free.items()}
    by_name = {_name(node): node for node in nodes}
    for deployment in sorted(deployments, key=_size, reverse=True):
        pod = deployment["spec"]["template"]["spec"]
        # A revision that was kept by an earlier version has none: the cluster then says what fits.
        wanted: Mapping[str, str] = pod.get("nodeSelector") or {}
        labelled = [by_name[name] for name in left if _carries(by_name[name], wanted)]
        fitting = [_name(node) for node in labelled if tolerates(_taints(node), _tolerated(pod))]
        told = ", ".join(f"{key}={value}" for key, value in wanted.items())
        name = deployment["metadata"]["name"]
        if not fitting:
            taints = {_name(n): untolerated(_taints(n), _tolerated(pod)) for n in labelled}
            why = "".join(f" {n} has the taint {', '.join(t)}." for n, t in taints.items())
            return f"no node that takes pods carries {told} (for {name}).{why}"
        asked = requested(pod)
        for _ in range(deployment["spec"]["replicas"]):
            chosen = max(fitting, key=lambda node: left[node]["cpu"])
            there = left[chosen]
            short = next((r for r, amount in asked.items() if there[r] < amount), None)
            if short is not None:
                return (
                    f"{name} asks for {float(asked[short]):g} {short} on a node with {told}; "
                    f"{chosen} has {float(there[short]):g} left."
                )
            _take(there, asked)
    return ""


def _carries(node: Object, wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= (node["metadata"].get("labels") or {}).items()


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _taints(node: Object) -> Sequence[Object]:
    return (node.get("spec") or {}).get("taints") or ()


def _tolerated(pod: Object) -> Sequence[Object]:
    return pod.get("tolerations") or ()


def _size(deployment: Object) -> Decimal:
    return requested(deployment["spec"]["template"]["spec"])["cpu"]


def _take(left: Amounts, asked: Amounts) -> None:
    for name, amount in asked.items():
        left[name] -= amount
