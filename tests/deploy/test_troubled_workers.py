"""Operators that hang, fork, leak, close descriptors or raise what nobody expects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from circinus.deploy.local.launcher import LocalInstance
from circinus.deploy.runtime.deployment import DeploymentPhase
from circinus.deploy.runtime.instances import instances_of
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import DeadlineExceeded
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.errors import LONGEST_CAUSE, CircinusError, OperatorFailed
from circinus.pipelines.model.payload import decode, encode
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, is_alive, launcher, pipeline_of, tiny, within


@asynccontextmanager
async def troubled(logs: Path) -> AsyncIterator[tuple[LocalInstance, WorkerClient]]:
    found = instances_of("q-1", desired("trouble"), tiny("trouble").graph, ONE_TIER)
    spec = next(iter(found.values()))
    starter = launcher(logs, memory_bytes=2**28)  # its sockets go with it
    instance = await starter.start(spec)
    client = instance.client()
    try:
        assert await ask(client, "hello") == "hello"
        yield instance, client
    finally:
        await client.close()
        await instance.stop()
        assert instance.pid is not None
        assert not is_alive(instance.pid)
        del starter


async def ask(client: WorkerClient, what: str, timeout_s: float = 20.0) -> object:
    inputs = {INPUT: encode(what)}
    reply = await client.run(["trouble"], inputs, ["trouble"], timeout_s=timeout_s)
    return decode(reply.outputs["trouble"])


def test_whatever_an_operator_raises_is_told_and_its_worker_serves_on(tmp_path: Path) -> None:
    shown = LONGEST_CAUSE - len("ValueError: ")
    told = {
        "surrogate": r"ValueError: \ud800 alone",
        "unfit": r"\ud800 must be \ud800, got None.",
        "unspeakable": "_Unspeakable: its message cannot be had: ValueError",
        "interrupt": "KeyboardInterrupt",
        "cancel": "CancelledError",
        "allocate": "MemoryError",
        "long": f"ValueError: {'x' * shown}... ({2**20 - shown} more characters)",
    }

    async def scenario() -> None:
        async with troubled(tmp_path) as (_, client):
            for what, cause in told.items():
                with pytest.raises(OperatorFailed) as raised:
                    await ask(client, what)
                assert (raised.value.operator, raised.value.cause) == ("trouble", cause)
                assert await ask(client, "and on") == "and on"

    asyncio.run(scenario())


@pytest.mark.slow  # as above, and another worker starts
def test_a_deployment_whose_worker_hangs_answers_again_and_tells_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        policy, clock = MinCostMatching(), SystemClock()
        running = Orchestrator(ONE_TIER, launcher(tmp_path), pipeline_of, policy, clock)
        try:
            await running.apply({"q-1": desired("trouble")})
            assert (await running.request("q-1", "hello", within(20.0))).output == "hello"
            with pytest.raises(DeadlineExceeded):
                await running.request("q-1", "hang", within(1.0))
            async with asyncio.timeout(60):
                while not (status := running.status("q-1")).instances[0].restarts:
                    await asyncio.sleep(0.1)
                assert "replaced: trouble ran for" in (status.instances[0].ended or "")
                while running.status("q-1").phase is not DeploymentPhase.SERVING:
                    await asyncio.sleep(0.1)
            assert (await running.request("q-1", "again", within(20.0))).output == "again"
        finally:
            await running.close()

    asyncio.run(scenario())


def test_a_copy_that_an_operator_forks_answers_nothing_and_ends(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (instance, client):
            assert [await ask(client, "fork") for _ in range(3)] == ["original"] * 3
            async with asyncio.timeout(20):
                while "fork_returned" not in (log := instance.log.read_text()):
                    await asyncio.sleep(0.05)
            assert f"of={instance.pid}" in log

    asyncio.run(scenario())


def test_a_worker_whose_operators_hold_its_memory_ends_and_says_so(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (instance, client):
            with pytest.raises(OperatorFailed, match="MemoryError"):
                await ask(client, "hold")
            async with asyncio.timeout(15):
                how = await instance.ended()
            assert how == "exit code 12: its operators held on to the memory that it may have"

    asyncio.run(scenario())


@pytest.mark.slow  # a hang is told from a slow call by waiting
@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("hang", ["replaced: trouble ran for"]),
        # gRPC may notice first, and aborts.
        ("close", ["nobody listens at its address", "killed by SIGABRT"]),
    ],
)
def test_a_worker_that_is_of_no_more_use_is_to_be_replaced(
    tmp_path: Path, what: str, why: list[str]
) -> None:
    async def scenario() -> None:
        async with troubled(tmp_path) as (instance, client):
            with pytest.raises(CircinusError):
                await ask(client, what, timeout_s=1.0)
            async with asyncio.timeout(30):
                how = await instance.ended()
            assert any(each in how for each in why), how

    asyncio.run(scenario())
