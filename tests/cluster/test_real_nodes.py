from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster, running
from tests.cluster.real_nodes import TIERS
from tests.cluster.telling_pods import name_of, pod, told

pytestmark = pytest.mark.cluster


def test_a_pod_of_every_tier_answers_over_the_pod_network(real_cluster: Cluster) -> None:
    assert sorted(told(real_cluster)) == sorted(map(name_of, TIERS))


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

    # The kernel takes a namespace's interfaces down a moment after the namespace is gone.
    eventually(lambda: traces(folder) == [], f"no trace of {folder}", timeout_s=30)
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
