"""The nodes of a cluster: which machines of tiers they are, and whether they have room for pods.

A node with the label of a tier is a machine. It counts while it is ready, takes new pods and is
not being removed; what it may give (`allocatable`) has to reach the least of a machine.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.mirror import Heard, Mirror
from circinus.deploy.kubernetes.names import GROUP, MACHINE_TYPE, TIER
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import CircinusError, InvalidInput

NODES = "/api/v1/nodes"
Amounts = defaultdict[str, Decimal]
_OVER = ("Succeeded", "Failed")

_log = logging.getLogger(__name__)


def machines_of(
    nodes: Iterable[Object], tiers: Iterable[str], least: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Give how many nodes of each tier give `least`: resource -> quantity, such as `cpu: 500m`.

    A tier may be a type of one, `TIER/TYPE`: of that are the nodes with the labels of both.
    """
    found = dict.fromkeys(tiers, 0)
    needed = {resource: quantity(asked) for resource, asked in (least or {}).items()}
    for node in nodes:
        labels = node["metadata"].get("labels") or {}
        tier = labels.get(TIER)
        tier = tier if tier in found else f"{tier}/{labels.get(MACHINE_TYPE)}"
        there = node.get("status", {}).get("allocatable") or {}
        if tier in found and is_usable(node):
            found[tier] += all(quantity(there.get(r, "0")) >= n for r, n in needed.items())
    return found


def is_usable(node: Object) -> bool:
    """Give whether a node takes new pods: ready, not cordoned, not on its way out."""
    if node["metadata"].get("deletionTimestamp") or node.get("spec", {}).get("unschedulable"):
        return False
    conditions = node.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@dataclass(slots=True, kw_only=True)
class Discovery(Mirror):
    """Tells how many machines there are, whenever that changes."""

    path: str = field(default=NODES, init=False)
    heard: Heard = field(init=False)
    tiers: tuple[str, ...]  # that are followed, or types `TIER/TYPE`
    # Hears of every change, in the mirror's thread; if it fails, again with any node's next event
    told: Callable[[Mapping[str, int]], object]
    least: Mapping[str, str] = field(default_factory=dict)  # see `machines_of`
    _last: dict[str, int] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.heard = self.hear

    def hear(self, nodes: Mapping[str, Object]) -> None:
        """Take the nodes as they are now."""
        machines = machines_of(nodes.values(), self.tiers, self.least)
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
    """Give what usable nodes have left beside all pods but those whose group is in `without`."""
    free = {
        node["metadata"]["name"]: _amounts(node["status"].get("allocatable") or {})
        for node in nodes
        if _takes_pods(node.get("spec") or {})
    }
    for pod in pods:
        node = pod.get("spec", {}).get("nodeName")
        gone = (pod["metadata"].get("labels") or {}).get(GROUP) in without
        if node in free and not gone and pod.get("status", {}).get("phase") not in _OVER:
            _take(free[node], _asked(pod["spec"]))
    return free


def shortage(
    deployments: Iterable[Object], nodes: Iterable[Object], free: Mapping[str, Amounts]
) -> str:
    """Say in words what does not fit; empty: everything does.

    Pods are placed where most is left, the largest first: a heuristic, so what it finds no room
    for may fit by a luckier packing of the tier; what is bound to machines has no choice anyway.
    """
    left = {name: amounts.copy() for name, amounts in free.items()}
    labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}
    for deployment in sorted(deployments, key=_size, reverse=True):
        pod = deployment["spec"]["template"]["spec"]
        wanted = pod["nodeSelector"]
        fitting = [node for node in left if wanted.items() <= labels[node].items()]
        told = ", ".join(f"{key}={value}" for key, value in wanted.items())
        name = deployment["metadata"]["name"]
        if not fitting:
            return f"no node that takes pods carries {told} (for {name})."
        asked = _asked(pod)
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


def _takes_pods(spec: Object) -> bool:
    """Whether it takes new pods that tolerate nothing, as workers do."""
    taints = [taint.get("effect") for taint in spec.get("taints") or []]
    return not spec.get("unschedulable") and not {"NoSchedule", "NoExecute"} & {*taints}


def _size(deployment: Object) -> Decimal:
    return _asked(deployment["spec"]["template"]["spec"])["cpu"]


def _asked(pod: Object) -> Amounts:
    """Give what a pod asks for; its place among the pods of the node comes last."""
    total = _amounts({})
    for container in pod.get("containers") or []:
        requests = (container.get("resources") or {}).get("requests") or {}
        for name, amount in _amounts(requests).items():
            total[name] += amount
    total["pods"] = Decimal(1)
    return total


def _amounts(given: Mapping[str, str]) -> Amounts:
    return defaultdict(Decimal, {name: quantity(str(value)) for name, value in given.items()})


def _take(left: Amounts, asked: Amounts) -> None:
    for name, amount in asked.items():
        left[name] -= amount
