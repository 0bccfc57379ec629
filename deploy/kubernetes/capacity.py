"""Whether the nodes have room for what is to be deployed, beside what runs on them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal

from circinus.deploy.kubernetes.api import Object
from circinus.deploy.kubernetes.names import GROUP
from circinus.deploy.kubernetes.resources import quantity

Amounts = dict[str, Decimal]
_OVER = ("Succeeded", "Failed")


def free_of(
    nodes: Iterable[Object], pods: Iterable[Object], *, without: Collection[str] = ()
) -> dict[str, Amounts]:
    """Give what each usable node has left beside all pods but those of the Deployments `without`.

    A pod's Deployment is named by its group label.
    """
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
            _take(free[node], {"pods": Decimal(1)})
    return free


def shortage(
    deployments: Iterable[Object], nodes: Iterable[Object], free: Mapping[str, Amounts]
) -> str:
    """Say in words what does not fit; empty: everything does.

    Pods are placed where most is left, the largest first: a heuristic, so what it finds no room
    for may fit by a luckier packing of the tier; what is bound to machines has no choice anyway.
    """
    left = {name: dict(amounts) for name, amounts in free.items()}
    labels = {n["metadata"]["name"]: n["metadata"].get("labels") or {} for n in nodes}
    for deployment in sorted(deployments, key=_size, reverse=True):
        pod = deployment["spec"]["template"]["spec"]
        wanted = _wanted(pod)
        fitting = [
            node
            for node in left
            if all(labels[node].get(key) in values for key, values in wanted.items())
        ]
        told = ", ".join(f"{key}={'|'.join(values)}" for key, values in wanted.items())
        name = deployment["metadata"]["name"]
        if not fitting:
            return f"no node that takes pods carries {told} (for {name})."
        asked = {**_asked(pod), "pods": Decimal(1)}
        for _ in range(deployment["spec"]["replicas"]):
            chosen = max(fitting, key=lambda node: left[node].get("cpu", Decimal(0)))
            short = [r for r, n in asked.items() if left[chosen].get(r, Decimal(0)) < n]
            if short:
                most = left[chosen].get(short[0], Decimal(0))
                return (
                    f"{name} asks for {_plain(asked[short[0]])} {short[0]} on a node with {told}; "
                    f"{chosen} has {_plain(most)} left."
                )
            _take(left[chosen], asked)
    return ""


def _takes_pods(spec: Object) -> bool:
    """Whether it takes new pods that tolerate nothing, as workers do."""
    taints = [taint.get("effect") for taint in spec.get("taints") or []]
    return not spec.get("unschedulable") and not {"NoSchedule", "NoExecute"} & {*taints}


def _wanted(pod: Object) -> dict[str, list[str]]:
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return {t["key"]: t["values"] for t in affinity["nodeSelectorTerms"][0]["matchExpressions"]}


def _size(deployment: Object) -> Decimal:
    return _asked(deployment["spec"]["template"]["spec"]).get("cpu", Decimal(0))


def _asked(pod: Object) -> Amounts:
    total: Amounts = {}
    for container in pod.get("containers") or []:
        requests = (container.get("resources") or {}).get("requests") or {}
        for name, amount in _amounts(requests).items():
            total[name] = total.get(name, Decimal(0)) + amount
    return total


def _amounts(given: Mapping[str, str]) -> Amounts:
    return {name: quantity(str(value)) for name, value in given.items()}


def _take(left: Amounts, asked: Mapping[str, Decimal]) -> None:
    for name, amount in asked.items():
        left[name] = left.get(name, Decimal(0)) - amount


def _plain(amount: Decimal) -> str:
    return f"{float(amount):g}"
