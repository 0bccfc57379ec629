from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from math import inf, nan
from typing import Any, cast

import pytest

from circinus.deploy.runtime.dispatcher import Dispatcher
from circinus.deploy.runtime.places import InstanceType
from circinus.deploy.runtime.walk import RequestResult, RequestTerms
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.model.payload import Payload, encode
from circinus.scheduler.dispatch.baselines import Clockwork
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Decision, DispatchPolicy, DispatchState
from tests.deploy.serving import ONE_TIER, plan, tiny

QOS_S = 1.0
TERMS = RequestTerms(timeout_s=5.0)
REPLY = RunReply(outputs={"echo": encode(None)}, seconds={"echo": 0.1}, sizes={"echo": 1})


class FakeClient:
    """An instance that answers when told to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.running: list[asyncio.Future[RunReply]] = []
        self.due_in_s: list[float | None] = []

    async def run(
        self,
        operators: Sequence[str],
        inputs: Mapping[str, bytes],
        wants: Sequence[str],
        *,
        timeout_s: float,
        due_in_s: float | None = None,
    ) -> RunReply:
        self.due_in_s.append(due_in_s)
        future: asyncio.Future[RunReply] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        return await future

    async def settle(self, *, timeout_s: float) -> None:
        await asyncio.Event().wait()  # it never comes back

    def answer(self) -> None:
        self.running.pop().set_result(REPLY)

    def die(self) -> None:
        self.running.pop().set_exception(InstanceLost(self.address, "killed"))


class World:
    def __init__(
        self,
        policy: DispatchPolicy | None = None,
        limit: int = 10,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.clock = ManualClock()
        chosen = replace(plan("echo"), tier_service_s={"cloud": 0.4})
        self.dispatcher = Dispatcher(
            pipeline or tiny("echo"), chosen, ONE_TIER, policy or PlanAhead(), self.clock, limit
        )
        self.dispatcher.deadline_s = QOS_S
        self.queue = self.dispatcher.queues["cloud"]

    def add(self, address: str) -> FakeClient:
        client = FakeClient(address)
        self.queue.add(cast("WorkerClient", client), InstanceType(name="only"))
        return client

    def send(
        self, input: Payload = None, terms: RequestTerms = TERMS
    ) -> asyncio.Task[RequestResult]:
        return asyncio.create_task(self.dispatcher.request(input, terms))


async def quiet() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def played(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def unsizable(input: Payload) -> float:
    raise InvalidInput.of("audio.seconds", "must be > 0", input)


def sized(size: Callable[[Payload], float]) -> Pipeline:
    return replace(tiny("echo"), request_size=size)


@pytest.mark.parametrize("size", [0.0, -1.0, nan, inf])
def test_a_size_that_is_none_fails_the_request_before_it_waits(size: float) -> None:
    async def scene() -> None:
        world = World(pipeline=sized(lambda _: size))
        with pytest.raises(OperatorFailed, match="request_size failed: must give a finite size"):
            await world.send()
        assert world.queue.figures().waiting == 0
        assert world.dispatcher.report().failed == 1
        assert world.dispatcher.in_hand == 0

    played(scene)


def test_an_input_without_a_size_is_the_clients_fault_where_the_pipeline_says_so() -> None:
    async def scene() -> None:
        world = World(pipeline=sized(unsizable))
        with pytest.raises(InvalidInput, match=r"audio\.seconds must be > 0, got 3"):
            await world.send(3)

    played(scene)


def test_a_size_that_cannot_be_told_is_the_pipelines_fault() -> None:
    async def scene() -> None:
        world = World(pipeline=sized(lambda x: float(cast("str", x))))
        with pytest.raises(OperatorFailed, match="request_size failed: ValueError"):
            await world.send("much")

    played(scene)


class Seeing:
    """Plans ahead, and keeps the sizes that it was shown."""

    plans_ahead, rejects, sheds, level = False, False, True, None

    def __init__(self) -> None:
        self.seen: list[float] = []

    def decide(self, state: DispatchState) -> Decision:
        self.seen.extend(state.size.tolist())
        return PlanAhead().decide(state)


@pytest.mark.parametrize(
    ("pipeline", "expected"),
    [(sized(lambda x: float(len(cast("list[int]", x)))), 3.0), (tiny("echo"), 1.0)],
)
def test_a_policy_sees_the_size_of_the_input_and_one_where_none_is_declared(
    pipeline: Pipeline, expected: float
) -> None:
    async def scene() -> None:
        policy = Seeing()
        world = World(policy, pipeline=pipeline)
        client = world.add("a")
        task = world.send([1, 2, 3])
        await quiet()
        client.answer()
        await task
        assert policy.seen == [expected]

    played(scene)


def test_a_worker_hears_of_the_time_that_is_left_if_there_is_a_deadline() -> None:
    async def scene() -> None:
        world = World()
        client = world.add("a")
        first, second = world.send(), world.send()
        await quiet()
        world.clock.seconds = 0.25
        client.answer()
        await quiet()
        world.dispatcher.deadline_s = None
        client.answer()
        await asyncio.gather(first, second)
        last = world.send()
        await quiet()
        client.answer()
        await last
        assert client.due_in_s == [QOS_S, QOS_S - 0.25, None]

    played(scene)


def test_what_is_lost_with_an_instance_is_served_by_another() -> None:
    async def scene() -> None:
        world = World()
        first, second = world.add("a"), world.add("b")
        task = world.send()
        await quiet()
        first.die()
        await quiet()
        second.answer()
        assert (await task).retries == 1
        await world.queue.close()

    played(scene)


def test_what_is_lost_after_its_deadline_or_twice_is_answered_with_an_error() -> None:
    async def scene() -> None:
        world = World()
        first, second = world.add("a"), world.add("b")
        late, unlucky = world.send(), None
        await quiet()
        world.clock.seconds = QOS_S
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
        await world.queue.close()

    played(scene)


def test_a_full_queue_gives_up_who_is_late_before_it_refuses_who_is_not() -> None:
    async def scene() -> None:
        world = World(MinCostMatching(), limit=1)
        client = world.add("a")
        served, hopeless = world.send(), None
        await quiet()
        hopeless = world.send()
        await quiet()
        refused = world.send()
        with pytest.raises(Unavailable, match="already wait") as refusal:
            await refused
        assert refusal.value.retry_after_s > 0
        world.clock.seconds = 1.5 * QOS_S
        fresh = world.send()
        with pytest.raises(Unavailable, match="before its deadline"):
            await hopeless
        client.answer()
        await quiet()
        client.answer()
        await asyncio.gather(served, fresh)
        figures = world.queue.figures()
        assert (figures.answered, figures.turned_away, figures.waiting) == (2, 2, 0)
        assert figures.late == 1  # the first: it ended at 1.5 s
        assert figures.late_max_s == pytest.approx(0.5)

    played(scene)


def test_late_requests_beyond_one_for_each_instance_are_given_up() -> None:
    async def scene() -> None:
        world = World(MinCostMatching())
        client = world.add("a")
        tasks = [world.send() for _ in range(4)]
        await quiet()
        world.clock.seconds = 1.1 * QOS_S  # three wait, all late
        fresh = world.send()
        for hopeless in tasks[1:3]:
            with pytest.raises(Unavailable, match="before its deadline"):
                await hopeless
        for _ in range(3):
            client.answer()
            await quiet()
        await asyncio.gather(tasks[0], tasks[3], fresh)

    played(scene)


def test_what_cannot_be_in_time_is_turned_away_before_it_waits() -> None:
    async def scene() -> None:
        world = World()  # its policy sheds
        client = world.add("a")
        tasks = [world.send() for _ in range(3)]
        with pytest.raises(TooManyRequests, match="cannot serve it before its deadline") as told:
            await tasks[2]  # 3 x 0.4 s are more than 1 s
        assert told.value.retry_after_s > 0
        with pytest.raises(TooManyRequests):
            world.dispatcher.shed_infeasible(world.clock.now())
        world.dispatcher.shed_infeasible(world.clock.now(), unless=lambda: True)  # not counted
        patient = world.send(terms=replace(TERMS, serve_late=True))
        for task in (*tasks[:2], patient):
            await quiet()
            client.answer()
            await task
        minute = world.dispatcher.report().spans[0]
        assert (minute.turned_away, minute.in_time) == (2, 3)

    played(scene)


def test_who_waits_in_vain_makes_way_for_who_does_not() -> None:
    async def scene() -> None:
        world = World()
        client = world.add("a")
        first, second = world.send(), world.send()
        patient = world.send(terms=replace(TERMS, serve_late=True))
        await quiet()
        world.clock.seconds = 0.7 * QOS_S  # it took longer than the 0.4 s that were foreseen
        client.answer()
        await first
        with pytest.raises(TooManyRequests, match="cannot serve it before its deadline"):
            await second
        await quiet()
        client.answer()
        await patient

    played(scene)


def test_what_is_foreseen_turns_nobody_away_from_an_idle_instance() -> None:
    async def scene() -> None:
        world = World()
        client = world.add("a")
        for _ in range(3):
            slow = world.send()  # each takes so long that nobody should be in time
            await quiet()
            world.clock.seconds += 4.0 * QOS_S
            client.answer()
            await slow
        world.dispatcher.shed_infeasible(world.clock.now())  # does not
        with pytest.raises(TooManyRequests):  # it was late when it came
            world.dispatcher.shed_infeasible(world.clock.now() - QOS_S)

    played(scene)


def test_a_policy_may_turn_a_request_away() -> None:
    async def scene() -> None:
        world = World(Clockwork(rejects=True))
        client = world.add("a")
        tasks = [world.send() for _ in range(3)]
        with pytest.raises(Unavailable, match="cannot serve it before its deadline"):
            await tasks[2]  # 3 x 0.4 s are more than 1 s
        for task in tasks[:2]:
            await quiet()
            client.answer()
            await task

    played(scene)
