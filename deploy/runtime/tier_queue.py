"""The requests of one deployment that wait for an instance of one tier.

The queue is bounded: what would only wait for its deadline is turned away at once. So is what
cannot be in time any more, if the policy `sheds`; if not, late requests beyond one for each
instance: after an overload they would take the time of those that can still be in time. An
instance serves one request at a time, or as many as its answers
say that it takes: it has a place for each, and to the policy a place is an instance. Which
request goes where is the policy's to say; what a second of unlike instances is worth to it is
worked out of what requests took, between two answers. A place whose caller gave up is out until
its instance answers again; so are all places of an instance that was lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

import numpy as np

from circinus.deploy.runtime.hearing import Sightings, Took
from circinus.deploy.runtime.learning import Request, TierLatencies
from circinus.deploy.runtime.observed import TierLoad
from circinus.deploy.runtime.worth import ALIKE, LearntWorths, Worth
from circinus.deploy.workers.client import WorkerClient
from circinus.deploy.workers.errors import InstanceLost, TooManyRequests
from circinus.deploy.workers.proto.worker_pb2 import RunReply
from circinus.pipelines.clock import Clock
from circinus.pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.scheduler.dispatch.policy import UNPLANNED, DispatchPolicy, DispatchState, Fleet

_SETTLE_S = 60.0
_RECOVERY_PAUSE_S = 0.1
_LEAST_BUSY_S = 1e-6
LEAST_LEFT_S = 1e-6
"""To policies a deadline is ahead; this, or less, is what is left of one that has passed."""

_PlaceKey = tuple[str, int]  # address of an instance, number among its places


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceType:
    """What is known of an instance beforehand."""

    name: str | None = None  # those of a name take alike long and learn together; None: alone
    worth: Worth = ALIKE  # until unlike types are learnt
    places: int = 1  # requests that it takes at once, `>= 1`, more if its answers say so


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
    endpoints: Usage = NOTHING_USED  # what was used of those on a remote tier


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
        """Return the predicted seconds until it is free.

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
class _Asked:
    request: Request
    arrived: float
    qos_s: float
    work_s: float = 0.0  # mean seconds where it is done soonest
    planned: _PlaceKey | None = None


@dataclass(slots=True, eq=False)
class _Waiter(_Asked):
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
    # where it is noted what calls take
    sightings: Sightings = field(default_factory=Sightings, kw_only=True)
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

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn, or have just got it."""
        return len(self._waiting)

    def add(self, client: WorkerClient, type: InstanceType | None = None) -> None:
        """Take an instance into service."""
        self.remove(client.address)
        known = type or InstanceType()
        self._add_places(client, known, 0, known.places)

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        for key in [key for key in self._places if key[0] == address]:
            del self._places[key]
        self._order_places()

    def drop(self, client: WorkerClient) -> None:
        """Take an instance out of service, unless another client has its address by now."""
        if any(place.client is client for place in self._places.values()):
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
        self._worths.note((kind, size), time_left_s)
        waiter = _Waiter((kind, size), arrived, time_left_s)
        place = await self._turn(waiter)
        if before is not None:
            await self._ready(place, waiter, before)
        began = self.clock.now()
        try:
            reply = await work(place.client)
        except (OperatorFailed, InvalidInput):
            self._free(place)
            raise
        except BaseException as error:  # lost, late or cancelled: it may still be at work
            if isinstance(error, InstanceLost):
                self._figures.lost += 1
                self._leave_alone(place.client.address)
            self._recover(place)
            raise
        now = self.clock.now()
        self._figures.waited_s += began - arrived
        self._note(place, now - began, now - arrived - time_left_s)
        took = Took(self.tier, kind, size, place.name, now - began)
        self.latencies.observe((kind, size), place.name, took.seconds)
        self.sightings.note_took(took)
        self._note_concurrency(place, reply.concurrency)
        self._free(place)
        if self._worths.is_due(now):
            asyncio.get_running_loop().call_soon(self._value_types)  # the answer goes first
        return reply, began - arrived

    async def _ready(
        self, place: _Place, waiter: _Waiter, before: Callable[[], Awaitable[None]]
    ) -> None:
        """Wait for what is before the work at a place, as long as it can be in time after it."""
        left_s = waiter.qos_s - (self.clock.now() - waiter.arrived)
        left_s -= self.latencies.mean(waiter.request, place.name)
        try:
            async with asyncio.timeout(None if left_s == inf else max(left_s, 0.0)) as time:
                await before()
        except BaseException as error:
            self._free(place)
            if isinstance(error, TimeoutError) and time.expired():
                raise self._refusal(waiter, self._in_vain) from error
            raise
        place.began = self.clock.now()

    def refuse_hopeless(
        self, kind: str, time_left_s: float, *, unless: Callable[[], bool]
    ) -> None:
        """Raise TooManyRequests if `serve` would at once, as things stand, unless that holds.

        So it does for what is late already, which `serve` may let an idle instance have: whoever
        waited for a busy service should not keep it busy, and what is late later on has been paid
        for, and shows that something is wrong.
        """
        asked = _Asked((kind, 1.0), self.clock.now(), time_left_s)
        if len(self._waiting) >= self.limit and not self._late(asked.arrived):
            reason = self._full
        elif self.policy.sheds and (time_left_s <= LEAST_LEFT_S or self._is_hopeless(asked)):
            reason = self._in_vain
        else:
            return
        if not unless():
            raise self._refusal(asked, reason)

    def load(self) -> TierLoad:
        """Return how hard the instances work at this moment."""
        return TierLoad(
            waiting=sum(not waiter.turn.done() for waiter in self._waiting),
            places=len(self._places),
            workers=len({address for address, _ in self._places}),
        )

    def figures(self) -> QueueFigures:
        """Return what is known at this moment."""
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
        now, full = waiter.arrived, len(self._waiting) >= self.limit
        late = self._late(now)
        if full and not late:
            raise self._refusal(waiter, self._full)
        if self.policy.sheds and self._is_hopeless(waiter):
            raise self._refusal(waiter, self._in_vain)
        kept = 0 if self.policy.sheds else len(self._places)
        for other in late[: max(len(late) - kept, int(full))]:
            self._give_up(other, f"tier {self.tier} could not serve it before its deadline")
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

    def _late(self, now: float) -> list[_Waiter]:
        """Return those who wait past their deadline, the longest first."""
        waiting = (waiter for waiter in self._waiting if not waiter.turn.done())
        return [waiter for waiter in waiting if now - waiter.arrived > waiter.qos_s]

    def _is_hopeless(self, asked: _Asked) -> bool:
        """Return whether a request that comes now will not be in time.

        It will not if no instance were done with it in time, were it the next; nor, where all are
        alike, if the work before it takes too long. Where they are not, that is a lower bound:
        work is taken to be spread evenly, at its seconds on the fastest. What is foreseen turns
        nobody away from an idle instance that nobody waits for: only a request can tell whether it
        still holds.
        """
        now, places = asked.arrived, self._places.values()
        alone = not self._waiting and any(place.idle for place in places)
        if asked.qos_s == inf or not places or alone:
            return False
        names = {place.name for place in places}
        own_s = {name: self.latencies.predict(asked.request, name) for name in names}
        asked.work_s = min(self.latencies.mean(asked.request, name) for name in names)
        busy_s = [place.busy_s(now) for place in places]
        done_s = min(b + own_s[place.name] for b, place in zip(busy_s, places, strict=True))
        due = now + asked.qos_s
        before_s = sum(
            other.work_s
            for other in self._waiting
            if not other.turn.done() and other.arrived + other.qos_s <= due
        )
        spread_s = (sum(busy_s) + before_s) / len(busy_s) + min(own_s.values())
        return max(done_s, spread_s) > asked.qos_s

    def _give_up(self, waiter: _Waiter, reason: str) -> None:
        del self._waiting[waiter]
        waiter.turn.set_exception(self._refusal(waiter, reason))

    @property
    def _full(self) -> str:
        return f"{len(self._waiting)} requests already wait for tier {self.tier}"

    @property
    def _in_vain(self) -> str:
        return f"tier {self.tier} cannot serve it before its deadline"

    def _refusal(self, waiter: _Asked, reason: str) -> TooManyRequests:
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
        if self.policy.sheds:
            left_s = state.qos_s - state.waited_s
            vain = (state.predicted_s + state.busy_s).min(axis=1) > left_s
            if vain.any() and not vain.all():  # of those in vain alone the policy may serve one
                for i in np.flatnonzero(vain).tolist():
                    self._give_up(waiting[i], self._in_vain)
                waiting = [waiter for waiter in waiting if not waiter.turn.done()]
                state = self._state(waiting, places, now)
        decision = self.policy.decide(state)
        for i, j in decision.starts:
            self._start(waiting[i], places[j], now, float(state.predicted_s[i, j]))
        for waiter in waiting:
            waiter.planned = None
        for i, j in decision.planned:
            waiting[i].planned = places[j].key
        for i in decision.rejected:
            self._give_up(waiting[i], self._in_vain)

    def _start(self, waiter: _Waiter, place: _Place, now: float, predicted_s: float) -> None:
        place.idle = False
        place.began, place.predicted_s = now, predicted_s
        del self._waiting[waiter]
        waiter.turn.set_result(place)

    def _state(self, waiting: Sequence[_Asked], places: list[_Place], now: float) -> DispatchState:
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

    def _leave_alone(self, address: str) -> None:
        """Give nobody a place at an instance that was lost until it answers again."""
        for place in self._places.values():
            if place.idle and place.key[0] == address:
                place.idle = False
                self._recover(place)

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
