from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

import pytest

from circinus.deploy.runtime.pool_dispatcher import PoolAnswer, PoolDispatcher
from circinus.deploy.runtime.tier_queue import InstanceType
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, Unavailable
from circinus.scheduler.dispatch.baselines import Clockwork
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import DispatchPolicy


class FakeClient:
    """An instance that answers when told to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.running: list[asyncio.Future[RunReply]] = []

    async def run(
        self,
        operators: Sequence[str],
        inputs: Mapping[str, bytes],
        wants: Sequence[str],
        *,
        timeout_s: float,
    ) -> RunReply:
        future: asyncio.Future[RunReply] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        return await future

    async def settle(self, *, timeout_s: float) -> None:
        await asyncio.Event().wait()  # it never comes back

    def answer(self) -> None:
        self.running.pop().set_result(RunReply())

    def die(self) -> None:
        self.running.pop().set_exception(InstanceLost(self.address, "killed"))


class World:
    def __init__(self, policy: DispatchPolicy | None = None, limit: int = 10) -> None:
        self.clock = ManualClock()
        self.dispatcher = PoolDispatcher(
            policy or PlanAhead(),
            self.clock,
            qos_s=1.0,
            timeout_s=5.0,
            queue_limit=limit,
            prior_s=0.4,
        )
        self.clients: list[FakeClient] = []

    def add(self, address: str) -> FakeClient:
        client = FakeClient(address)
        self.clients.append(client)
        self.dispatcher.queue.add(cast("WorkerClient", client), InstanceType(name="only"))
        return client

    def send(self) -> asyncio.Task[PoolAnswer]:
        return asyncio.create_task(self.dispatcher.request("serve", {}))


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"qos_s": 0.0}, "qos_s must be"),
        ({"timeout_s": 0.5}, r"timeout_s must be >= 1\.0"),
        ({"queue_limit": 0}, "queue_limit must be >= 1"),
        ({"prior_s": 0.0}, "prior_s must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict[str, float], message: str) -> None:
    values: dict[str, float] = {"qos_s": 1.0, "timeout_s": 5.0, **changed}
    with pytest.raises(InvalidInput, match=message):
        PoolDispatcher(PlanAhead(), ManualClock(), **values)  # type: ignore[arg-type] # a float for the limit as well


def test_what_is_lost_with_an_instance_is_served_by_another() -> None:
    async def scenario() -> None:
        world = World()
        first, second = world.add("a"), world.add("b")
        task = world.send()
        await quiet()
        first.die()
        await quiet()
        second.answer()
        assert (await task).retries == 1
        await world.dispatcher.queue.close()

    asyncio.run(scenario())


def test_what_is_lost_after_its_deadline_or_twice_is_answered_with_an_error() -> None:
    async def scenario() -> None:
        world = World()
        first, second = world.add("a"), world.add("b")
        late, unlucky = world.send(), None
        await quiet()
        world.clock.seconds = 1.0
        first.die()
        with pytest.raises(InstanceLost, match="a was lost"):
            await late
        third = world.add("c")
        unlucky = world.send()
        await quiet()
        next(c for c in (second, third) if c.running).die()
        await quiet()
        next(c for c in (second, third) if c.running).die()
        with pytest.raises(InstanceLost):
            await unlucky
        await world.dispatcher.queue.close()

    asyncio.run(scenario())


def test_a_full_queue_gives_up_who_is_late_before_it_refuses_who_is_not() -> None:
    async def scenario() -> None:
        world = World(limit=1)
        client = world.add("a")
        served, hopeless = world.send(), None
        await quiet()
        hopeless = world.send()
        await quiet()
        refused = world.send()
        with pytest.raises(Unavailable, match="already wait") as refusal:
            await refused
        assert refusal.value.retry_after_s > 0
        world.clock.seconds = 1.5
        fresh = world.send()
        with pytest.raises(Unavailable, match="before its deadline"):
            await hopeless
        client.answer()
        await quiet()
        client.answer()
        await asyncio.gather(served, fresh)
        figures = world.dispatcher.queue.figures()
        assert (figures.answered, figures.turned_away, figures.waiting) == (2, 2, 0)
        assert figures.late == 1  # the first: it ended at 1.5 s
        assert figures.late_max_s == pytest.approx(0.5)

    asyncio.run(scenario())


def test_late_requests_beyond_one_for_each_instance_are_given_up() -> None:
    async def scenario() -> None:
        world = World()
        client = world.add("a")
        tasks = [world.send() for _ in range(4)]
        await quiet()
        world.clock.seconds = 1.1  # three wait, all late
        fresh = world.send()
        for hopeless in tasks[1:3]:
            with pytest.raises(Unavailable, match="before its deadline"):
                await hopeless
        for _ in range(3):
            client.answer()
            await quiet()
        await asyncio.gather(tasks[0], tasks[3], fresh)

    asyncio.run(scenario())


def test_a_policy_may_turn_a_request_away() -> None:
    async def scenario() -> None:
        world = World(Clockwork(rejects=True))
        client = world.add("a")
        tasks = [world.send() for _ in range(3)]
        with pytest.raises(Unavailable, match="cannot serve it before its deadline"):
            await tasks[2]  # 3 x 0.4 s are more than 1 s
        for task in tasks[:2]:
            await quiet()
            client.answer()
            await task

    asyncio.run(scenario())
