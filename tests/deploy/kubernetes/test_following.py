"""Instances that somebody else makes of pods: found while they are ready, never made or ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import cast

import pytest

from circinus.deploy.kubernetes.api import Cluster, Object
from circinus.deploy.kubernetes.following import FollowingLauncher
from circinus.deploy.kubernetes.pods import name_of
from circinus.deploy.runtime.following import AddressedLauncher
from circinus.deploy.runtime.instances import InstanceKey
from circinus.deploy.workers.errors import LaunchFailed
from circinus.deploy.workers.transport import files_in
from tests.deploy.kubernetes.test_endpoints import endpoint, piece
from tests.deploy.kubernetes.test_worker_objects import spec
from tests.deploy.serving import desired, serving, within

NAME = name_of(spec().key)


class Watched:
    """A cluster that only lets EndpointSlices be watched."""

    def __init__(self) -> None:
        self.events: Queue[Object | None] = Queue()

    def listed(self, path: str, **query: str) -> Object:
        assert path.endswith("/namespaces/ns/endpointslices")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    listed_whole = listed

    def watch(self, path: str, version: str, *, for_s: float, **query: str) -> Iterator[Object]:
        while (event := self.events.get()) is not None:
            yield event


def test_a_pod_that_is_never_ready_is_told_and_nothing_is_changed() -> None:
    async def scenario() -> None:
        cluster = Watched()
        launcher = FollowingLauncher(
            cast("Cluster", cluster), "ns", "r", files_in(Path("none")), patience_s=0.2
        )
        cluster.events.put({"type": "ADDED", "object": _slice(terminating=True)})
        try:
            with pytest.raises(LaunchFailed, match=f"no pod of {NAME} was ready within 0.2 s"):
                await launcher.start(spec())
        finally:
            launcher.stop()
            cluster.events.put(None)

    asyncio.run(scenario())


def test_an_instance_that_nobody_tells_of_is_not_found() -> None:
    async def scenario() -> None:
        launcher = AddressedLauncher(patience_s=0.1)
        launcher.set_addresses({"another": "unix:/nowhere", str(spec().key): "unix:/nowhere"})
        with pytest.raises(LaunchFailed, match=r"nobody answers at .* within 0\.1 s"):
            await launcher.start(spec())

    asyncio.run(scenario())


def test_an_instance_is_where_it_is_told_to_be_until_it_is_told_elsewhere(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, {"q": desired("echo")}) as orchestrator:
            ((name, address),) = orchestrator.served()["q"].addresses.items()
            query, plan_id, tier, replica = name.split("/")
            key = InstanceKey(query, plan_id, tier, int(replica))
            (instance,) = orchestrator.status("q").instances
            assert instance.spec.key == key
            launcher = AddressedLauncher()
            starting = asyncio.create_task(launcher.start(instance.spec))
            await asyncio.sleep(0.05)
            launcher.set_addresses({name: address})
            found = await asyncio.wait_for(starting, 5.0)
            ended = asyncio.create_task(found.ended())
            launcher.set_addresses({name: address, "another": "unix:/nowhere"})
            assert not (await asyncio.wait({ended}, timeout=0.1))[0]
            launcher.set_addresses({})
            assert await asyncio.wait_for(ended, 5.0) == f"it is not at {address} any more"
            await found.stop()
            assert (await orchestrator.request("q", 1, within(5.0))).output == 1  # it goes on

    asyncio.run(scenario())


def _slice(**conditions: bool) -> Object:
    found: Object = piece(endpoint("p", "127.0.0.1", **conditions), service=NAME)
    found["metadata"]["resourceVersion"] = "2"
    return found
