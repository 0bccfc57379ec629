"""Nodes that come, are cordoned and go change the machines within seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from circinus.deploy.kubernetes.nodes import Discovery
from tests.cluster import simulated
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster
SECONDS = 5.0


@pytest.fixture
def told(cluster: Cluster) -> Iterator[list[Mapping[str, int]]]:
    heard: list[Mapping[str, int]] = []
    discovery = Discovery(
        cluster=ApiServer(connect(cluster.kubeconfig)),
        tiers=("moon", "mars"),  # of this test alone
        report=heard.append,
        least={"cpu": "4"},
    )
    discovery.mirror.start()
    eventually(lambda: heard == [{"moon": 0, "mars": 0}], "the first count")
    yield heard
    discovery.mirror.stop()


def test_a_node_counts_while_it_takes_pods(
    cluster: Cluster, told: list[Mapping[str, int]]
) -> None:
    names = [simulated.add_node(cluster.api, "moon", number) for number in range(2)]
    small = simulated.add_node(cluster.api, "mars", 0, cpu="3")
    try:
        eventually(lambda: told[-1]["moon"] == 2, "two machines", timeout_s=SECONDS)
        cluster.api.merge(f"/api/v1/nodes/{names[0]}", {"spec": {"unschedulable": True}})
        eventually(lambda: told[-1]["moon"] == 1, "a cordoned node gone", timeout_s=SECONDS)
        cluster.api.merge(f"/api/v1/nodes/{names[0]}", {"spec": {"unschedulable": None}})
        eventually(lambda: told[-1]["moon"] == 2, "it is back", timeout_s=SECONDS)
        cluster.api.delete(f"/api/v1/nodes/{names[1]}")
        eventually(lambda: told[-1]["moon"] == 1, "a deleted node gone", timeout_s=SECONDS)
        assert {machines["mars"] for machines in told} == {0}  # it has too little to give
    finally:
        for name in (*names, small):
            cluster.api.delete(f"/api/v1/nodes/{name}")


def test_an_api_server_that_dies_is_followed_again(
    cluster: Cluster, told: list[Mapping[str, int]]
) -> None:
    if cluster.control is None:
        pytest.skip("the API server is not ours to kill")
    cluster.control.kill_api_server()
    cluster.control.start_api_server()
    name = simulated.add_node(cluster.api, "moon", 7)
    try:
        eventually(lambda: told[-1]["moon"] == 1, "the new node", timeout_s=30.0)
    finally:
        cluster.api.delete(f"/api/v1/nodes/{name}")
