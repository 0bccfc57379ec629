"""Pods of one name, one after the other: the next is not mistaken for the one that ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from queue import Queue
from typing import cast

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.launcher import ClusterInstance, ClusterLauncher
from circinus.deploy.kubernetes.pods import RenderSettings, name_of, worker_objects
from circinus.deploy.runtime.instances import RunningInstance
from circinus.deploy.workers.shares import Enforcement
from circinus.deploy.workers.transport import files_in
from tests.deploy.kubernetes.test_endpoints import endpoint, piece
from tests.deploy.kubernetes.test_worker_objects import spec

NAME = name_of(spec().key)
APPLIED = ["apply PodDisruptionBudget", "apply Service", "apply Deployment"]


class OnePod:
    """A cluster that has a ready pod of `NAME`, and notes what it is asked to change."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.events: Queue[Object | None] = Queue()

    def listed(self, path: str, **query: str) -> Object:
        return {"items": [_slice(ready=True)], "metadata": {"resourceVersion": "1"}}

    listed_whole = listed

    def watch(self, path: str, version: str, *, for_s: float, **query: str) -> Iterator[Object]:
        while (event := self.events.get()) is not None:
            yield event

    def ends_it(self) -> None:
        self.events.put({"type": "MODIFIED", "object": _slice(ready=False)})

    def scales(self, *endpoints: Object) -> None:
        found: Object = piece(*endpoints, service=NAME)
        found["metadata"]["resourceVersion"] = "2"
        self.events.put({"type": "MODIFIED", "object": found})

    def apply(self, path: str, document: Object) -> None:
        self.calls.append(f"apply {document['kind']}")

    def delete(self, path: str) -> None:
        self.calls.append(f"delete {path.split('/')[-2]}")


async def _cancelled(task: asyncio.Task[RunningInstance]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _slice(*, ready: bool) -> Object:
    found: Object = piece(endpoint("old", "127.0.0.1", ready=ready), service=NAME)
    found["metadata"]["resourceVersion"] = "2"
    return found


async def _until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not happened():
            await asyncio.sleep(0.001)


@asynccontextmanager
async def launching(cluster: OnePod) -> AsyncIterator[ClusterLauncher]:
    files = files_in(Path("none"))
    launcher = ClusterLauncher(cast("Cluster", cluster), RenderSettings(), files)
    try:
        await _until(lambda: bool(launcher.ready.of(NAME)))
        yield launcher
    finally:
        launcher.ready.stop()
        cluster.events.put(None)


def test_a_start_waits_until_the_pod_of_its_name_that_ends_takes_no_more_requests() -> None:
    async def scenario(cluster: OnePod) -> None:
        async with launching(cluster) as launcher:
            removals = [asyncio.create_task(launcher.remove(NAME)) for _ in range(2)]
            starting = asyncio.create_task(launcher.start(spec()))
            await _until(lambda: bool(cluster.calls))
            assert cluster.calls == ["delete deployments"]
            cluster.ends_it()
            await asyncio.gather(*removals)
            await _until(lambda: len(cluster.calls) == 5)
            assert cluster.calls[1:] == ["delete services", *APPLIED]
            await _cancelled(starting)
            assert cluster.calls[5:] == ["delete deployments", "delete services"]

    asyncio.run(scenario(OnePod()))


def test_what_a_later_start_took_over_is_not_removed_by_the_earlier_one() -> None:
    async def scenario(cluster: OnePod) -> None:
        async with launching(cluster) as launcher:
            cluster.ends_it()
            await _until(lambda: not launcher.ready.of(NAME))
            starts = [asyncio.create_task(launcher.start(spec())) for _ in range(2)]
            await _until(lambda: len(cluster.calls) == 6)
            for each in starts:
                assert not any(call.startswith("delete") for call in cluster.calls)
                await _cancelled(each)
            assert cluster.calls[6:] == ["delete deployments", "delete services"]

    asyncio.run(scenario(OnePod()))


def test_every_other_ready_pod_is_beside_an_instance_by_one_address_each() -> None:
    async def scenario(cluster: OnePod) -> None:
        async with launching(cluster) as launcher:
            instance = ClusterInstance(
                address="127.0.0.1:50051",
                enforcement=Enforcement.NONE,
                service=NAME,
                pod="old",
                ready=launcher.ready,
                number=0,
                launcher=launcher,
            )
            waiting = asyncio.create_task(instance.beside(frozenset()))
            await asyncio.sleep(0.02)
            assert not waiting.done()  # it is alone
            pods = [endpoint("old", "127.0.0.1"), endpoint("a", "127.0.0.2"), endpoint("b", "::2")]
            cluster.scales(
                *pods, endpoint("b", "127.0.0.3"), endpoint("c", "1.1.1.1", ready=False)
            )
            both = frozenset({"127.0.0.2:50051", "127.0.0.3:50051"})
            assert await waiting == both  # of the networks of `b` the first
            cluster.scales(*pods[:2])
            assert await instance.beside(both) == {"127.0.0.2:50051"}

    asyncio.run(scenario(OnePod()))


def test_how_many_replicas_a_deployment_has_is_left_to_whoever_scales_it() -> None:
    deployment = worker_objects(spec(), RenderSettings())[1]
    assert deployment["kind"] == "Deployment"
    assert "replicas" not in deployment["spec"]
