"""All checks of a cluster, in the order in which an administrator would fix things."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import partial

from circinus.deploy.kubernetes.api import Cluster, Forbidden, Object, collection_of
from circinus.deploy.kubernetes.fitness.api_server import definition, namespace, rights, version
from circinus.deploy.kubernetes.fitness.check import Check, State
from circinus.deploy.kubernetes.fitness.needs import TOLERATIONS, ClusterNeeds
from circinus.deploy.kubernetes.names import TIER
from circinus.deploy.kubernetes.nodes import NODES, pool_of, why_no_machine
from circinus.deploy.kubernetes.resources import quantity
from circinus.pipelines.errors import CircinusError

Look = Callable[[Cluster, ClusterNeeds], Iterator[Check]]


def look(cluster: Cluster, needs: ClusterNeeds, wanted: Object) -> Iterator[Check]:
    """Yield a check of each need; if the server does not answer, that is the only one.

    `wanted` is the definition of PipelineQuery of this release. Reads only.
    """
    try:
        yield version(cluster)
    except CircinusError as error:
        remedy = "see to the way there: --kubeconfig, KUBECONFIG, the network, the credentials"
        yield Check("API server", "fail", str(error), remedy)
        return
    looks: dict[str, Look] = {
        "namespace": namespace,
        "rights": rights,
        "definition": partial(definition, wanted=wanted),
        "nodes": machines,
        "cluster DNS": dns,
        "storage": storage,
    }
    for name, each in looks.items():
        try:
            yield from each(cluster, needs)
        except Forbidden as error:
            yield Check(name, "note", f"this account may not look: {error}")
        except CircinusError as error:
            yield Check(name, "fail", str(error), "try again")


_MOST_LISTED = 5
_DEVICES = ("nvidia.com/", "amd.com/", "gpu.intel.com/")
_SIGNS = ("nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present")
"""Labels of nodes that have a GPU, whether or not pods can ask for it."""
_LABEL = f"kubectl label node NAME {TIER}="


def machines(cluster: Cluster, needs: ClusterNeeds) -> Iterator[Check]:
    """Check that each tier has nodes that our pods can run on, and report GPUs."""
    return checks_of(cluster.listed_whole(NODES)["items"], needs)


def checks_of(nodes: Sequence[Object], needs: ClusterNeeds) -> Iterator[Check]:
    """Yield the same of nodes. Pure."""
    stated = needs.tiers
    if stated is None:
        labels = [node["metadata"].get("labels") or {} for node in nodes]
        stated = dict.fromkeys(sorted({each[TIER] for each in labels if each.get(TIER)}), 1)
        if not stated:
            detail = f"none of the {len(nodes)} nodes carries the label {TIER}"
            yield Check("tiers", "fail" if needs.deploys else "note", detail, f"{_LABEL}TIER")
    of_pools: dict[str | None, list[Object]] = defaultdict(list)
    for node in nodes:
        of_pools[pool_of(node, stated)].append(node)
    for pool, count in stated.items():
        yield _pool(pool, count, of_pools[pool], needs)
    if others := of_pools[None]:
        detail = f"{len(others)} are of no tier: {_listed(map(_name, others))}"
        yield Check("other nodes", "note", detail, f"to use one: {_LABEL}TIER")
    yield _gpus(nodes)


def _pool(pool: str, stated: int, nodes: Sequence[Object], needs: ClusterNeeds) -> Check:
    least = {**needs.least, **needs.own.get(pool, {})}
    why = {_name(node): why_no_machine(node, least, needs.tolerations) for node in nodes}
    good = [name for name, reason in why.items() if not reason]
    bad = [f"{name} {reason}" for name, reason in why.items() if reason]
    detail = f"{len(good)} of {len(why)} nodes count as machines"
    if good:
        detail += f": {_listed(good)}"
    if bad:
        detail += f"; {_listed(bad, '; ')}"
    name = f"tier {pool}"
    if pool in needs.rented:
        return Check(name, "ok", f"{detail}; its NodePool makes nodes for pods that wait")
    if not good:
        state: State = "fail" if needs.deploys and stated > 0 else "note"
        tier, _, kind = pool.partition("/")
        label = f"{_LABEL}{tier}" + (f" circinus.io/machine-type={kind}" if kind else "")
        tolerated = f"tolerate its taint with {TOLERATIONS}" if "taint" in detail else "see to one"
        return Check(name, state, detail, f"{tolerated}, or: {label}" if bad else label)
    if len(good) < stated and not needs.discovers:
        detail += f"; the infrastructure says {stated}"
        return Check(name, "note", detail, "discovery.enabled=true counts those there are")
    return Check(name, "ok", detail)


def _gpus(nodes: Iterable[Object]) -> Check:
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
    words = ", ".join(f"{amount:f} {name}" for name, amount in sorted(offered.items()) if amount)
    if without:
        words = f"{words or 'none offered'}; {_listed(without)} has some that pods cannot ask for"
        return Check("GPUs", "note", words, "install the vendor's device plug-in there")
    return Check("GPUs", "ok", words or "none: plans use CPUs")


def _name(node: Object) -> str:
    return str(node["metadata"]["name"])


def _listed(names: Iterable[str], separator: str = ", ") -> str:
    every = sorted(names)
    more = f" and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else ""
    return separator.join(every[:_MOST_LISTED]) + more


_DNS = (
    ("kube-system", "k8s-app=kube-dns"),
    ("openshift-dns", "kubernetes.io/service-name=dns-default"),
)
"""Namespace and label of the EndpointSlices of a cluster's DNS."""
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def dns(cluster: Cluster, needs: ClusterNeeds) -> Iterator[Check]:
    """Check that names of Services are resolved, by which the operator finds the service.

    A cluster may resolve names by something that is not visible from here: a note, then.
    """
    if not needs.operates:
        return
    places = {collection_of("EndpointSlice", namespace): label for namespace, label in _DNS}
    lists = [cluster.listed(path, labelSelector=label)["items"] for path, label in places.items()]
    slices = [each for items in lists for each in items]
    remedy = "" if needs.has_url else "if there is none, set operator.serviceUrl"
    if not slices:
        yield Check("cluster DNS", "note", "none is seen under the usual names", remedy)
        return
    ends = [end for each in slices for end in each.get("endpoints") or []]
    ready = sum((end.get("conditions") or {}).get("ready") is not False for end in ends)
    detail = f"{ready} of {len(ends)} of its pods are ready"
    if ready:
        yield Check("cluster DNS", "ok", detail)
    else:
        remedy = "kubectl -n kube-system describe pods -l k8s-app=kube-dns"
        yield Check("cluster DNS", "note" if needs.has_url else "fail", detail, remedy)


def storage(cluster: Cluster, needs: ClusterNeeds) -> Iterator[Check]:
    """Check that the volume of the state can be had."""
    if needs.claims and needs.installs:
        yield _claim(cluster, needs) if needs.existing_claim else _class(cluster, needs)


def _claim(cluster: Cluster, needs: ClusterNeeds) -> Check:
    name = needs.existing_claim
    path = f"/api/v1/namespaces/{needs.namespace}/persistentvolumeclaims/{name}"
    claim = cluster.get(path)
    if claim is None:
        words = f"there is no claim {name} in namespace {needs.namespace}"
        return Check("storage", "fail", words, "make it, or leave out existingClaim")
    return Check("storage", "ok", f"claim {name}, {claim['status'].get('phase', 'new')}")


def _class(cluster: Cluster, needs: ClusterNeeds) -> Check:
    wanted = needs.storage_class
    if wanted == "-":
        return Check("storage", "ok", "a volume made by hand is asked for")
    classes = cluster.listed(_CLASSES)["items"]
    names = [each["metadata"]["name"] for each in classes]
    default = [
        each["metadata"]["name"]
        for each in classes
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
    ]
    if wanted in names or (default and not wanted):
        return Check("storage", "ok", f"storage class {wanted or default[0]}")
    what = f"no storage class {wanted}" if wanted else "no default storage class"
    remedy = "set persistence.storageClass or existingClaim, or persistence.enabled=false"
    detail = f"there is {what} (those there are: {', '.join(names) or 'none'})"
    return Check("storage", "fail", detail, remedy)
