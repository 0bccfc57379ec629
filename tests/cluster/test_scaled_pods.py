"""Whoever scales a Deployment of a plan gets requests on all of its pods."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from circinus.deploy.kubernetes.api import Cluster as ApiServer
from circinus.deploy.kubernetes.api import connect
from circinus.deploy.kubernetes.launcher import ClusterLauncher, ClusterOrchestrator
from circinus.deploy.kubernetes.pods import RenderSettings
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.cluster import played_kubelet
from tests.cluster.cluster import Cluster
from tests.cluster.played_kubelet import PlayedKubelet
from tests.cluster.requirements import not_here
from tests.deploy.serving import desired, pipeline_of, plan, within

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
TIER = "played"
TIERS = Infrastructure(name="one", tiers=(Tier(name=TIER, machines=4),))
PLACED = dict.fromkeys(("double", "add", "describe"), TIER)
PLAN = plan("arithmetic", PLACED, configuration={"add": {"amount": 1}})
WANTED = {"q": desired("arithmetic", PLAN)}
PATIENCE_S = 60.0


@pytest.fixture
def kubelet(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[PlayedKubelet]:
    if lacking := played_kubelet.missing():
        not_here(lacking)
    tls = played_kubelet.certificates(tmp_path)
    with played_kubelet.playing(cluster.api, namespace, TIER, tls) as found:
        yield found


def orchestrator(cluster: Cluster, kubelet: PlayedKubelet) -> ClusterOrchestrator:
    shape = RenderSettings(namespace=kubelet.namespace, allow_import=True)
    server = ApiServer(connect(cluster.kubeconfig))
    launcher = ClusterLauncher(server, shape, files_in(kubelet.tls))
    return ClusterOrchestrator(TIERS, launcher, pipeline_of, MinCostMatching(), SystemClock())


async def answering(of: Orchestrator, requests: int = 30) -> set[int]:
    sent = (of.request("q", n, within(PATIENCE_S)) for n in range(requests))
    outputs = [each.output for each in await asyncio.gather(*sent)]
    return {
        pid for each in outputs if isinstance(each, dict) and isinstance(pid := each["pid"], int)
    }


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await condition():
                await asyncio.sleep(0.1)
    except TimeoutError as error:
        raise AssertionError(f"{what}: not within {PATIENCE_S:g} s") from error


def deployment(cluster: Cluster, namespace: str) -> dict[str, Any]:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    (found,) = cluster.api.items(path)
    return {"path": f"{path}/{found['metadata']['name']}", **found}


def scale(cluster: Cluster, namespace: str, replicas: int) -> None:
    """Do what `kubectl scale` does."""
    path = f"{deployment(cluster, namespace)['path']}/scale"
    cluster.api.merge(path, {"spec": {"replicas": replicas}})


def test_all_ready_pods_of_a_deployment_scaled_by_hand_answer_and_it_stays_scaled(
    cluster: Cluster, kubelet: PlayedKubelet
) -> None:
    async def scenario() -> None:
        first = orchestrator(cluster, kubelet)

        async def all_answer(of: Orchestrator, count: int) -> bool:
            pids = await answering(of)
            return len(pids) == count and pids == kubelet.ready()

        await first.apply(WANTED)
        assert await all_answer(first, 1)
        await asyncio.to_thread(scale, cluster, kubelet.namespace, 3)
        await until(lambda: all_answer(first, 3), "three pods answering")
        (instance,) = first.status("q").instances
        assert len(instance.beside) == 2

        # The next run of the service finds all of them, and sets nothing back.
        await first.close()
        second = orchestrator(cluster, kubelet)
        await second.apply(WANTED)
        await until(lambda: all_answer(second, 3), "three pods answering the next run")
        spec = deployment(cluster, kubelet.namespace)["spec"]
        assert spec["replicas"] == 3

        await asyncio.to_thread(scale, cluster, kubelet.namespace, 1)
        await until(lambda: all_answer(second, 1), "one pod answering")
        await second.close()

    asyncio.run(scenario())
