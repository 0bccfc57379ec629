"""Instances of a plan that serves come and go, and the others answer on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import DesiredDeployment, ExtraReplica
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.tiers import MachineType, Tier
from tests.deploy.serving import desired, is_alive, pids_of, plan, serving, within

UNLIKE = Infrastructure(
    name="unlike",
    tiers=(
        Tier(
            name="cloud",
            emulated=True,
            types=(
                MachineType(name="small", machines=2, speed_factor=0.25),
                MachineType(name="large", machines=2, price_usd_per_hour=1.0),
            ),
        ),
    ),
)
TWO = plan("nap", replicas={"cloud": 2})


def on(*types: str) -> dict[str, DesiredDeployment]:
    return {"q": replace(desired("nap", TWO), machine_types=types)}


def where(orchestrator: Orchestrator) -> list[str | None]:
    return [each.spec.machine_type for each in orchestrator.status("q").instances]


def test_instances_that_cannot_move_serve_where_they_are_and_it_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, on("small", "small"), UNLIKE) as orchestrator:
            before = pids_of(orchestrator, "q")
            await orchestrator.apply(on("small", "gone"))
            status = orchestrator.status("q")
            assert status.reason is not None
            assert "tier cloud.types must be among small, large, got 'gone'" in status.reason
            assert (status.phase, pids_of(orchestrator, "q")) == (DeploymentPhase.SERVING, before)
            await orchestrator.apply(on("small", "small"))
            assert orchestrator.status("q").reason is None
            await orchestrator.request("q", 0.01, within(5.0))

    asyncio.run(scenario())


def test_an_instance_whose_machine_changes_is_replaced_alone_and_no_request_is_lost(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with serving(tmp_path, on("small", "small"), UNLIKE) as orchestrator:
            kept, gone = pids_of(orchestrator, "q")
            change = asyncio.create_task(orchestrator.apply(on("small", "large")))
            asked = 0
            while not change.done():
                requests = (orchestrator.request("q", 0.01, within(10.0)) for _ in range(2))
                asked += len(await asyncio.gather(*requests))
            await change
            assert asked > 0
            assert where(orchestrator) == ["small", "large"]
            assert pids_of(orchestrator, "q")[0] == kept
            assert not is_alive(gone)
            await orchestrator.apply(on("large", "small"))  # the same machines in another order
            assert pids_of(orchestrator, "q")[0] == kept

    asyncio.run(scenario())


def test_extra_replicas_come_and_go_and_the_others_are_not_started_again(tmp_path: Path) -> None:
    one = desired("nap", plan("nap"))
    more = replace(one, extras=(ExtraReplica("cloud"), ExtraReplica("cloud")))

    async def scenario() -> None:
        async with serving(tmp_path, {"q": one}) as orchestrator:
            (first,) = pids_of(orchestrator, "q")
            assert orchestrator.reports()["q"].arrivals_per_s == 0.0
            await orchestrator.apply({"q": more})
            pids = pids_of(orchestrator, "q")
            assert (len(pids), pids[0]) == (3, first)
            requests = [
                asyncio.create_task(orchestrator.request("q", 0.4, within(5.0))) for _ in range(3)
            ]
            await asyncio.sleep(0.1)  # one on each
            await orchestrator.apply({"q": one})
            answers = await asyncio.gather(*requests)
            assert all(answer.waiting_s < 0.2 for answer in answers)
            assert all(answer.retries == 0 for answer in answers)
            assert pids_of(orchestrator, "q") == [first]
            assert not any(map(is_alive, pids[1:]))
            assert orchestrator.reports()["q"].arrivals_per_s == 0.3

    asyncio.run(scenario())


def test_a_pool_comes_before_the_plans_own_go_and_no_request_is_lost(tmp_path: Path) -> None:
    small, large = ExtraReplica("cloud", "small"), ExtraReplica("cloud", "large")
    alone = on("small", "small")
    mixed = {"q": replace(alone["q"], machine_types=(None, None), pool=(small, large, large))}

    async def scenario() -> None:
        async with serving(tmp_path, alone, UNLIKE) as orchestrator:
            kept, gone = pids_of(orchestrator, "q")
            change = asyncio.create_task(orchestrator.apply(mixed))
            asked = 0
            while not change.done():
                requests = (orchestrator.request("q", 0.01, within(10.0)) for _ in range(2))
                asked += len(await asyncio.gather(*requests))
            await change
            assert asked > 0
            assert where(orchestrator) == ["small", "large", "large"]
            assert pids_of(orchestrator, "q")[0] == kept  # what of the pool is there stays
            assert not is_alive(gone)
            await orchestrator.apply(alone)
            assert where(orchestrator) == ["small", "small"]
            assert pids_of(orchestrator, "q")[0] == kept

    asyncio.run(scenario())


def test_an_instance_is_as_fast_as_the_type_of_its_machine(tmp_path: Path) -> None:
    async def scenario() -> None:
        one = replace(desired("nap", plan("nap")), machine_types=("small",))
        async with serving(tmp_path, {"q": one}, UNLIKE) as orchestrator:
            slow = await orchestrator.request("q", 0.1, within(5.0))
            await orchestrator.apply({"q": replace(one, machine_types=("large",))})
            fast = await orchestrator.request("q", 0.1, within(5.0))
        assert slow.operator_s["nap"] == pytest.approx(0.4, rel=0.2)  # a quarter of the speed
        assert fast.operator_s["nap"] == pytest.approx(0.1, rel=0.2)

    asyncio.run(scenario())
