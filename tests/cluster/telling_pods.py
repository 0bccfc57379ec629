"""A small pod on each real node that tells its name: shows whether real nodes run anything."""

from __future__ import annotations

from typing import Any

import httpx

from tests.cluster import sandbox_image
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.real_nodes import TIERS
from tests.cluster.simulated import TIER

_PORT = 8080
_START_S = 120.0


def pod(tier: str) -> dict[str, Any]:
    """Return a pod that tells its name over HTTP; it runs on any node of a tier."""
    container = {
        "name": "main",
        "image": sandbox_image.NAME,
        "imagePullPolicy": "Never",
        "args": [f":{_PORT}"],
    }
    return {
        "metadata": {"name": name_of(tier)},
        "spec": {
            "nodeSelector": {TIER: tier},
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
        },
    }


def name_of(tier: str) -> str:
    """Return the name of a tier's pod, which is what it tells."""
    return f"answers-{tier}"


def told(cluster: Cluster) -> list[str]:
    """Start a pod on every tier, ask each over the pod network, give what they tell.

    Raises:
        AssertionError: If they do not run.
        httpx.HTTPError: If one does not answer.
    """
    with cluster.namespace() as namespace:
        path = f"/api/v1/namespaces/{namespace}/pods"
        for tier in TIERS:
            cluster.api.create(path, pod(tier))

        def addresses() -> list[str]:
            running = [p for p in cluster.api.items(path) if p["status"]["phase"] == "Running"]
            return [p["status"]["podIP"] for p in running]

        eventually(lambda: len(addresses()) == len(TIERS), "running pods", timeout_s=_START_S)
        return [httpx.get(f"http://{each}:{_PORT}/").text for each in addresses()]
