from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cluster import sandbox_image
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster, running
from tests.cluster.real_nodes import TIERS
from tests.cluster.simulated import TIER

pytestmark = pytest.mark.cluster
PORT = 8080


def pod(tier: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": sandbox_image.NAME,
        "imagePullPolicy": "Never",
        "args": [f":{PORT}"],
    }
    return {
        "metadata": {"name": f"answers-{tier}"},
        "spec": {
            "nodeSelector": {TIER: tier},
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        },
    }


def test_a_pod_of_every_tier_answers_over_the_pod_network(real_cluster: Cluster) -> None:
    with real_cluster.namespace() as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        for tier in TIERS:
            real_cluster.api.create(path, pod(tier))

        def addresses() -> list[str]:
            pods = real_cluster.api.items(path)
            running = [p for p in pods if p["status"]["phase"] == "Running"]
            return [p["status"]["podIP"] for p in running]

        eventually(lambda: len(addresses()) == len(TIERS), "three running pods", timeout_s=120)
        answers = [httpx.get(f"http://{each}:{PORT}/").text for each in addresses()]

    assert sorted(answers) == sorted(f"answers-{tier}" for tier in TIERS)


def test_a_cluster_that_ends_with_running_pods_leaves_nothing_and_others_alone(
    real_cluster: Cluster,
) -> None:
    """Of another place than the fixture's."""
    with running(real=True) as other:
        assert other.control is not None
        folder = other.control.folder
        other.api.create("/api/v1/namespaces/default/pods", pod("edge"))

        def runs() -> bool:
            found = other.api.get("/api/v1/namespaces/default/pods/answers-edge") or {}
            return bool(found["status"]["phase"] == "Running")

        eventually(runs, "a running pod", timeout_s=120)
        assert traces(folder)

    assert traces(folder) == []
    assert [node for node in real_cluster.nodes if not Path(node.folder).exists()] == []


def traces(folder: Path) -> list[str]:
    """Everything of a cluster that the machine still has."""
    name = f"circ{folder.name}"
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return [
        *(line for line in mounts if f"{folder}/" in line),
        *(path.name for path in Path("/var/run/netns").glob(f"{name}-*")),
        *(path.name for path in Path("/sys/class/net").glob(f"{name}*")),
        *(str(path) for path in Path("/sys/fs/cgroup").glob(f"*/{name}-*")),
        *(path.name for path in folder.parent.glob(folder.name)),
    ]
