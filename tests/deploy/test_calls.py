"""Each attempt has leave, which is settled once, and is in the bill, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from math import inf
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circinus.deploy.runtime.calls import AttemptedCall, Callee, CallResult, Calls
from circinus.deploy.runtime.places import InstanceType
from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.workers.calling import to_wire
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import CallFailed, InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import ManualClock
from circinus.pipelines.errors import CircinusError, InvalidInput
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import CallPrice, Endpoint, RateLimits, Usage
from circinus.pipelines.registry import load_pipeline
from circinus.scheduler.dispatch.matching import MinCostMatching
from tests.deploy.calling_pipelines import MODULE

MOST = {"reader": Usage(calls=1, input_tokens=100, output_tokens=inf, usd=0.5)}
USED = {"reader": Usage(calls=1, input_tokens=10, output_tokens=2, usd=0.01)}
REPLY = RunReply(seconds={"read": 2.0}, used=to_wire({"read": USED}))
READING = load_pipeline(f"{MODULE}:reading", allow_import=True)


class Gate:
    """Returns leave, and keeps what becomes of it."""

    def __init__(self) -> None:
        self.given = 0
        self.settled: list[Mapping[str, Usage]] = []
        self.open = asyncio.Event()
        self.open.set()

    async def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        await self.open.wait()
        self.given += 1
        return Permit(operator=operator, most=most, ticket=str(self.given))

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        self.settled.append(used)


class FakeCaller:
    """A worker that gives what it is told to, an attempt after the other."""

    def __init__(self, clock: ManualClock, *gives: CircinusError | RunReply) -> None:
        self.address = "a"
        self.clock = clock
        self.gives = list(gives)
        self.attempts: list[int] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def run(self, number: int) -> RunReply:
        self.attempts.append(number)
        await self.goes_on.wait()
        self.clock.sleep(2.0)
        given = self.gives.pop(0)
        if isinstance(given, CircinusError):
            raise given
        return given

    async def settle(self, *, timeout_s: float) -> None:
        """It is there again at once."""


class World:
    def __init__(self, *gives: CircinusError | RunReply) -> None:
        self.clock, self.gate = ManualClock(), Gate()
        self.calls = Calls(self.gate, self.clock)
        self.queue = TierQueue("hosted", MinCostMatching(), self.clock, limit=9, prior_s=0.0)
        self.caller = FakeCaller(self.clock, *gives)
        self.queue.add(cast("WorkerClient", self.caller), InstanceType(places=4))

    def make(self, *, due_in_s: float = inf, ends_in_s: float = 100.0) -> asyncio.Task[CallResult]:
        def send(client: WorkerClient, number: int, timeout_s: float) -> Awaitable[RunReply]:
            return self.caller.run(number)

        call = AttemptedCall(
            callee=Callee(operator="read", most=MOST, timeout_s=5.0),
            send=send,
            size=1.0,
            due_in_s=lambda: due_in_s,
            ends_in_s=lambda: ends_in_s,
            doing=lambda what: None,
        )
        return asyncio.create_task(self.calls.make(self.queue, call))


def failed(again_in_s: float | None) -> CallFailed:
    return CallFailed("read", "HTTPStatusError: 503", (), {"read": USED}, again_in_s)


async def quiet() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("limits", "wrong"),
    [
        (RateLimits(tokens_per_minute=11), "reader.limits.tokens_per_minute must be at least"),
        (RateLimits(tokens_per_minute=12), None),  # 10 read and 2 written
    ],
)
def test_an_attempt_that_may_use_more_than_a_whole_limit_is_refused(
    limits: RateLimits, wrong: str | None
) -> None:
    endpoint = Endpoint(
        name="reader",
        price=CallPrice(call_usd=1.0),
        limits=limits,
        most_input_tokens=10,
        most_output_tokens=2,
        timeout_s=7.0,
    )
    configuration = ConfigurationSpace(READING.graph).parse({"read": {"model": "reader"}})
    operator, endpoints = READING.by_name["read"], {"reader": endpoint}
    if wrong is not None:
        with pytest.raises(InvalidInput, match=wrong):
            Callee.of(operator, configuration, endpoints)
        return
    found = Callee.of(operator, configuration, endpoints)
    assert (found.most["reader"].tokens, found.timeout_s) == (12, 7.0)
    hurried = replace(operator, retries=replace(operator.retries, timeout_s=1.5))
    assert Callee.of(hurried, configuration, endpoints).timeout_s == 1.5


def test_an_endpoint_that_is_not_there_is_refused() -> None:
    configuration = ConfigurationSpace(READING.graph).parse({"read": {"model": "reader"}})
    with pytest.raises(InvalidInput, match=r"operator read\.calls must be among"):
        Callee.of(READING.by_name["read"], configuration, {})


def test_the_last_failure_is_that_of_the_request_and_all_attempts_are_paid() -> None:
    async def scene() -> None:
        world = World(failed(0.0), failed(None))
        with pytest.raises(CallFailed, match="HTTPStatusError: 503"):
            await world.make()
        assert world.caller.attempts == [1, 2]
        assert world.gate.settled == [USED, USED]
        assert world.calls.bill("p", 0, 1).total.usd == pytest.approx(0.02)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("due_in_s", "ends_in_s", "error"),
    [(3.0, 100.0, TooManyRequests), (inf, 4.0, CallFailed), (3.0, 4.0, CallFailed)],
)
def test_an_attempt_that_would_be_too_late_is_not_made(
    due_in_s: float, ends_in_s: float, error: type[CircinusError]
) -> None:
    async def scene() -> None:
        world = World(failed(5.0), REPLY)
        with pytest.raises(error):
            await world.make(due_in_s=due_in_s, ends_in_s=ends_in_s)
        assert (world.caller.attempts, world.gate.given) == ([1], 1)

    asyncio.run(scene())


def test_attempts_take_time_and_waiting_for_leave_is_waiting() -> None:
    async def scene() -> None:
        world = World(failed(0.0), REPLY)
        world.gate.open.clear()
        made = world.make()
        await quiet()
        world.clock.sleep(7.0)  # until there is leave
        world.gate.open.set()
        found = await made
        # Two attempts of 2 s each; the second one says so itself.
        assert (found.waited_s, found.seconds) == (7.0, 4.0)
        assert found.used == {"read": {"reader": USED["reader"].plus(USED["reader"])}}

    asyncio.run(scene())


def test_what_a_lost_attempt_used_is_not_known_and_billed_as_the_most_that_is_bounded() -> None:
    async def scene() -> None:
        world = World(InstanceLost("a", "killed"))
        with pytest.raises(InstanceLost):
            await world.make()
        most = {"reader": Usage(calls=1, input_tokens=100, usd=0.5)}
        assert world.gate.settled == [most]
        bill = world.calls.bill("p", 0, 1)
        assert (bill.unsure, bill.used) == (1, {"read": most})
        await world.queue.close()

    asyncio.run(scene())


def test_what_has_begun_goes_on_when_the_client_leaves_and_is_paid() -> None:
    async def scene() -> None:
        world = World(REPLY)
        world.caller.goes_on.clear()
        made = world.make()
        await quiet()
        made.cancel()
        await asyncio.gather(made, return_exceptions=True)
        assert world.gate.settled == []
        world.caller.goes_on.set()
        await world.calls.idle()
        assert world.gate.settled == [USED]
        assert world.calls.bill("p", 0, 0).total == USED["reader"]
        await world.queue.close()

    asyncio.run(scene())


GIVES = st.sampled_from([REPLY, failed(0.0), failed(None), InstanceLost("a", "killed")])


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(GIVES, st.booleans()), min_size=1, max_size=6))
def test_every_leave_is_settled_once(
    told: list[tuple[CircinusError | RunReply, bool]],
) -> None:
    """Requests of which some leave, whatever their attempts come to; later attempts succeed."""

    async def scene() -> None:
        world = World(*(given for given, _ in told), *[REPLY] * len(told))
        world.caller.goes_on.clear()
        made = [world.make() for _ in told]
        await quiet()
        for task, (_, leaves) in zip(made, told, strict=True):
            if leaves:
                task.cancel()
        world.caller.goes_on.set()
        await asyncio.gather(*made, return_exceptions=True)
        await world.calls.idle()
        await quiet()
        assert world.gate.given == len(world.gate.settled) == len(world.caller.attempts)
        billed = world.calls.bill("p", 0, 0)
        assert billed.total.calls == world.gate.given
        await world.queue.close()

    asyncio.run(scene())
