from __future__ import annotations

import asyncio
from math import inf
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.runtime.dual_prices import DualPrice
from circinus.deploy.runtime.places import InstanceType
from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import OperatorFailed, Unavailable
from circinus.scheduler.dispatch.baselines import Clockwork, FcfsDispatch, SizeThreshold
from circinus.scheduler.dispatch.matching import MinCostMatching
from circinus.scheduler.dispatch.plan_ahead import PlanAhead
from circinus.scheduler.dispatch.policy import Decision, DispatchPolicy, DispatchState

REPLY = RunReply()


class FakeClient:
    """An instance that answers when told to."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.running: list[asyncio.Future[RunReply]] = []
        self.settled = asyncio.Event()

    async def work(self) -> RunReply:
        future: asyncio.Future[RunReply] = asyncio.get_running_loop().create_future()
        self.running.append(future)
        return await future

    async def settle(self, *, timeout_s: float) -> None:
        await self.settled.wait()


def fakes(queue: TierQueue, *addresses: str) -> list[FakeClient]:
    clients = [FakeClient(address) for address in addresses]
    for client in clients:
        queue.add(cast("WorkerClient", client))
    return clients


def queue_of(limit: int = 10, prior_s: float = 1.0) -> TierQueue:
    return TierQueue("cloud", MinCostMatching(), ManualClock(), limit=limit, prior_s=prior_s)


def start(queue: TierQueue, time_left_s: float = 60.0) -> asyncio.Task[object]:
    async def serve() -> object:
        return await queue.serve(
            "k", lambda client: cast("FakeClient", client).work(), time_left_s=time_left_s
        )

    return asyncio.create_task(serve())


def end(call: asyncio.Future[RunReply], how: str, concurrency: int) -> None:
    if how == "answer":
        call.set_result(RunReply(concurrency=concurrency))
    elif how == "fail":
        call.set_exception(OperatorFailed("k", "no"))
    else:
        call.set_exception(InstanceLost("a", "reset"))


async def quiet() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.parametrize("prior_s", [0.0, 1.0])
def test_an_instance_has_one_request_at_a_time_and_none_idles_beside_a_waiting_one(
    prior_s: float,
) -> None:
    async def scenario() -> None:
        queue = queue_of(prior_s=prior_s)
        a, b = fakes(queue, "a", "b")
        tasks = [start(queue) for _ in range(3)]
        await quiet()
        assert (len(a.running), len(b.running)) == (1, 1)
        b.running[0].set_result(REPLY)
        await quiet()
        assert (len(a.running), len(b.running)) == (1, 2)
        a.running[0].set_result(REPLY)
        b.running[1].set_result(REPLY)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())


def test_requests_beyond_the_limit_are_turned_away_with_a_time_to_come_back() -> None:
    async def scenario() -> None:
        queue = queue_of(limit=2)
        (client,) = fakes(queue, "a")
        tasks = [start(queue) for _ in range(4)]
        await quiet()
        with pytest.raises(Unavailable, match="2 requests already wait for tier cloud") as refusal:
            await tasks[3]
        assert refusal.value.retry_after_s == 2.0  # two of one second each on one instance
        for _ in range(3):
            client.running[-1].set_result(REPLY)
            await quiet()
        await asyncio.gather(*tasks[:3])

    asyncio.run(scenario())


def test_a_lost_instance_gets_no_request_until_it_answers_again() -> None:
    async def scenario() -> None:
        queue = queue_of()
        (client,) = fakes(queue, "a")
        first = start(queue)
        await quiet()
        second = start(queue)
        client.running[0].set_exception(InstanceLost("a", "reset"))
        with pytest.raises(InstanceLost):
            await first
        await quiet()
        assert len(client.running) == 1
        client.settled.set()
        await quiet()
        client.running[1].set_result(REPLY)
        await second

    asyncio.run(scenario())


def test_a_cancelled_request_leaves_the_queue() -> None:
    async def scenario() -> None:
        queue = queue_of(limit=1)
        (client,) = fakes(queue, "a")
        running, waiting = start(queue), start(queue)
        await quiet()
        waiting.cancel()
        await quiet()
        third = start(queue)  # there is room again
        client.running[0].set_result(REPLY)
        await quiet()
        client.running[1].set_result(REPLY)
        await asyncio.gather(running, third)
        assert len(client.running) == 2

    asyncio.run(scenario())


def test_a_request_cancelled_in_the_moment_of_its_turn_gives_it_back() -> None:
    async def scenario() -> None:
        queue = queue_of()
        (client,) = fakes(queue, "a")
        running, waiting = start(queue), start(queue)
        await quiet()
        client.running[0].set_result(REPLY)
        await running  # hands the turn to `waiting`, which did not wake yet or runs already
        waiting.cancel()
        await quiet()
        client.settled.set()
        await quiet()
        third = start(queue)
        await quiet()
        client.running[-1].set_result(REPLY)
        await third

    asyncio.run(scenario())


def test_a_queue_goes_on_from_what_an_earlier_one_learnt_and_leaves_out_nonsense() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue = TierQueue("cloud", MinCostMatching(), clock, limit=10, prior_s=1.0)
        (client,) = fakes(queue, "a")
        for _ in range(4):
            task = start(queue)
            await quiet()
            clock.seconds += 3.0
            client.running[-1].set_result(REPLY)
            await task
        assert queue.figures().observed_s == 12.0
        learnt = queue.latencies.dump()
        later = queue_of(limit=1)
        later.latencies.recall({**learnt, "odd": {"line": 3}})
        assert later.latencies.dump() == learnt
        fakes(later, "a")
        waiting = [start(later) for _ in range(2)]
        await quiet()
        with pytest.raises(TooManyRequests) as refusal:
            await start(later)
        assert refusal.value.retry_after_s == pytest.approx(3.0, rel=0.1)
        for task in waiting:
            task.cancel()

    asyncio.run(scenario())


def test_drift_is_counted() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue = TierQueue("cloud", MinCostMatching(), clock, limit=10, prior_s=1.0)
        (client,) = fakes(queue, "a")
        for i in range(60):
            task = start(queue)
            await quiet()
            clock.seconds += 1.0 if i < 30 else 2.0
            client.running[-1].set_result(REPLY)
            await task
        assert queue.figures().drifts == 1

    asyncio.run(scenario())


BATCHING = RunReply(concurrency=2)


def test_an_instance_gets_as_many_requests_at_once_as_it_declares() -> None:
    async def scenario() -> None:
        queue = queue_of()
        (client,) = fakes(queue, "a")
        tasks = [start(queue) for _ in range(5)]
        await quiet()
        assert len(client.running) == 1  # nothing is known of it yet
        client.running[0].set_result(BATCHING)
        await quiet()
        assert len(client.running) == 3
        assert queue.figures().busy == ("a",)
        client.running[1].set_exception(InstanceLost("a", "reset"))
        client.running[2].set_result(BATCHING)
        await quiet()
        assert len(client.running) == 4  # a place is out
        client.settled.set()
        await quiet()
        assert len(client.running) == 5
        for call in client.running[3:]:
            call.set_result(BATCHING)
        await asyncio.gather(*tasks, return_exceptions=True)
        queue.remove("a")
        assert queue.figures().idle == 0

    asyncio.run(scenario())


EVENTS = st.sampled_from(["come", "come", "answer", "answer", "fail", "lose", "leave", "wait"])


@pytest.mark.parametrize("policy", [PlanAhead(), MinCostMatching(), Clockwork(rejects=True)])
@given(
    events=st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=40),
    concurrency=st.integers(1, 3),
)
@settings(max_examples=50, deadline=None)
def test_whatever_happens_a_request_ends_once_and_no_instance_has_more_than_it_takes(
    policy: DispatchPolicy, events: list[tuple[str, int]], concurrency: int
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue = TierQueue("cloud", policy, clock, limit=3, prior_s=1.0)
        clients = fakes(queue, "a", "b")
        tasks: list[asyncio.Task[object]] = []
        for event, which in events:
            at_work = [call for client in clients for call in client.running if not call.done()]
            if event == "come":
                tasks.append(start(queue, time_left_s=2.0))
            elif event == "wait":
                clock.seconds += 0.5 * which
            elif event == "leave" and tasks:
                tasks[which % len(tasks)].cancel()
            elif at_work:
                end(at_work[which % len(at_work)], event, concurrency)
            await quiet()
            busy = [sum(not call.done() for call in client.running) for client in clients]
            assert max(busy) <= concurrency
            assert queue.figures().waiting <= 3
        for client in clients:
            client.settled.set()
        for _ in range(2 * len(tasks) + 1):
            await quiet()
            for call in [call for client in clients for call in client.running if not call.done()]:
                call.set_result(REPLY)
        assert all(task.done() for task in tasks)
        assert queue.figures().waiting == 0
        answers = sum(not t.cancelled() and t.exception() is None for t in tasks)
        assert queue.figures().answered == answers
        assert sum(len(client.running) for client in clients) <= len(tasks)
        await queue.close()

    asyncio.run(scenario())


def test_an_instance_has_as_many_places_as_its_type_says_from_the_start() -> None:
    async def scene() -> None:
        queue = queue_of()
        client = FakeClient("a")
        queue.add(cast("WorkerClient", client), InstanceType(places=3))
        calls = [start(queue) for _ in range(4)]
        await quiet()
        assert len(client.running) == 3
        assert queue.figures().waiting == 1
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await queue.close()

    asyncio.run(scene())


def test_all_places_of_a_lost_instance_are_out_until_it_answers_again() -> None:
    async def scene() -> None:
        queue = queue_of()
        client = FakeClient("a")
        queue.add(cast("WorkerClient", client), InstanceType(places=2))
        lost = start(queue)
        await quiet()
        client.running[0].set_exception(InstanceLost("a", "killed"))
        with pytest.raises(InstanceLost):
            await lost
        waits = start(queue)
        await quiet()
        assert queue.figures().waiting == 1
        client.settled.set()
        await quiet()
        client.running[1].set_result(REPLY)
        await waits
        assert queue.figures().idle == 2
        await queue.close()

    asyncio.run(scene())


def before(queue: TierQueue, ready: asyncio.Event, time_left_s: float) -> asyncio.Task[object]:
    """A request that waits for an event once it has an instance."""

    async def wait() -> None:
        await ready.wait()

    async def serve() -> object:
        work = lambda client: cast("FakeClient", client).work()  # noqa: E731 - as in `start`
        return await queue.serve("k", work, time_left_s=time_left_s, before=wait)

    return asyncio.create_task(serve())


def test_what_does_not_get_ready_in_time_is_turned_away_and_leaves_its_place() -> None:
    async def scene() -> None:
        queue = queue_of(prior_s=0.0)
        (client,) = fakes(queue, "a")
        asked = before(queue, asyncio.Event(), time_left_s=0.01)
        with pytest.raises(TooManyRequests, match="cannot serve it before its deadline"):
            await asked
        assert client.running == []
        assert (queue.figures().turned_away, queue.figures().idle) == (1, 1)
        await queue.close()

    asyncio.run(scene())


def test_the_wait_before_the_work_is_waiting_and_not_what_the_work_takes() -> None:
    async def scene() -> None:
        clock, ready = ManualClock(), asyncio.Event()
        queue = TierQueue("hosted", MinCostMatching(), clock, limit=10, prior_s=1.0)
        (client,) = fakes(queue, "a")
        asked = before(queue, ready, time_left_s=inf)
        await quiet()
        clock.sleep(7.0)
        ready.set()
        await quiet()
        clock.sleep(2.0)
        client.running[0].set_result(REPLY)
        assert await asked == (REPLY, 7.0)
        figures = queue.figures()
        assert (figures.waited_s, figures.observed_s) == (7.0, 2.0)
        await queue.close()

    asyncio.run(scene())


def test_who_gives_up_before_the_work_leaves_the_place_at_once() -> None:
    async def scene() -> None:
        queue = queue_of()
        (client,) = fakes(queue, "a")
        asked = before(queue, asyncio.Event(), time_left_s=inf)
        await quiet()
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        assert (queue.figures().idle, client.running) == (1, [])
        await queue.close()

    asyncio.run(scene())


def test_closing_turns_away_who_waits() -> None:
    async def scenario() -> None:
        queue = queue_of()
        waiting = start(queue)  # no instance at all
        await quiet()
        await queue.close()
        with pytest.raises(Unavailable, match="the deployment was stopped"):
            await waiting

    asyncio.run(scenario())


def test_a_queue_learns_which_type_is_the_base_and_puts_it_first() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        queue = TierQueue("cloud", FcfsDispatch(), clock, limit=10, prior_s=0.1)
        slow, fast = FakeClient("slow"), FakeClient("fast")
        for client in (slow, fast):
            queue.add(cast("WorkerClient", client), InstanceType(name=client.address))
        for _ in range(15):
            tasks = [start(queue, time_left_s=1.0) for _ in range(2)]
            await quiet()
            for client, seconds in ((fast, 0.1), (slow, 0.3)):
                clock.seconds += seconds
                client.running[-1].set_result(REPLY)
                await quiet()
            await asyncio.gather(*tasks)
        lone = start(queue)  # first come, first served takes the first of the list
        await quiet()
        assert not fast.running[-1].done()
        assert slow.running[-1].done()
        fast.running[-1].set_result(REPLY)
        await lone

    asyncio.run(scenario())


def test_the_largest_size_until_now_is_what_a_threshold_is_a_fraction_of() -> None:
    async def scenario() -> None:
        policy = SizeThreshold(fraction=0.5)
        queue = TierQueue("cloud", policy, ManualClock(), limit=10, prior_s=1.0)
        base, other = FakeClient("a"), FakeClient("b")
        for kind, client in enumerate((base, other)):
            type = InstanceType(price=DualPrice(kind=kind))
            queue.add(cast("WorkerClient", client), type)
        served = []
        for size in (4.0, 10.0, 4.0, 6.0):  # one after the other: 4 > 2, 10 > 5, 4 <= 5, 6 > 5
            before = len(base.running), len(other.running)
            task = asyncio.create_task(
                queue.serve(
                    "k", lambda at: cast("FakeClient", at).work(), time_left_s=60.0, size=size
                )
            )
            await quiet()
            client = base if len(base.running) > before[0] else other
            served.append(client.address)
            client.running[-1].set_result(REPLY)
            await task
        assert served == ["a", "a", "b", "a"]

    asyncio.run(scenario())


class CountingPolicy:
    """Adds the place of each instance to its dual, starts nothing, and remembers the states."""

    plans_ahead = True
    rejects = sheds = False
    level = None

    def __init__(self) -> None:
        self.states: list[DispatchState] = []

    def decide(self, state: DispatchState) -> Decision:
        self.states.append(state)
        assert state.dual is not None
        return Decision(dual=[dual + j + 1 for j, dual in enumerate(state.dual.tolist())])


def test_a_decision_begins_with_the_dual_of_the_one_before_it() -> None:
    async def scenario() -> None:
        policy = CountingPolicy()
        queue = TierQueue("cloud", policy, ManualClock(), limit=10, prior_s=1.0)
        fakes(queue, "a", "b")
        tasks = [start(queue) for _ in range(3)]
        await quiet()
        queue.remove("a")
        tasks.append(start(queue))
        await quiet()
        duals = [state.dual.tolist() for state in policy.states if state.dual is not None]
        assert duals == [[0.0, 0.0], [1.0, 2.0], [2.0, 4.0], [6.0]]
        await queue.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())
