"""What a cluster has besides nodes: names that are resolved, and volumes for the state."""

from __future__ import annotations

from collections.abc import Iterator

from circinus.deploy.kubernetes.api import Cluster, collection_of
from circinus.deploy.kubernetes.fitness.needs import ClusterCheck, ClusterNeeds

_DNS = (
    ("kube-system", "k8s-app=kube-dns"),
    ("openshift-dns", "kubernetes.io/service-name=dns-default"),
)
"""Namespace and label of the slices under which a cluster's DNS is found."""
_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def dns(cluster: Cluster, needs: ClusterNeeds) -> Iterator[ClusterCheck]:
    """Check that names of Services are resolved, by which the operator finds the service.

    A cluster may resolve names by something that cannot be seen from here: a note, then.
    """
    if not needs.operates:
        return
    places = {collection_of("EndpointSlice", namespace): label for namespace, label in _DNS}
    found = [cluster.listed(path, labelSelector=label)["items"] for path, label in places.items()]
    slices = [each for items in found for each in items]
    remedy = "" if needs.has_url else "if there is none, set operator.serviceUrl"
    if not slices:
        yield ClusterCheck("cluster DNS", "note", "none is seen under the usual names", remedy)
        return
    ends = [end for each in slices for end in each.get("endpoints") or []]
    ready = sum((end.get("conditions") or {}).get("ready") is not False for end in ends)
    told = f"{ready} of {len(ends)} of its pods are ready"
    if ready:
        yield ClusterCheck("cluster DNS", "ok", told)
    else:
        remedy = "kubectl -n kube-system describe pods -l k8s-app=kube-dns"
        yield ClusterCheck("cluster DNS", "note" if needs.has_url else "fail", told, remedy)


def storage(cluster: Cluster, needs: ClusterNeeds) -> Iterator[ClusterCheck]:
    """Check that the volume of the state can be had."""
    if needs.claims and needs.installs:
        yield _claim(cluster, needs) if needs.existing_claim else _class(cluster, needs)


def _claim(cluster: Cluster, needs: ClusterNeeds) -> ClusterCheck:
    name = needs.existing_claim
    path = f"/api/v1/namespaces/{needs.namespace}/persistentvolumeclaims/{name}"
    found = cluster.get(path)
    if found is None:
        words = f"there is no claim {name} in namespace {needs.namespace}"
        return ClusterCheck("storage", "fail", words, "make it, or leave out existingClaim")
    return ClusterCheck("storage", "ok", f"claim {name}, {found['status'].get('phase', 'new')}")


def _class(cluster: Cluster, needs: ClusterNeeds) -> ClusterCheck:
    wanted = needs.storage_class
    if wanted == "-":
        return ClusterCheck("storage", "ok", "a volume made by hand is asked for")
    found = cluster.listed(_CLASSES)["items"]
    names = [each["metadata"]["name"] for each in found]
    default = [
        each["metadata"]["name"]
        for each in found
        if (each["metadata"].get("annotations") or {}).get(_DEFAULT) == "true"
    ]
    if wanted in names or (default and not wanted):
        return ClusterCheck("storage", "ok", f"storage class {wanted or default[0]}")
    what = f"no storage class {wanted}" if wanted else "no default storage class"
    remedy = "set persistence.storageClass or existingClaim, or persistence.enabled=false"
    told = f"there is {what} (those there are: {', '.join(names) or 'none'})"
    return ClusterCheck("storage", "fail", told, remedy)
