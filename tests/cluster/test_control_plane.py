from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Api, eventually
from tests.cluster.cluster import MACHINES, Cluster
from tests.cluster.simulated import TIER

pytestmark = pytest.mark.cluster


def deployment(name: str, tier: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {TIER: tier}, "containers": [container]},
            },
        },
    }


def test_every_tier_has_simulated_nodes(cluster: Cluster) -> None:
    nodes = cluster.api.items("/api/v1/nodes", labelSelector="type=kwok")
    tiers = [node["metadata"]["labels"][TIER] for node in nodes]

    assert {tier: tiers.count(tier) for tier in MACHINES} == MACHINES


def test_a_deployment_becomes_ready_on_the_nodes_of_its_tier(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    cluster.api.create(path, deployment("web", "edge", 3))

    def ready() -> bool:
        status = (cluster.api.get(f"{path}/web") or {})["status"]
        return bool(status.get("readyReplicas") == 3)

    eventually(ready, "three ready pods")
    pods = cluster.api.items(f"/api/v1/namespaces/{namespace}/pods")
    assert {pod["spec"]["nodeName"].split("-")[0] for pod in pods} == {"edge"}


def test_who_has_no_role_is_refused(cluster: Cluster, namespace: str) -> None:
    if cluster.control is None:
        pytest.skip("the users of this cluster are not ours")
    control = cluster.control
    stranger = Api(control.url, "circinus-test-nobody", control.authority)

    with pytest.raises(RuntimeError, match="pods is forbidden"):
        stranger.items(f"/api/v1/namespaces/{namespace}/pods")
    stranger.close()


def test_the_api_server_comes_back_with_what_it_stored(cluster: Cluster, namespace: str) -> None:
    if cluster.control is None:
        pytest.skip("the API server of this cluster is not ours to kill")
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.api.create(path, {"metadata": {"name": "kept"}, "data": {"a": "1"}})

    cluster.control.kill_api_server()
    assert not cluster.api.is_ready()
    cluster.control.start_api_server()

    found = cluster.api.get(f"{path}/kept") or {}
    assert found["data"] == {"a": "1"}
