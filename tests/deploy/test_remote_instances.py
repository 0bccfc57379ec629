"""What calls has an instance without a share of a machine, where it may be."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from circinus.deploy.compose.rendering import ComposeSettings, render
from circinus.deploy.kubernetes.api import Cluster
from circinus.deploy.kubernetes.launcher import ClusterLauncher
from circinus.deploy.kubernetes.pods import RenderSettings
from circinus.deploy.runtime.instances import InstanceSpec, RunningInstance
from circinus.deploy.runtime.segments import segments
from circinus.deploy.runtime.supervisor import instance_type
from circinus.deploy.workers.shares import Enforcement
from circinus.deploy.workers.transport import files_in
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import RateLimits
from circinus.pipelines.registry import load_pipeline
from tests.deploy.calling_pipelines import MODULE
from tests.deploy.remote_tiers import hosted, instances, wanted


def test_what_calls_nothing_may_not_be_where_there_are_no_machines() -> None:
    rule = "placement of read must be a tier with machines: it calls nothing, got 'hosted'"
    with pytest.raises(InvalidInput, match=rule):
        instances(wanted("reading", "read", model="rented"), hosted())


def test_what_calls_may_not_be_where_its_endpoint_is_not() -> None:
    rule = "placement of read must be a tier with the endpoint reader, got 'edge'"
    with pytest.raises(InvalidInput, match=rule):
        instances(wanted("reading"), hosted())


def test_what_calls_has_one_instance_more_and_no_share_of_a_machine() -> None:
    found = instances(wanted("doubting", "read", "check"), hosted())
    assert [key.tier for key in found] == ["edge", "hosted"]
    caller = found[next(key for key in found if key.tier == "hosted")]
    assert caller.names == ("read", "check")
    options = caller.options(Enforcement.NONE, "unix:/tmp/x.sock")
    assert [each.name for each in options.endpoints] == ["reader", "checker"]
    assert options.pace.speed == 1.0


@pytest.mark.parametrize(
    ("reader", "checker", "at_once"),
    [
        (RateLimits(), RateLimits(), 64),  # 32 each
        (RateLimits(concurrent=5), RateLimits(), 37),
        (RateLimits(concurrent=1), RateLimits(concurrent=2), 3),
        (RateLimits(concurrent=1000), RateLimits(), 256),  # threads of a worker
    ],
)
def test_as_many_calls_at_once_as_the_endpoints_allow(
    reader: RateLimits, checker: RateLimits, at_once: int
) -> None:
    infrastructure = hosted(reader=reader, checker=checker)
    found = list(instances(wanted("doubting", "read", "check"), infrastructure).values())
    assert [spec.calls_at_once for spec in found] == [None, at_once]
    assert [instance_type(spec).places for spec in found] == [1, at_once]


def test_what_is_not_called_allows_nothing() -> None:
    infrastructure = hosted(reader=RateLimits(concurrent=5))
    found = list(instances(wanted("reading", "read"), infrastructure).values())
    assert found[1].calls_at_once == 5


def test_operators_that_call_are_segments_of_their_own() -> None:
    graph = load_pipeline(f"{MODULE}:doubting", allow_import=True).graph
    placement = dict.fromkeys(("read", "check"), "hosted") | dict.fromkeys(
        ("prompt", "both"), "edge"
    )
    found = segments(graph, placement, remote={"hosted"})
    assert [each.operators for each in found] == [("prompt",), ("read",), ("check",), ("both",)]


def test_a_chain_of_calls_hands_each_answer_on() -> None:
    graph = load_pipeline(f"{MODULE}:reading", allow_import=True).graph
    found = segments(graph, dict.fromkeys(("prompt", "read", "hand"), "x"), remote={"x"})
    assert [(each.operators, each.needs, each.wants) for each in found] == [
        (("prompt",), (), ("prompt",)),
        (("read",), ("prompt",), ("read",)),
        (("hand",), ("read",), ("hand",)),
    ]


def test_a_compose_file_of_what_calls_is_refused() -> None:
    specs = list(instances(wanted("reading", "read"), hosted()).values())
    rule = "tier hosted must have machines: what calls endpoints is a process of the service, not"
    with pytest.raises(InvalidInput, match=rule):
        render(specs, "{}", ComposeSettings())


class Here:
    """A `Launcher` that keeps what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[InstanceSpec] = []

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        self.asked.append(spec)
        return RunningInstance(address="unix:/tmp/x.sock", enforcement=Enforcement.NONE)


class EmptyCluster:
    """A cluster without anything in it, that nothing may be applied to."""

    def listed(self, path: str, **query: str) -> dict[str, object]:
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    listed_whole = listed

    def watch(self, path: str, version: str, *, for_s: float, **query: str) -> list[object]:
        return []


async def launched(callers: Here | None) -> RunningInstance:
    cluster, files = cast("Cluster", EmptyCluster()), files_in(Path("none"))
    launcher = ClusterLauncher(cluster, RenderSettings(), files, callers=callers)
    found = instances(wanted("reading", "read"), hosted())
    (caller,) = [spec for spec in found.values() if spec.tier.remote]
    try:
        return await launcher.start(caller)
    finally:
        launcher.ready.stop()


def test_no_pod_calls_endpoints() -> None:
    with pytest.raises(InvalidInput, match="is a process of the service, not a pod"):
        asyncio.run(launched(None))


def test_beside_pods_what_calls_is_a_process_of_the_service() -> None:
    here = Here()
    assert asyncio.run(launched(here)).address == "unix:/tmp/x.sock"
    assert [spec.names for spec in here.asked] == [("read",)]
