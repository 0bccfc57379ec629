"""What the dispatcher adds over calling a worker directly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.execution import INPUT
from circinus.pipelines.model.payload import encode
from tests.deploy.serving import desired, serving, within


class Served:
    """A deployed operator that does nothing, and an event loop to call it in."""

    def __init__(self, logs: Path) -> None:
        self.runner = asyncio.Runner()
        self.stack = AsyncExitStack()
        self.orchestrator: Orchestrator = self.runner.run(self._start(logs))
        (instance,) = self.orchestrator.status("q").instances
        assert instance.running is not None
        self.client: WorkerClient = self.runner.run(self._connect(instance.running.address))

    async def _start(self, logs: Path) -> Orchestrator:
        context = serving(logs, {"q": desired("nap", sample=0.0)})
        return await self.stack.enter_async_context(context)

    async def _connect(self, address: str) -> WorkerClient:
        return WorkerClient(address)

    def close(self) -> None:
        self.runner.run(self.client.close())
        self.runner.run(self.stack.aclose())
        self.runner.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.close()


def test_calling_a_worker_directly(benchmark: BenchmarkFixture, served: Served) -> None:
    inputs = {INPUT: encode(0.0)}

    def call() -> None:
        served.runner.run(served.client.run(["nap"], inputs, ["nap"], timeout_s=5.0))

    benchmark(call)


def test_sending_a_request_through_the_dispatcher(
    benchmark: BenchmarkFixture, served: Served
) -> None:
    def request() -> None:
        served.runner.run(served.orchestrator.request("q", 0.0, within(5.0)))

    benchmark(request)
