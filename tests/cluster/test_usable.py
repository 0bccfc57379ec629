"""What counts as a machine is what the cluster's own scheduler thinks, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import Object, connect
from circinus.deploy.kubernetes.nodes import NODES, Discovery, machines_of
from tests.cluster import simulated
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rude_proxy import Manner, rude

pytestmark = pytest.mark.cluster

TIERS = {"near": 3, "mid": 4, "far": 4}
"""Nodes of tiers of this file alone; of each, one is for everybody."""
GPU = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
LENT = {"key": "lent", "effect": "NoExecute"}
TOLERATED = [{"key": "gpu", "operator": "Exists"}, {"key": "lent", "operator": "Exists"}]


@pytest.fixture(scope="module")
def server(cluster: Cluster) -> Iterator[ApiServer]:
    """A cluster with 3, 4 and 4 nodes of the tiers, of which 1, 1 and 1 take every pod."""
    names = {
        tier: [simulated.add_node(cluster.api, tier, number) for number in range(count)]
        for tier, count in TIERS.items()
    }
    every = [name for of_tier in names.values() for name in of_tier]
    try:
        ready = partial(simulated.is_ready, cluster.api)
        eventually(lambda: all(map(ready, every)), "every node ready")
        for of_tier in names.values():
            for name, taint in zip(of_tier[1:], [GPU, LENT, GPU], strict=False):
                cluster.api.merge(f"{NODES}/{name}", {"spec": {"taints": [taint]}})
        yield ApiServer(connect(cluster.kubeconfig))
    finally:
        for name in every:
            cluster.api.delete(f"{NODES}/{name}")


@pytest.mark.parametrize(
    ("tolerations", "machines"),
    [([], [1, 1, 1]), (TOLERATED[:1], [2, 3, 3]), (TOLERATED, [3, 4, 4])],
)
def test_as_many_nodes_count_as_the_scheduler_puts_our_pods_on(
    cluster: Cluster,
    namespace: str,
    server: ApiServer,
    tolerations: list[Object],
    machines: list[int],
) -> None:
    told: list[Mapping[str, int]] = []
    discovery = Discovery(
        cluster=server, tiers=tuple(TIERS), report=told.append, tolerations=tuple(tolerations)
    )
    wanted = dict(zip(TIERS, machines, strict=True))
    discovery.mirror.start()
    eventually(lambda: told and told[-1] == wanted, f"{wanted} machines, not {told}")
    discovery.mirror.stop()

    # One pod for each node, and one more: each on a node of its own, or on none.
    for tier, count in TIERS.items():
        for number in range(count + 1):
            create(cluster, namespace, f"{tier}-{number}", **alone_on(tier, tolerations))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    eventually(lambda: all(map(is_decided, cluster.api.items(pods))), "every pod decided on")
    placed = [pod["metadata"]["labels"]["tier"] for pod in cluster.api.items(pods) if bound(pod)]
    assert {tier: placed.count(tier) for tier in TIERS} == wanted


def test_a_list_in_pages_is_the_list(cluster: Cluster, namespace: str, server: ApiServer) -> None:
    path = config_maps(cluster, namespace, 7)
    whole = server.listed(path)
    found = server.listed_whole(path, 2)

    assert [each["metadata"]["name"] for each in found["items"]] == [
        each["metadata"]["name"] for each in whole["items"]
    ]
    # The version is one to watch from: what came before is not told again.
    cluster.api.create(path, {"metadata": {"name": "later"}})
    events = server.watch(path, found["metadata"]["resourceVersion"], for_s=5)
    assert next(events)["object"]["metadata"]["name"] == "later"


def test_a_list_whose_state_is_forgotten_on_the_way_comes_whole(
    cluster: Cluster, namespace: str
) -> None:
    path = config_maps(cluster, namespace, 7)
    with rude(cluster, lambda _number, _method: Manner.STALE) as client:
        found = client.listed_whole(path, 2)

    names = [each["metadata"]["name"] for each in found["items"]]
    assert len([name for name in names if name.startswith("kept-")]) == 7
    assert len(names) == len(set(names))


def test_machines_are_counted_in_pages(server: ApiServer) -> None:
    nodes = server.listed_whole(NODES, 3)["items"]
    assert machines_of(nodes, TIERS) == dict.fromkeys(TIERS, 1)


def alone_on(tier: str, tolerations: list[Object]) -> dict[str, Any]:
    """Return what a pod needs to be the only one of its tier on its node."""
    alike = {"matchLabels": {"tier": tier}}
    rule = {"labelSelector": alike, "topologyKey": "kubernetes.io/hostname"}
    return {
        "labels": {"tier": tier},
        "nodeSelector": {simulated.TIER: tier},
        "tolerations": tolerations,
        "affinity": {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}
        },
        "containers": [container("10m")],
    }


def container(cpu: str, name: str = "main") -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu}}}


def create(
    cluster: Cluster,
    namespace: str,
    name: str,
    labels: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - of a pod
) -> None:
    """Create a pod that asks for nothing else."""
    metadata = {"name": name, "labels": labels or {}}
    whole = {"terminationGracePeriodSeconds": 0, **spec}
    cluster.api.create(
        f"/api/v1/namespaces/{namespace}/pods", {"metadata": metadata, "spec": whole}
    )


def bound(pod: Object) -> bool:
    """Whether the scheduler has chosen a node."""
    return bool(pod["spec"].get("nodeName"))


def is_decided(pod: Object) -> bool:
    """Whether the scheduler has chosen a node, or said that there is none."""
    conditions = pod.get("status", {}).get("conditions") or []
    return bound(pod) or any(c.get("reason") == "Unschedulable" for c in conditions)


def config_maps(cluster: Cluster, namespace: str, count: int) -> str:
    """Create so many, and give the path of their collection."""
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for number in range(count):
        cluster.api.create(path, {"metadata": {"name": f"kept-{number}"}})
    return path
