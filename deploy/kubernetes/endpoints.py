"""Which workers are ready, from the EndpointSlices that the cluster keeps of their Services.

Pure: slices in, addresses out. A slice that is split, or an address that two slices name while the
cluster moves it, changes nothing about the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deploy.kubernetes.api import Object

COLLECTION = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
SERVICE_LABEL = "kubernetes.io/service-name"


def ready_addresses(
    slices: Iterable[Object], port_name: str
) -> Mapping[str, frozenset[tuple[str, str]]]:
    """Give the endpoints that take requests, by the name of their Service.

    Args:
        slices: As the cluster has them.
        port_name: Of the Service's port that is meant.

    Returns:
        Service -> (pod, `host:port`) of each. An endpoint that is ending is not ready.
    """
    found: dict[str, set[tuple[str, str]]] = {}
    for piece in slices:
        service = (piece["metadata"].get("labels") or {}).get(SERVICE_LABEL)
        ports = [p["port"] for p in piece.get("ports") or () if p.get("name") == port_name]
        if service is None or not ports:
            continue
        for endpoint in piece.get("endpoints") or ():
            if _is_ready(endpoint):
                pod = (endpoint.get("targetRef") or {}).get("name") or ""
                for address in endpoint["addresses"]:
                    found.setdefault(service, set()).add((pod, _joined(address, ports[0])))
    return {service: frozenset(addresses) for service, addresses in found.items()}


def _is_ready(endpoint: Object) -> bool:
    conditions = endpoint.get("conditions") or {}
    # Left out means ready, by the API's own words.
    return conditions.get("ready") is not False and not conditions.get("terminating")


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
