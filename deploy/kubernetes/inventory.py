"""The objects of ours in a namespace."""

from __future__ import annotations

from typing import Protocol

from deploy.kubernetes.api import Object
from deploy.kubernetes.history import HISTORY
from deploy.kubernetes.names import CONTENT, QUERY, ROLE, label_value, selector_of

COLLECTIONS = {
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
    "Service": "/api/v1/namespaces/{namespace}/services",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
}
_VERSIONS = {
    "ConfigMap": "v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "Deployment": "apps/v1",
}


class Listed(Protocol):
    """Gives the list at a path."""

    def __call__(self, path: str, **query: str) -> Object:
        """Give it; raises as `Cluster` does."""
        ...


def path_of(namespace: str, key: str) -> str:
    """Give the path of an object of `Kind/name`."""
    kind, name = key.split("/")
    return f"{COLLECTIONS[kind].format(namespace=namespace)}/{name}"


def deployed(
    listed: Listed, namespace: str, query_id: str | None = None
) -> tuple[dict[str, Object], list[Object]]:
    """Give the objects of plans by key, and the records of the history.

    Args:
        listed: Lists a collection; asked once for each kind.
        namespace: Where.
        query_id: Whose; None: everybody's.

    Raises:
        ClusterRefused: If the cluster says no.
        Unavailable: If it does not answer.
    """
    chosen = selector_of() if query_id is None else selector_of(query=label_value(query_id))
    objects: dict[str, Object] = {}
    records: list[Object] = []
    for kind, collection in COLLECTIONS.items():
        found = listed(collection.format(namespace=namespace), labelSelector=chosen)
        for item in found["items"]:
            metadata = item["metadata"]
            if metadata["labels"].get(ROLE) == HISTORY:
                records.append(item)
            elif CONTENT in (metadata.get("annotations") or {}) and QUERY in metadata["labels"]:
                item |= {"kind": kind, "apiVersion": _VERSIONS[kind]}  # lists leave it out
                objects[f"{kind}/{metadata['name']}"] = item
    return objects, records
