"""The requests of one deployment that wait for an instance of one tier.

The queue is bounded: what would only wait for its deadline is turned away at once. So are
late requests beyond one for each instance: after an overload they would take the time of those
that can still be in time. An instance serves one request at a time, or as many as its answers
say that it takes: it has a place for each, and to the policy a place is an instance. Which
request goes where is the policy's to say; what a second of unlike instances is worth to it is
worked out of what requests took, between two answers. A place that lost a request, or whose
caller gave up, is out until its instance answers again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from circinus.deploy.runtime.learning import Request, TierLatencies
from circinus.deploy.runtime.worth import ALIKE, LearntWorths, Worth
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState, Fleet

_SETTLE_S = 60.0
_RECOVERY_PAUSE_S = 0.1
_LEAST_BUSY_S = 1e-6

_PlaceKey = tuple[str, int]  # address of an instance, number among its places


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What is known of an instance beforehand."""

    name: str | None = None  # those of a name take alike long and learn together; None: alone
    worth: Worth = ALIKE  # until unlike types are learnt


@dataclass(slots=True, kw_only=True)
class QueueFigures:
    """A queue at a moment, for people and monitors; sums are of all that it answered."""

    waiting: int = 0  # requests without a turn
    busy: tuple[str, ...] = ()  # addresses of instances that are at work or out
    idle: int = 0  # number of requests that could start now
    answered: int = 0  # requests
    late: int = 0  # those of them that took longer than their deadline
    late_s: float = 0.0  # by how much, together
    late_max_s: float = 0.0  # by how much the worst of them
    turned_away: int = 0  # requests refused or given up
    lost: int = 0  # times that an instance went away with a request
    waited_s: float = 0.0  # for an instance's turn
    predicted_s: float = 0.0  # of the calls, as predicted when they started: a quantile
    observed_s: float = 0.0  # what these calls took
    drifts: int = 0  # times that latencies had changed for good and were learnt anew
    observed_over_predicted: float = 1.0  # mean of calls, over the quantile; 1 before the first


@dataclass(slots=True, eq=False)
class _Place:
    """Room for one request at an instance: idle, or with one that began then."""

    client: WorkerClient
    type: InstanceType
    number: int
    idle: bool = True
    began: float = 0.0
    predicted_s: float = 0.0

    @property
    def key(self) -> _PlaceKey:
        return (self.client.address, self.number)

    @property
    def name(self) -> str:
        """Under which what it takes is learnt."""
        return self.type.name or self.client.address

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
    request: Request
    arrived: float
    qos_s: float
    planned: _PlaceKey | None = None
    turn: asyncio.Future[_Place] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


@dataclass(slots=True, eq=False)
class TierQueue:
    """Instances of one tier and the requests for them. Used within one event loop."""

    tier: str
    policy: DispatchPolicy  # picks instances
    clock: Clock  # for waiting and predicted times
    limit: int = field(kw_only=True)  # most requests that wait, `>= 1`
    prior_s: float = field(kw_only=True)  # of a call as the plan predicts them
    latencies: TierLatencies = field(init=False)
    _places: dict[_PlaceKey, _Place] = field(default_factory=dict, init=False)
    _waiting: dict[_Waiter, None] = field(default_factory=dict, init=False)  # in their order
    _worths: LearntWorths = field(init=False)
    _fleet: Fleet = field(default_factory=partial(Fleet.alike, 0), init=False)
    _figures: QueueFigures = field(default_factory=QueueFigures, init=False)
    _compared: int = field(default=0, init=False)  # answers with a prediction
    _recoveries: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.latencies = TierLatencies(self.tier, self.policy.level, self.prior_s)
        self._worths = LearntWorths(self.latencies)

    def add(self, client: WorkerClient, type: InstanceType | None = None) -> None:
        """Take an instance into service."""
        self.remove(client.address)
        self._add_places(client, type or InstanceType(), 0, 1)

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        for key in [key for key in self._places if key[0] == address]:
            del self._places[key]
        self._order_places()

    async def serve(
        self,
        kind: str,
        work: Callable[[WorkerClient], Awaitable[RunReply]],
        *,
        time_left_s: float,
        size: float = 1.0,
    ) -> tuple[RunReply, float]:
        """Give what an instance answers to `work`, and the seconds until one was free for it.

        Requests of a kind take alike long, larger ones longer, in any unit; `time_left_s > 0` is
        until the deadline. TooManyRequests if too many wait already, or others are in time without
        it; InstanceLost if the instance went away.
        """
        arrived = self.clock.now()
        self._worths.note((kind, size), time_left_s)
        place = await self._turn(_Waiter((kind, size), arrived, time_left_s))
        began = self.clock.now()
        try:
            reply = await work(place.client)
        except (OperatorFailed, InvalidInput):
            self._free(place)
            raise
        except BaseException as error:  # lost, late or cancelled: it may still be at work
            self._figures.lost += isinstance(error, InstanceLost)
            self._recover(place)
            raise
        now = self.clock.now()
        self._figures.waited_s += began - arrived
        self._note(place, now - began, now - arrived - time_left_s)
        self.latencies.observe((kind, size), place.name, now - began)
        self._note_concurrency(place, reply.concurrency)
        self._free(place)
        if self._worths.is_due(now):
            asyncio.get_running_loop().call_soon(self._value_types)  # the answer goes first
        return reply, began - arrived

    def figures(self) -> QueueFigures:
        """Give what is known at this moment."""
        places = self._places.values()
        return replace(
            self._figures,
            waiting=sum(not waiter.turn.done() for waiter in self._waiting),
            busy=tuple(dict.fromkeys(place.key[0] for place in places if not place.idle)),
            idle=sum(place.idle for place in places),
            drifts=self.latencies.drifts,
        )

    async def close(self) -> None:
        """Turn away whoever waits and stop looking after instances."""
        for waiter in self._waiting:
            if not waiter.turn.done():
                error = Unavailable("the deployment was stopped", retry_after_s=1.0)
                waiter.turn.set_exception(error)
        self._waiting.clear()
        self._places.clear()
        for task in self._recoveries:
            task.cancel()
        await asyncio.gather(*self._recoveries, return_exceptions=True)

    async def _turn(self, waiter: _Waiter) -> _Place:
        now, full = self.clock.now(), len(self._waiting) >= self.limit
        waiting = [other for other in self._waiting if not other.turn.done()]
        late = [other for other in waiting if now - other.arrived > other.qos_s]  # longest first
        if full and not late:
            reason = f"{len(self._waiting)} requests already wait for tier {self.tier}"
            raise self._refusal(waiter, reason)
        for other in late[: max(len(late) - len(self._places), int(full))]:
            self._give_up(other, "could not serve it before its deadline")
        self._waiting[waiter] = None
        self._match()
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._free(waiter.turn.result())  # its turn came in the same moment
            raise
        finally:
            self._waiting.pop(waiter, None)

    def _give_up(self, waiter: _Waiter, reason: str) -> None:
        del self._waiting[waiter]
        waiter.turn.set_exception(self._refusal(waiter, f"tier {self.tier} {reason}"))

    def _refusal(self, waiter: _Waiter, reason: str) -> TooManyRequests:
        self._figures.turned_away += 1
        places = self._places.values()
        predicted = [self.latencies.predict(waiter.request, place.name) for place in places]
        pause = max(predicted) / len(predicted) * max(len(self._waiting), 1) if predicted else 1.0
        return TooManyRequests(reason, retry_after_s=pause)

    def _match(self) -> None:
        waiting = [waiter for waiter in self._waiting if not waiter.turn.done()]
        places = list(self._places.values())
        if not waiting or not (self.policy.plans_ahead or any(place.idle for place in places)):
            return
        now = self.clock.now()
        state = self._state(waiting, places, now)
        decision = self.policy.decide(state)
        for i, j in decision.starts:
            place = places[j]
            place.idle = False
            place.began, place.predicted_s = now, float(state.predicted_s[i, j])
            del self._waiting[waiting[i]]
            waiting[i].turn.set_result(place)
        for waiter in waiting:
            waiter.planned = None
        for i, j in decision.planned:
            waiting[i].planned = places[j].key
        for i in decision.rejected:
            self._give_up(waiting[i], "cannot serve it before its deadline")

    def _state(self, waiting: list[_Waiter], places: list[_Place], now: float) -> DispatchState:
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
            self._fleet,
        )

    def _note(self, place: _Place, seconds: float, late_s: float) -> None:
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

    def _note_concurrency(self, place: _Place, concurrency: int) -> None:
        if self._places.get(place.key) is place:
            known = sum(address == place.client.address for address, _ in self._places)
            if concurrency > known:
                self._add_places(place.client, place.type, known, concurrency)

    def _add_places(self, client: WorkerClient, type: InstanceType, first: int, end: int) -> None:
        for number in range(first, end):
            self._places[client.address, number] = _Place(client, type, number)
        self._order_places()
        self._match()

    def _order_places(self) -> None:
        """Put the places in order, the base type's first, each with what it is worth."""
        worth = {key: self._worths.of(p.name) or p.type.worth for key, p in self._places.items()}
        ordered = sorted(self._places.items(), key=lambda item: worth[item[0]].kind)
        self._places = dict(ordered)
        self._fleet = _fleet(worth[key] for key in self._places)

    def _value_types(self) -> None:
        if self._worths.look(Counter(place.name for place in self._places.values())):
            self._order_places()

    def _free(self, place: _Place) -> None:
        place.idle = True
        self._match()

    def _recover(self, place: _Place) -> None:
        task = asyncio.get_running_loop().create_task(self._settled(place))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)

    async def _settled(self, place: _Place) -> None:
        while self._places.get(place.key) is place:
            try:
                await place.client.settle(timeout_s=_SETTLE_S)
            except Unavailable:
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                self._free(place)
                return


def _fleet(worths: Iterable[Worth]) -> Fleet:
    found = list(worths)
    return Fleet(
        np.array([worth.kind for worth in found], dtype=np.int64),
        np.array([worth.coefficient for worth in found]),
        np.array([worth.price for worth in found]),
    )
