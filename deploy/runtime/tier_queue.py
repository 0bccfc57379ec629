"""The requests of one deployment that wait for an instance of one tier.

The queue is bounded: what would only wait for its deadline is turned away at once. So is what
cannot be in time any more, if the policy `sheds`; if not, late requests beyond one for each
instance: after an overload they would take the time of those that can still be in time. The policy
decides which request goes where; the dual prices of unlike instances' time are worked out for it
between two answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from circinus.deploy.runtime.dual_prices import LearntPrices
from circinus.deploy.runtime.learning import Request, TierLatencies
from circinus.deploy.runtime.places import InstanceType, Place, PlaceKey, Places
from circinus.deploy.runtime.report import QueueFigures
from circinus.deploy.runtime.telemetry import ServiceSample, TraceBuffer
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState

LEAST_LEFT_S = 1e-6
"""To policies a deadline is ahead; this, or less, is what is left of one that has passed."""


@dataclass(slots=True, eq=False)
class _Arrival:
    request: Request
    arrived: float
    qos_s: float
    work_s: float = 0.0  # mean seconds where it is done soonest
    planned: PlaceKey | None = None


@dataclass(slots=True, eq=False)
class _Waiter(_Arrival):
    turn: asyncio.Future[Place] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


# deviates: tier-by-tier
@dataclass(slots=True, eq=False)
class TierQueue:
    """Instances of one tier and the requests for them. Used within one event loop."""

    tier: str
    policy: DispatchPolicy  # picks instances
    clock: Clock  # for waiting and predicted times
    limit: int = field(kw_only=True)  # most requests that wait, `>= 1`
    prior_s: float = field(kw_only=True)  # of a call as the plan predicts them
    trace: TraceBuffer = field(default_factory=TraceBuffer, kw_only=True)  # of what calls take
    latencies: TierLatencies = field(init=False)
    _places: Places = field(init=False)
    _waiting: dict[_Waiter, None] = field(default_factory=dict, init=False)  # in their order
    _prices: LearntPrices = field(init=False)
    _figures: QueueFigures = field(default_factory=QueueFigures, init=False)
    _compared: int = field(default=0, init=False)  # answers with a prediction
    _largest: float = field(default=0.0, init=False)  # size until now

    def __post_init__(self) -> None:
        self.latencies = TierLatencies(self.tier, self.policy.level, self.prior_s)
        self._prices = LearntPrices(self.latencies)
        self._places = Places(self._prices, self._match)

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn, or have just got it."""
        return len(self._waiting)

    def add(self, client: WorkerClient, type: InstanceType | None = None) -> None:
        """Take an instance into service."""
        self._places.add(client, type or InstanceType())

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        self._places.remove(address)

    def drop(self, client: WorkerClient) -> None:
        """Take an instance out of service, unless another client has its address by now."""
        if self._places.has(client):
            self.remove(client.address)

    async def serve(
        self,
        kind: str,
        work: Callable[[WorkerClient], Awaitable[RunReply]],
        *,
        time_left_s: float,
        size: float = 1.0,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[RunReply, float]:
        """Return what an instance answers to `work`, and the seconds until it began.

        Requests of a kind take alike long, larger ones longer, in any unit; `time_left_s > 0` is
        until the deadline. Once an instance is free, what is `before` is waited for; None:
        nothing. TooManyRequests if too many wait already, others are in time without it, or it
        cannot be in time any more while that lasts; InstanceLost if the instance went away.
        """
        arrived = self.clock.now()
        self._prices.note((kind, size), time_left_s)
        self._largest = max(self._largest, size)
        waiter = _Waiter((kind, size), arrived, time_left_s)
        place = await self._turn(waiter)
        if before is not None:
            await self._ready(place, waiter, before)
        began = self.clock.now()
        try:
            reply = await work(place.client)
        except (OperatorFailed, InvalidInput):
            self._places.free(place)
            raise
        except BaseException as error:  # lost, late or cancelled: it may still be at work
            if isinstance(error, InstanceLost):
                self._figures.lost += 1
                self._places.leave_alone(place.client.address)
            self._places.recover(place)
            raise
        now = self.clock.now()
        self._figures.waited_s += began - arrived
        self._note(place, now - began, now - arrived - time_left_s)
        self.latencies.observe((kind, size), place.name, now - began)
        self.trace.add_service(ServiceSample(self.tier, kind, size, place.name, now - began))
        self._places.grow(place, reply.concurrency)
        self._places.free(place)
        if self._prices.is_due(now):
            asyncio.get_running_loop().call_soon(self._places.update_prices)  # after the answer
        return reply, began - arrived

    async def _ready(
        self, place: Place, waiter: _Waiter, before: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait for what is before the work at a place, as long as it can be in time after it."""
        left_s = waiter.qos_s - (self.clock.now() - waiter.arrived)
        left_s -= self.latencies.mean(waiter.request, place.name)
        try:
            async with asyncio.timeout(None if left_s == inf else max(left_s, 0.0)) as time:
                await before()
        except BaseException as error:
            self._places.free(place)
            if isinstance(error, TimeoutError) and time.expired():
                raise self._refusal(waiter, self._infeasible) from error
            raise
        place.began = self.clock.now()

    def shed_infeasible(
        self, kind: str, time_left_s: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests if `serve` would at once, as things stand, unless that holds.

        So it does for what is late already, which `serve` may let an idle instance have: a request
        that waited for a busy service should not keep it busy, and what is late later on has been
        paid for, and shows that something is wrong.
        """
        arrival = _Arrival((kind, 1.0), self.clock.now(), time_left_s)
        if len(self._waiting) >= self.limit and not self._late(arrival.arrived):
            reason = self._full
        elif self.policy.sheds and (time_left_s <= LEAST_LEFT_S or self._is_infeasible(arrival)):
            reason = self._infeasible
        else:
            return
        if not unless():
            raise self._refusal(arrival, reason)

    def figures(self) -> QueueFigures:
        """Return the figures of the queue at this moment."""
        places = self._places
        return replace(
            self._figures,
            waiting=sum(not waiter.turn.done() for waiter in self._waiting),
            places=len(places),
            workers=places.workers,
            busy=tuple(dict.fromkeys(place.key[0] for place in places if not place.idle)),
            idle=sum(place.idle for place in places),
            drifts=self.latencies.drifts,
        )

    async def close(self) -> None:
        """Turn away all that wait and stop looking after instances."""
        for waiter in self._waiting:
            if not waiter.turn.done():
                error = Unavailable("the deployment was stopped", retry_after_s=1.0)
                waiter.turn.set_exception(error)
        self._waiting.clear()
        await self._places.close()

    async def _turn(self, waiter: _Waiter) -> Place:
        now, full = waiter.arrived, len(self._waiting) >= self.limit
        late = self._late(now)
        if full and not late:
            raise self._refusal(waiter, self._full)
        if self.policy.sheds and self._is_infeasible(waiter):
            raise self._refusal(waiter, self._infeasible)
        # deviates: late-beyond-one
        tolerated = 0 if self.policy.sheds else len(self._places)
        for other in late[: max(len(late) - tolerated, int(full))]:
            self._give_up(other, f"tier {self.tier} could not serve it before its deadline")
        self._waiting[waiter] = None
        self._match()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._places.free(waiter.turn.result())  # its turn came in the same moment
            raise
        finally:
            self._waiting.pop(waiter, None)

    def _late(self, now: float) -> list[_Waiter]:
        """Return those who wait past their deadline, the longest first."""
        waiting = (waiter for waiter in self._waiting if not waiter.turn.done())
        return [waiter for waiter in waiting if now - waiter.arrived > waiter.qos_s]

    def _is_infeasible(self, arrival: _Arrival) -> bool:
        """Return whether a request that comes now will not be in time.

        It will not if no instance were done with it in time, were it the next; nor, where all are
        alike, if the work before it takes too long. Where they are not, that is a lower bound:
        work is taken to be spread evenly, at its seconds on the fastest. A prediction turns
        no request away from an idle instance without a queue: only a request can show whether it
        still holds.
        """
        now, places = arrival.arrived, self._places
        alone = not self._waiting and any(place.idle for place in places)
        if arrival.qos_s == inf or not places or alone:
            return False
        names = {place.name for place in places}
        own_s = {name: self.latencies.predict(arrival.request, name) for name in names}
        arrival.work_s = min(self.latencies.mean(arrival.request, name) for name in names)
        busy_s = [place.busy_s(now) for place in places]
        done_s = min(b + own_s[place.name] for b, place in zip(busy_s, places, strict=True))
        due = now + arrival.qos_s
        before_s = sum(
            other.work_s
            for other in self._waiting
            if not other.turn.done() and other.arrived + other.qos_s <= due
        )
        spread_s = (sum(busy_s) + before_s) / len(busy_s) + min(own_s.values())
        return max(done_s, spread_s) > arrival.qos_s

    def _give_up(self, waiter: _Waiter, reason: str) -> None:
        del self._waiting[waiter]
        waiter.turn.set_exception(self._refusal(waiter, reason))

    @property
    def _full(self) -> str:
        return f"{len(self._waiting)} requests already wait for tier {self.tier}"

    @property
    def _infeasible(self) -> str:
        return f"tier {self.tier} cannot serve it before its deadline"

    def _refusal(self, waiter: _Arrival, reason: str) -> TooManyRequests:
        self._figures.turned_away += 1
        places = self._places
        predicted = [self.latencies.predict(waiter.request, place.name) for place in places]
        pause = max(predicted) / len(predicted) * max(len(self._waiting), 1) if predicted else 1.0
        return TooManyRequests(reason, retry_after_s=pause)

    def _match(self) -> None:
        waiting = [waiter for waiter in self._waiting if not waiter.turn.done()]
        places = list(self._places)
        if not waiting or not (self.policy.plans_ahead or any(place.idle for place in places)):
            return
        now = self.clock.now()
        state = self._state(waiting, places, now)
        if self.policy.sheds:
            left_s = state.qos_s - state.waited_s
            infeasible = (state.predicted_s + state.busy_s).min(axis=1) > left_s
            if infeasible.any() and not infeasible.all():  # if all are, the policy may serve one
                for i in np.flatnonzero(infeasible).tolist():
                    self._give_up(waiting[i], self._infeasible)
                waiting = [waiter for waiter in waiting if not waiter.turn.done()]
                state = self._state(waiting, places, now)
        decision = self.policy.decide(state)
        for i, j in decision.starts:
            self._start(waiting[i], places[j], now, float(state.predicted_s[i, j]))
        for waiter in waiting:
            waiter.planned = None
        for i, j in decision.planned:
            waiting[i].planned = places[j].key
        for place, dual in zip(places, decision.dual, strict=False):  # or none
            place.dual = dual
        for i in decision.rejected:
            self._give_up(waiting[i], self._infeasible)

    def _start(self, waiter: _Waiter, place: Place, now: float, predicted_s: float) -> None:
        place.idle = False
        place.began, place.predicted_s = now, predicted_s
        del self._waiting[waiter]
        waiter.turn.set_result(place)

    def _state(
        self, waiting: Sequence[_Arrival], places: list[Place], now: float
    ) -> DispatchState:
        number = {place.key: j for j, place in enumerate(places)}
        planned = [UNPLANNED if w.planned is None else number.get(w.planned, -1) for w in waiting]
        requests = [waiter.request for waiter in waiting]
        return DispatchState(
            np.array([max(now - w.arrived, 0.0) for w in waiting]),
            np.array([w.qos_s for w in waiting]),
            np.array([size for _, size in requests]),
            np.array(planned, dtype=np.int64),
            self.latencies.predicted(requests, [place.name for place in places]),
            np.array([place.busy_s(now) for place in places]),
            np.array([place.idle for place in places], dtype=np.bool_),
            self._places.fleet,
            np.array([place.dual for place in places]),
            self._largest,
        )

    def _note(self, place: Place, seconds: float, late_s: float) -> None:
        figures = self._figures
        figures.answered += 1
        figures.late += late_s > 0
        figures.late_s += max(late_s, 0.0)
        figures.late_max_s = max(figures.late_max_s, late_s)
        figures.predicted_s += place.predicted_s
        figures.observed_s += seconds
        if place.predicted_s > 0:
            self._compared += 1
            beyond = seconds / place.predicted_s - figures.observed_over_predicted
            figures.observed_over_predicted += beyond / self._compared
