"""Workers that somebody puts beside an instance serve with it, whatever becomes of either."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from circinus.deploy.local.launcher import LocalInstance
from circinus.deploy.runtime.instances import InstanceSpec, RunningInstance
from circinus.deploy.runtime.orchestrator import Orchestrator
from circinus.pipelines.clock import SystemClock
from circinus.pipelines.model.payload import Payload
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.serving import ONE_TIER, desired, is_alive, launcher, pipeline_of, plan, within

PATIENCE_S = 20.0
KNOBS = {"add": {"amount": 1}}


@dataclass(kw_only=True, eq=False)
class ScaledInstance(RunningInstance):
    """A worker with those that a test puts beside it."""

    inner: LocalInstance
    scaled: Scaled

    async def beside(self, known: frozenset[str]) -> frozenset[str]:
        while (found := frozenset(self.scaled.there) - {self.address}) == known:
            await asyncio.sleep(0.01)
        return found

    async def ended(self) -> str:
        return await self.inner.ended()

    async def stop(self) -> None:
        await self.inner.stop()


@dataclass
class Scaled:
    """A launcher of real workers, and of more beside its instance."""

    logs: Path
    there: dict[str, RunningInstance] = field(default_factory=dict)  # by address
    spec: InstanceSpec | None = None

    def __post_init__(self) -> None:
        self.inner = launcher(self.logs)

    async def start(self, spec: InstanceSpec) -> RunningInstance:
        self.spec = spec
        inner = await self.inner.start(spec)
        return ScaledInstance(
            address=inner.address,
            pid=inner.pid,
            enforcement=inner.enforcement,
            inner=inner,
            scaled=self,
        )

    async def more(self) -> RunningInstance:
        assert self.spec is not None
        made = await self.inner.start(self.spec)
        self.there[made.address] = made
        return made

    async def fewer(self, made: RunningInstance) -> None:
        del self.there[made.address]


@asynccontextmanager
async def scaled(
    folder: Path, name: str, sample: Payload = None
) -> AsyncIterator[tuple[Orchestrator, Scaled]]:
    made = Scaled(folder)
    orchestrator = Orchestrator(ONE_TIER, made, pipeline_of, MinCostMatching(), SystemClock())
    others: list[RunningInstance] = []
    chosen = plan(name, configuration=KNOBS if name == "arithmetic" else None)
    try:
        await orchestrator.apply({"q": desired(name, chosen, sample)})
        yield orchestrator, made
    finally:
        others += made.there.values()
        await orchestrator.close()
        for each in others:
            await each.stop()


async def beside(orchestrator: Orchestrator, count: int) -> tuple[str, ...]:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            (instance,) = orchestrator.status("q").instances
            if len(instance.beside) == count:
                return instance.beside
            await asyncio.sleep(0.01)


async def answering(orchestrator: Orchestrator, inputs: Iterator[Payload]) -> set[int]:
    """Send requests at once; give the processes that answered."""
    sent = (orchestrator.request("q", each, within(PATIENCE_S)) for each in inputs)
    found = await asyncio.gather(*sent)
    outputs = [each.output for each in found]
    return {
        pid for each in outputs if isinstance(each, dict) and isinstance(pid := each["pid"], int)
    }


def test_a_worker_that_is_gone_before_it_answers_serves_nobody(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scaled(tmp_path, "arithmetic") as (orchestrator, made):
            ghost = await made.more()
            await ghost.stop()
            await asyncio.sleep(0.2)
            assert await beside(orchestrator, 0) == ()
            await made.fewer(ghost)
            assert len(await answering(orchestrator, iter(range(9)))) == 1

    asyncio.run(scenario())


def test_all_that_are_beside_an_instance_get_requests_and_none_once_they_leave(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with scaled(tmp_path, "arithmetic", sample=1) as (orchestrator, made):
            assert len(await answering(orchestrator, iter(range(9)))) == 1
            more = [await made.more(), await made.more()]
            assert set(await beside(orchestrator, 2)) == {each.address for each in more}
            assert orchestrator.reports()["q"].queues["cloud"].workers == 3
            pids = await answering(orchestrator, iter(range(30)))
            assert pids >= {each.pid for each in more}
            assert len(pids) == 3
            await made.fewer(more[0])
            await beside(orchestrator, 1)
            assert more[0].pid not in await answering(orchestrator, iter(range(30)))
            await more[0].stop()

    asyncio.run(scenario())


def test_what_one_that_leaves_has_in_hand_is_answered(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scaled(tmp_path, "nap") as (orchestrator, made):
            more = await made.more()
            await beside(orchestrator, 1)
            asked = [
                asyncio.create_task(orchestrator.request("q", 0.4, within(PATIENCE_S)))
                for _ in range(2)
            ]
            await asyncio.sleep(0.1)
            await made.fewer(more)
            await beside(orchestrator, 0)
            assert [(await each).retries for each in asked] == [0, 0]
            assert max([(await each).latency_s for each in asked]) < 0.75  # they ran at once
            await more.stop()

    asyncio.run(scenario())


def test_others_serve_on_while_the_instance_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with scaled(tmp_path, "arithmetic") as (orchestrator, made):
            more = await made.more()
            await beside(orchestrator, 1)
            (status,) = orchestrator.status("q").instances
            assert status.running is not None
            assert status.running.pid is not None
            launched = orchestrator._serving["q"].supervisors[0].status.running
            assert isinstance(launched, ScaledInstance)
            launched.inner.process.kill()
            async with asyncio.timeout(PATIENCE_S):
                while orchestrator.status("q").instances[0].up:
                    await asyncio.sleep(0.01)
            assert await answering(orchestrator, iter([1])) == {more.pid}
            async with asyncio.timeout(PATIENCE_S):
                while not orchestrator.status("q").instances[0].up:
                    await asyncio.sleep(0.01)
            await beside(orchestrator, 1)
            assert len(await answering(orchestrator, iter(range(20)))) == 2

    asyncio.run(scenario())


def test_a_deployment_that_ends_lets_go_of_them_and_ends_none(tmp_path: Path) -> None:
    async def scenario() -> None:
        made = Scaled(tmp_path)
        orchestrator = Orchestrator(ONE_TIER, made, pipeline_of, MinCostMatching(), SystemClock())
        await orchestrator.apply({"q": desired("echo")})
        more = await made.more()
        await beside(orchestrator, 1)
        await orchestrator.close()
        assert more.pid is not None
        assert is_alive(more.pid)  # who made it ends it
        await more.stop()

    asyncio.run(scenario())
