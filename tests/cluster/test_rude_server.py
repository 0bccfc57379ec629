"""An API server that fails, loses answers, cuts watches or is silent: each is a clear state."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from circinus.deploy.kubernetes.api import Object, collection_of
from circinus.deploy.kubernetes.mirror import Mirror
from circinus.pipelines.errors import Unavailable
from tests.cluster.api import eventually
from tests.cluster.cluster import Cluster
from tests.cluster.rude_proxy import Manner, rude

pytestmark = pytest.mark.cluster


def test_a_server_that_is_always_busy_is_told(cluster: Cluster, namespace: str) -> None:
    with (
        rude(cluster, lambda _number, _method: Manner.BUSY) as client,
        pytest.raises(Unavailable, match=r"the cluster cannot answer now .*too much to do"),
    ):
        client.listed(collection_of("ConfigMap", namespace))


def test_a_server_that_is_silent_is_told(cluster: Cluster, namespace: str) -> None:
    with (
        rude(cluster, lambda _number, _method: Manner.SILENT, timeout_s=0.3) as client,
        pytest.raises(Unavailable, match="timed out"),
    ):
        client.listed(collection_of("ConfigMap", namespace))


def test_a_mirror_misses_nothing_though_every_watch_is_cut(
    cluster: Cluster, namespace: str
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen: set[str] = set()

    def take(objects: Mapping[str, Object]) -> None:
        seen.clear()
        seen.update(name for name in objects if name.startswith("kept"))

    # The list is answered; then each watch ends with its first event.
    with rude(
        cluster, lambda number, _method: Manner.POLITE if number == 1 else Manner.FORGETFUL
    ) as client:
        mirror = Mirror(cluster=client, path=path, on_change=take)
        mirror.start()
        for number in range(4):
            cluster.api.create(path, {"metadata": {"name": f"kept-{number}"}})
        cluster.api.delete(f"{path}/kept-0")
        eventually(lambda: seen == {"kept-1", "kept-2", "kept-3"}, "everything heard of")
        mirror.stop()
        cluster.api.create(path, {"metadata": {"name": "last"}})  # ends the watch
