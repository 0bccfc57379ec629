"""The requests of one deployment that wait for an instance of one tier.

The queue is bounded: what would only wait for its deadline is turned away at once. An
instance serves one request at a time; which request goes where is the policy's to say.
An instance that lost a request, or whose caller gave up, is out until it answers again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from deploy.workers.client import Reply, WorkerClient
from pipelines.clock import Clock
from pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from scheduler.dispatch.latency_model import LatencyLine, LatencyModel
from scheduler.dispatch.policy import DispatchPolicy, InstanceState, WaitingRequest

_SETTLE_S = 60.0
_RECOVERY_PAUSE_S = 0.1
_LEAST_BUSY_S = 1e-6


@dataclass(slots=True, eq=False)
class _Slot:
    """An instance as the queue sees it."""

    client: WorkerClient
    idle: bool = True
    began: float = 0.0
    predicted_s: float = 0.0

    def busy_s(self, now: float) -> float:
        """Give the predicted seconds until it is free.

        What takes longer than predicted is taken to last as long again as it already did: with
        no seconds left it would look as good as an idle instance, and a request might be kept
        waiting for it beside one.
        """
        if self.idle:
            return 0.0
        elapsed = now - self.began
        left = self.predicted_s - elapsed
        return max(left if left > 0 else elapsed, _LEAST_BUSY_S)


@dataclass(slots=True, eq=False)
class _Waiter:
    kind: str
    arrived: float
    qos_s: float
    turn: asyncio.Future[_Slot] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(frozen=True, slots=True)
class Served:
    """What an instance answered, and how long its turn was waited for."""

    reply: Reply
    waited_s: float


class TierQueue:
    """Instances of one tier and the requests for them. Used within one event loop."""

    def __init__(
        self, tier: str, policy: DispatchPolicy, clock: Clock, *, limit: int, prior_s: float
    ) -> None:
        """Make an empty queue.

        Args:
            tier: Name of the tier.
            policy: Picks instances.
            clock: For waiting and predicted times.
            limit: Most requests that wait, `>= 1`.
            prior_s: Seconds of a call as the plan predicts them.
        """
        self._tier = tier
        self._policy = policy
        self._clock = clock
        self._limit = limit
        self._prior_s = prior_s
        self._slots: dict[str, _Slot] = {}
        self._waiting: dict[str, _Waiter] = {}
        self._model = LatencyModel()
        self._serials = count()
        self._recoveries: set[asyncio.Task[None]] = set()

    def add(self, client: WorkerClient) -> None:
        """Take an instance into service."""
        self._slots[client.address] = _Slot(client)
        self._match()

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        self._slots.pop(address, None)

    async def serve(
        self, kind: str, work: Callable[[WorkerClient], Awaitable[Reply]], *, time_left_s: float
    ) -> Served:
        """Give what an instance answers to `work`, once one is free for it.

        Args:
            kind: Requests of a kind take alike long.
            work: Calls the instance.
            time_left_s: Until the request's deadline, `> 0`.

        Raises:
            Unavailable: If too many requests wait already.
            InstanceLost: If the instance went away.
        """
        arrived = self._clock.now()
        slot = await self._turn(_Waiter(kind, arrived, time_left_s))
        began = self._clock.now()
        try:
            reply = await work(slot.client)
        except (OperatorFailed, InvalidInput):
            self._free(slot)
            raise
        except BaseException:  # lost, late or cancelled: it may still be at work
            self._recover(slot)
            raise
        self._learn(kind, slot, self._clock.now() - began)
        self._free(slot)
        return Served(reply, began - arrived)

    async def close(self) -> None:
        """Turn away whoever waits and stop looking after instances."""
        for waiter in self._waiting.values():
            if not waiter.turn.done():
                error = Unavailable("the deployment was stopped", retry_after_s=1.0)
                waiter.turn.set_exception(error)
        self._waiting.clear()
        self._slots.clear()
        for task in self._recoveries:
            task.cancel()
        await asyncio.gather(*self._recoveries, return_exceptions=True)

    async def _turn(self, waiter: _Waiter) -> _Slot:
        if len(self._waiting) >= self._limit:
            reason = f"{len(self._waiting)} requests already wait for tier {self._tier}"
            raise Unavailable(reason, retry_after_s=self._backlog_s(waiter.kind))
        serial = str(next(self._serials))
        self._waiting[serial] = waiter
        self._match()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._free(waiter.turn.result())  # its turn came in the same moment
            raise
        finally:
            self._waiting.pop(serial, None)

    def _match(self) -> None:
        waiting = {k: w for k, w in self._waiting.items() if not w.turn.done()}
        if not waiting or not any(slot.idle for slot in self._slots.values()):
            return
        now = self._clock.now()
        starts = self._policy.assign(
            [
                WaitingRequest(id=key, waited_s=max(now - w.arrived, 0.0), qos_s=w.qos_s)
                for key, w in waiting.items()
            ],
            [
                InstanceState(id=address, idle=slot.idle, busy_s=slot.busy_s(now))
                for address, slot in self._slots.items()
            ],
            np.array(
                [[self._predicted(w.kind, a) for a in self._slots] for w in waiting.values()]
            ),
        )
        for request, instance in starts:
            slot, waiter = self._slots[instance], waiting[request]
            slot.idle = False
            slot.began, slot.predicted_s = now, self._predicted(waiter.kind, instance)
            del self._waiting[request]
            waiter.turn.set_result(slot)

    def _predicted(self, kind: str, address: str) -> float:
        line = self._model.lines.get(_key(kind, address))
        return self._prior_s if line is None else line.predict()

    def _learn(self, kind: str, slot: _Slot, seconds: float) -> None:
        key = _key(kind, slot.client.address)
        self._model.lines.setdefault(key, LatencyLine(prior_s=self._prior_s))
        self._model.observe(key, seconds)

    def _backlog_s(self, kind: str) -> float:
        predicted = [self._predicted(kind, address) for address in self._slots]
        if not predicted:
            return 1.0
        return len(self._waiting) * max(predicted) / len(predicted)

    def _free(self, slot: _Slot) -> None:
        slot.idle = True
        self._match()

    def _recover(self, slot: _Slot) -> None:
        task = asyncio.get_running_loop().create_task(self._settled(slot))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)

    async def _settled(self, slot: _Slot) -> None:
        while self._slots.get(slot.client.address) is slot:
            try:
                await slot.client.settle(timeout_s=_SETTLE_S)
            except Unavailable:
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                self._free(slot)
                return


def _key(kind: str, address: str) -> str:
    return f"{kind} at {address}"
