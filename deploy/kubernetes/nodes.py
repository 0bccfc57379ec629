"""Which machines there are: the nodes of a cluster that carry the label of a tier.

A node is a machine. It counts while it is ready, takes new pods and is not being removed; what it
may give (`allocatable`) has to reach the least that a machine of a tier must have.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.deploy.kubernetes.names import TIER
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import CircinusError, InvalidInput

NODES = "/api/v1/nodes"

_log = logging.getLogger(__name__)


def machines_of(
    nodes: Iterable[Object], tiers: Iterable[str], least: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Give how many machines each of the tiers has; nodes of others do not count.

    `least` is what a machine must have to give: resource -> quantity, such as `cpu: 500m`.
    """
    found = dict.fromkeys(tiers, 0)
    for node in nodes:
        tier = (node["metadata"].get("labels") or {}).get(TIER)
        if tier in found and is_usable(node) and _gives(node, least or {}):
            found[tier] += 1
    return found


def is_usable(node: Object) -> bool:
    """Give whether a node takes new pods: ready, not cordoned, not on its way out."""
    if node["metadata"].get("deletionTimestamp") or node.get("spec", {}).get("unschedulable"):
        return False
    conditions = node.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _gives(node: Object, least: Mapping[str, str]) -> bool:
    there = node.get("status", {}).get("allocatable") or {}
    return all(
        quantity(there.get(resource, "0")) >= quantity(asked) for resource, asked in least.items()
    )


@dataclass(slots=True, kw_only=True)
class Discovery:
    """Tells how many machines there are, whenever that changes."""

    cluster: Cluster  # with the nodes
    tiers: tuple[str, ...]  # that are followed
    # Hears of every change, in the mirror's thread: the machines of every tier. If it fails, it
    # is told again with the next event of any node (kubelets report every few seconds)
    told: Callable[[Mapping[str, int]], object]
    least: Mapping[str, str] = field(default_factory=dict)  # see `machines_of`
    _last: dict[str, int] | None = field(default=None, init=False)
    _mirror: Mirror = field(init=False)

    def __post_init__(self) -> None:
        self._mirror = Mirror(cluster=self.cluster, path=NODES, heard=self.hear)

    def start(self) -> None:
        """Begin to follow; returns at once."""
        self._mirror.start()

    def stop(self) -> None:
        """Tell nothing more."""
        self._mirror.stop()

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
