"""Calls to endpoints of one deployed plan: leave before each attempt, a bill after it.

A worker makes one attempt; here the next one is made, when the worker reports that it is due and
there is a permit. The one rule: an attempt that has begun is paid, so no caller that leaves ends
it, and its usage is recorded whatever becomes of its request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from circinus.deploy.runtime.report import ServedBill, used_together
from circinus.deploy.runtime.tier_queue import TierQueue
from circinus.deploy.workers.calling import from_wire
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import CallFailed, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.execution.calling import Permit, most_of, time_limit_s
from circinus.pipelines.model.configuration import Configuration
from circinus.pipelines.model.endpoints import Endpoint, Usage
from circinus.pipelines.model.operators import Operator

_MARGIN_S = 10.0  # that a worker has beyond an attempt's time, to report that it is over


class CallGate(Protocol):
    """Permits to call, within rate limits. Used within one event loop, which it never blocks.

    It grants permits in the order of requests.
    """

    async def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Return leave for one attempt, as soon as all limits allow it.

        Cancelled, it leaves its place. Until it is settled the most that it may use counts as
        used.
        """

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Record what an attempt used, by endpoint; does not block."""


class UnlimitedCalls:
    """A `CallGate` that is always open."""

    async def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """See `CallGate`."""
        return Permit(operator=operator, most=most)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """See `CallGate`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callee:
    """What an operator of a plan calls."""

    operator: str
    most: Mapping[str, Usage]  # endpoint -> the most that an attempt may use
    timeout_s: float  # of an attempt, after which its worker gives it up

    @classmethod
    def of(
        cls, operator: Operator, configuration: Configuration, endpoints: Mapping[str, Endpoint]
    ) -> Callee:
        """Return the endpoints that an operator calls under a configuration.

        InvalidInput if an endpoint is not there, or one attempt may use more than its limits.
        """
        most = most_of(operator, configuration, endpoints)
        for name, one in most.items():
            limits, where = endpoints[name].limits, f"endpoint {name}.limits"
            for limit, usage in (
                ("requests_per_minute", one.calls),
                ("tokens_per_minute", one.tokens),
            ):
                bound = getattr(limits, limit)
                rule = f"must be at least what one attempt of {operator.name} may use, {usage:g}"
                fits = bound is None or usage <= bound
                checks.require(fits, f"{where}.{limit}", rule, bound)
        timeout_s = time_limit_s(operator, most, endpoints)
        return cls(operator=operator.name, most=most, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptedCall:
    """A call that a request needs."""

    callee: Callee
    # sends one attempt, of that number, to an instance, which has so many seconds
    send: Callable[[WorkerClient, int, float], Awaitable[RunReply]]
    size: float  # of the request
    due_in_s: Callable[[], float]  # until the answer is late, `> 0`; infinite: never
    ends_in_s: Callable[[], float]  # until the client gives up
    doing: Callable[[str], None]  # gets what the request waits for


class CallResult(NamedTuple):
    """The answer of a segment of a plan."""

    reply: RunReply
    # of its operators one after the other, or of a call's attempts and the waits between them
    seconds: float
    waited_s: float  # for an instance's turn, and for a permit to call
    used: Mapping[str, Mapping[str, Usage]] = {}  # operator -> endpoint -> by all attempts


@dataclass(slots=True, eq=False)
class Calls:
    """Makes the calls of one deployed plan. Used within one event loop."""

    gate: CallGate
    clock: Clock
    used: dict[str, dict[str, Usage]] = field(default_factory=dict, init=False)
    unsure: int = field(default=0, init=False)
    _under_way: set[asyncio.Task[RunReply]] = field(default_factory=set, init=False)

    def bill(self, plan_id: str, answered: int, failed: int) -> ServedBill:
        """Return the bill of the calls so far, attempts under way left out."""
        return ServedBill(
            plan_id=plan_id,
            answered=answered,
            failed=failed,
            used=used_together({}, self.used),
            unsure=self.unsure,
        )

    async def make(self, queue: TierQueue, call: AttemptedCall) -> CallResult:
        """Make a call, with as many attempts as its operator's `retries` allow.

        CallFailed if all of them failed; TooManyRequests if it, or leave for its next attempt,
        cannot be had in time; other errors as `TierQueue.serve`.
        """
        name, began, waited_s, number = call.callee.operator, self.clock.now(), 0.0, 1
        used: dict[str, dict[str, Usage]] = {}
        while True:
            turn = _Turn(self.clock)
            try:
                reply = await self._attempt(queue, call, number, turn)
            except CallFailed as error:
                used = used_together(used, error.used)
                waited_s += turn.waited_s
                await self._wait_for_next(call, error)
                number += 1
                continue
            # of attempts before, and the waits after them
            before_s = turn.queued_at - began - waited_s
            return CallResult(
                reply,
                before_s + reply.seconds[name],
                waited_s + turn.waited_s,
                used_together(used, from_wire(reply.used)),
            )

    async def idle(self) -> None:
        """Return when no attempt is under way."""
        if self._under_way:
            await asyncio.wait(set(self._under_way))

    async def _attempt(
        self, queue: TierQueue, call: AttemptedCall, number: int, turn: _Turn
    ) -> RunReply:
        callee = call.callee
        permit = Permit(operator=callee.operator, most=callee.most)

        async def admitted() -> None:
            nonlocal permit
            call.doing(f"{callee.operator} waited for leave to call {', '.join(callee.most)}")
            permit = await self.gate.admit(callee.operator, callee.most)

        def work(client: WorkerClient) -> Awaitable[RunReply]:
            turn.begins()
            call.doing(f"{callee.operator} called {', '.join(callee.most)}")
            timeout_s = callee.timeout_s + _MARGIN_S
            sent = asyncio.ensure_future(call.send(client, number, timeout_s))
            self._under_way.add(sent)
            sent.add_done_callback(lambda done: self._settle(permit, done))
            return asyncio.shield(sent)

        reply, _ = await queue.serve(
            callee.operator, work, time_left_s=call.due_in_s(), size=call.size, before=admitted
        )
        return reply

    async def _wait_for_next(self, call: AttemptedCall, error: CallFailed) -> None:
        """Wait until the next attempt is due; raise the error if there is none in time."""
        again_in_s = error.again_in_s
        if again_in_s is None or again_in_s >= call.ends_in_s():
            raise error
        if again_in_s >= call.due_in_s():
            reason = f"{call.callee.operator} is to be called again after its deadline"
            raise TooManyRequests(reason, retry_after_s=again_in_s) from error
        call.doing(f"{call.callee.operator} waited to call again")
        await asyncio.sleep(again_in_s)

    def _settle(self, permit: Permit, done: asyncio.Task[RunReply]) -> None:
        self._under_way.discard(done)
        used = None if done.cancelled() else _used_by(done)
        if used is None:
            self.unsure += 1
            most = {name: one.finite for name, one in permit.most.items()}
            used = {permit.operator: most}
        self.used = used_together(self.used, used)
        self.gate.settle(permit, used.get(permit.operator, {}))


@dataclass(slots=True)
class _Turn:
    """When an attempt was queued, and how long until it began."""

    clock: Clock
    queued_at: float = field(init=False)
    waited_s: float = field(default=0.0, init=False)  # until it began

    def __post_init__(self) -> None:
        self.queued_at = self.clock.now()

    def begins(self) -> None:
        self.waited_s = self.clock.now() - self.queued_at


def _used_by(done: asyncio.Task[RunReply]) -> dict[str, dict[str, Usage]] | None:
    """Return the usage of an attempt; None: not known."""
    error = done.exception()
    if error is None:
        return from_wire(done.result().used)
    if isinstance(error, CallFailed):
        return {operator: dict(used) for operator, used in error.used.items()}
    return None
