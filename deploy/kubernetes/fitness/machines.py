"""The nodes: how many machines of each tier there are, why others do not count, and their GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.fitness.needs import TOLERATIONS, ClusterCheck, ClusterNeeds, State
from circinus.deploy.kubernetes.names import TIER
from circinus.deploy.kubernetes.nodes import NODES, pool_of, why_no_machine
from circinus.deploy.kubernetes.resources import quantity

_SHOWN = 5
_DEVICES = ("nvidia.com/", "amd.com/", "gpu.intel.com/")
_SIGNS = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
"""Labels of nodes that have a GPU, whether or not pods can ask for it."""
_LABEL = f"kubectl label node NAME {TIER}="


def machines(cluster: Cluster, needs: ClusterNeeds) -> Iterator[ClusterCheck]:
    """Check that each tier has nodes that our pods can run on, and tell of GPUs."""
    return checks_of(cluster.listed_whole(NODES)["items"], needs)


def checks_of(nodes: Sequence[Object], needs: ClusterNeeds) -> Iterator[ClusterCheck]:
    """Yield the same of nodes. Pure."""
    stated = needs.tiers
    if stated is None:
        stated = dict.fromkeys(sorted({tier for node in nodes if (tier := _tier(node))}), 1)
        if not stated:
            told = f"none of the {len(nodes)} nodes carries the label {TIER}"
            yield ClusterCheck("tiers", "fail" if needs.deploys else "note", told, f"{_LABEL}TIER")
    of_pools: dict[str | None, list[Object]] = defaultdict(list)
    for node in nodes:
        of_pools[pool_of(node, stated)].append(node)
    for pool, count in stated.items():
        yield _pool(pool, count, of_pools[pool], needs)
    if others := of_pools[None]:
        told = f"{len(others)} are of no tier: {_listed(map(_name, others))}"
        yield ClusterCheck("other nodes", "note", told, f"to use one: {_LABEL}TIER")
    yield _gpus(nodes)


def _pool(pool: str, stated: int, nodes: Sequence[Object], needs: ClusterNeeds) -> ClusterCheck:
    least = {**needs.least, **needs.own.get(pool, {})}
    why = {_name(node): why_no_machine(node, least, needs.tolerations) for node in nodes}
    good = [name for name, reason in why.items() if not reason]
    bad = [f"{name} {reason}" for name, reason in why.items() if reason]
    told = f"{len(good)} of {len(why)} nodes count as machines"
    if good:
        told += f": {_listed(good)}"
    if bad:
        told += f"; {_listed(bad, '; ')}"
    name = f"tier {pool}"
    if not good:
        state: State = "fail" if needs.deploys and stated > 0 else "note"
        tier, _, kind = pool.partition("/")
        label = f"{_LABEL}{tier}" + (f" circinus.io/machine-type={kind}" if kind else "")
        tolerated = f"tolerate its taint with {TOLERATIONS}" if "taint" in told else "see to one"
        return ClusterCheck(name, state, told, f"{tolerated}, or: {label}" if bad else label)
    if len(good) < stated and not needs.discovers:
        told += f"; the infrastructure says {stated}"
        return ClusterCheck(name, "note", told, "discovery.enabled=true counts those there are")
    return ClusterCheck(name, "ok", told)


def _gpus(nodes: Iterable[Object]) -> ClusterCheck:
    offered: dict[str, Decimal] = defaultdict(Decimal)
    without = []
    for node in nodes:
        there = (node.get("status") or {}).get("allocatable") or {}
        devices = {n: quantity(str(a)) for n, a in there.items() if n.startswith(_DEVICES)}
        for name, amount in devices.items():
            offered[name] += amount
        labels = node["metadata"].get("labels") or {}
        if any(labels.get(sign) == "true" for sign in _SIGNS) and not any(devices.values()):
            without.append(_name(node))
    told = ", ".join(f"{amount:f} {name}" for name, amount in sorted(offered.items()) if amount)
    if without:
        told = f"{told or 'none offered'}; {_listed(without)} has some that pods cannot ask for"
        return ClusterCheck("GPUs", "note", told, "install the vendor's device plug-in there")
    return ClusterCheck("GPUs", "ok", told or "none: plans use CPUs")


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _tier(node: Object) -> str | None:
    tier: str | None = (node["metadata"].get("labels") or {}).get(TIER)
    return tier


def _listed(names: Iterable[str], separator: str = ", ") -> str:
    every = sorted(names)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return separator.join(every[:_SHOWN]) + more
