"""The requests of one deployment that wait for an instance of one tier.

The queue is bounded: what would only wait for its deadline is turned away at once. So are
late requests beyond one for each instance: after an overload they would take the time of those
that can still be in time. An instance serves one request at a time, or as many as its answers
say that it takes: it has a place for each, and to the policy a place is an instance. Which
request goes where is the policy's to say. A place that lost a request, or whose caller gave up, is
out until its instance answers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from deploy.errors import InstanceLost, TooManyRequests
from deploy.places import InstanceType, Place, PlaceKey, fleet_of, kind_at
from deploy.queue_figures import Counts, QueueFigures
from deploy.workers.client import Reply, WorkerClient
from pipelines.clock import Clock
from pipelines.errors import InvalidInput, OperatorFailed, Unavailable
from scheduler.dispatch.latency_model import LatencyLine
from scheduler.dispatch.learnt_latency import LearntLatency
from scheduler.dispatch.policy import (
    UNPLANNED,
    Decision,
    DispatchPolicy,
    DispatchState,
    Fleet,
    FloatArray,
)

_log = logging.getLogger(__name__)

_SETTLE_S = 60.0
_RECOVERY_PAUSE_S = 0.1


@dataclass(slots=True, eq=False)
class _Waiter:
    kind: str
    size: float
    arrived: float
    qos_s: float
    planned: PlaceKey | None = None
    turn: asyncio.Future[Place] = field(
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
        self._slots: dict[PlaceKey, Place] = {}
        self._waiting: dict[str, _Waiter] = {}
        self._fleet = Fleet.alike(0)
        self._model: dict[str, LearntLatency] = {}
        self._serials = count()
        self._counts = Counts()
        self._recoveries: set[asyncio.Task[None]] = set()

    def add(self, client: WorkerClient, type: InstanceType | None = None) -> None:
        """Take an instance into service."""
        self.remove(client.address)
        self._add_places(client, type or InstanceType(), 0, 1)

    def remove(self, address: str) -> None:
        """Take an instance out of service; what it has in hand goes on."""
        for key in [key for key in self._slots if key[0] == address]:
            del self._slots[key]
        self._fleet = fleet_of(self._slots.values())

    async def serve(
        self,
        kind: str,
        work: Callable[[WorkerClient], Awaitable[Reply]],
        *,
        time_left_s: float,
        size: float = 1.0,
    ) -> Served:
        """Give what an instance answers to `work`, once one is free for it.

        Args:
            kind: Requests of a kind take alike long.
            work: Calls the instance.
            time_left_s: Until the request's deadline, `> 0`.
            size: In any unit; larger requests of a kind take longer.

        Raises:
            TooManyRequests: If too many wait already, or it was given up so that others are in
                time.
            InstanceLost: If the instance went away.
        """
        arrived = self._clock.now()
        slot = await self._turn(_Waiter(kind, size, arrived, time_left_s))
        began = self._clock.now()
        try:
            reply = await work(slot.client)
        except (OperatorFailed, InvalidInput):
            self._free(slot)
            raise
        except BaseException as error:  # lost, late or cancelled: it may still be at work
            self._counts.lost += isinstance(error, InstanceLost)
            self._recover(slot)
            raise
        now = self._clock.now()
        self._counts.waited_s += began - arrived
        self._note(slot, now - began, now - arrived - time_left_s)
        self._learn(kind, size, slot, now - began)
        self._note_concurrency(slot, reply.concurrency)
        self._free(slot)
        return Served(reply, began - arrived)

    def figures(self) -> QueueFigures:
        """Give what is known at this moment."""
        counts = self._counts
        return QueueFigures(
            waiting=sum(1 for w in self._waiting.values() if not w.turn.done()),
            busy=tuple(
                dict.fromkeys(key[0] for key, slot in self._slots.items() if not slot.idle)
            ),
            idle=sum(slot.idle for slot in self._slots.values()),
            answered=counts.answered,
            late=counts.late,
            late_s=counts.late_s,
            late_max_s=counts.late_max_s,
            turned_away=counts.turned_away,
            lost=counts.lost,
            waited_s=counts.waited_s,
            predicted_s=counts.predicted_s,
            observed_s=counts.observed_s,
            drifts=sum(learnt.drifts for learnt in self._model.values()),
            observed_over_predicted=counts.ratio_sum / counts.ratios if counts.ratios else 1.0,
        )

    def learnt(self) -> dict[str, dict[str, object]]:
        """Give what was learnt of each kind, as JSON values for `recall`."""
        return {key: known.dump() for key, known in self._model.items()}

    def recall(self, learnt: Mapping[str, Mapping[str, object]]) -> None:
        """Go on from what an earlier queue learnt; what is none of it is left out."""
        for key, dumped in learnt.items():
            try:
                self._model[key] = LearntLatency.load(dumped)
            except InvalidInput as error:
                _log.warning("latency_not_recalled tier=%s kind=%s: %s", self._tier, key, error)

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

    async def _turn(self, waiter: _Waiter) -> Place:
        if len(self._waiting) >= self._limit and not self._gave_one_up():
            reason = f"{len(self._waiting)} requests already wait for tier {self._tier}"
            self._counts.turned_away += 1
            raise TooManyRequests(reason, retry_after_s=self._backlog_s(waiter))
        self._give_up_beyond(len(self._slots))
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

    def _gave_one_up(self) -> bool:
        """Turn away whoever has been late for longest, so that others can be in time."""
        before = len(self._waiting)
        self._give_up_beyond(max(len(self._late()) - 1, 0))
        return len(self._waiting) < before

    def _give_up_beyond(self, most: int) -> None:
        """Turn away those late for longest until at most so many late ones wait."""
        late = self._late()
        for key, waiter in late[: max(len(late) - most, 0)]:
            del self._waiting[key]
            self._refuse(waiter, f"tier {self._tier} could not serve it before its deadline")

    def _late(self) -> list[tuple[str, _Waiter]]:
        now = self._clock.now()
        return [
            (key, waiter)
            for key, waiter in self._waiting.items()
            if now - waiter.arrived > waiter.qos_s and not waiter.turn.done()
        ]

    def _refuse(self, waiter: _Waiter, reason: str) -> None:
        self._counts.turned_away += 1
        error = TooManyRequests(reason, retry_after_s=self._backlog_s(waiter))
        waiter.turn.set_exception(error)

    def _match(self) -> None:
        waiting = [(k, w) for k, w in self._waiting.items() if not w.turn.done()]
        slots = list(self._slots.values())
        if not waiting or not (self._policy.plans_ahead or any(slot.idle for slot in slots)):
            return
        now = self._clock.now()
        state = self._state([w for _, w in waiting], slots, now)
        decision = self._policy.decide(state)
        for i, j in decision.starts:
            key, waiter = waiting[i]
            slot = slots[j]
            slot.idle = False
            slot.began, slot.predicted_s = now, float(state.predicted_s[i, j])
            del self._waiting[key]
            waiter.turn.set_result(slot)
        self._note_the_rest(waiting, slots, decision)

    def _note_the_rest(
        self, waiting: list[tuple[str, _Waiter]], slots: list[Place], decision: Decision
    ) -> None:
        for _, waiter in waiting:
            waiter.planned = None
        for i, j in decision.planned:
            waiting[i][1].planned = slots[j].key
        for i in decision.rejected:
            key, waiter = waiting[i]
            del self._waiting[key]
            reason = f"tier {self._tier} cannot serve it before its deadline"
            self._refuse(waiter, reason)

    def _state(self, waiting: list[_Waiter], slots: list[Place], now: float) -> DispatchState:
        place = {slot.key: j for j, slot in enumerate(slots)}
        planned = [UNPLANNED if w.planned is None else place.get(w.planned, -1) for w in waiting]
        return DispatchState(
            np.array([max(now - w.arrived, 0.0) for w in waiting]),
            np.array([w.qos_s for w in waiting]),
            np.array([w.size for w in waiting]),
            np.array(planned, dtype=np.int64),
            self._predictions(waiting, slots),
            np.array([slot.busy_s(now) for slot in slots]),
            np.array([slot.idle for slot in slots], dtype=np.bool_),
            self._fleet,
        )

    def _predictions(self, waiting: list[_Waiter], slots: list[Place]) -> FloatArray:  # (m, n)
        columns: dict[str, list[float]] = {}  # instances of a name take alike long
        for slot in slots:
            if slot.name not in columns:
                columns[slot.name] = self._column(waiting, slot)
        return np.ascontiguousarray(np.array([columns[slot.name] for slot in slots]).T)

    def _column(self, waiting: list[_Waiter], slot: Place) -> list[float]:  # (m,)
        known: dict[tuple[str, float], float] = {}
        for waiter in waiting:
            key = waiter.kind, waiter.size
            if key not in known:
                known[key] = self._predicted(waiter, slot)
        return [known[waiter.kind, waiter.size] for waiter in waiting]

    def _predicted(self, waiter: _Waiter, slot: Place) -> float:
        learnt = self._model.get(kind_at(waiter.kind, slot))
        if learnt is None:
            return self._prior_s
        if self._policy.level is None:
            return learnt.predict(waiter.size)
        return learnt.quantile(self._policy.level, waiter.size)

    def _note(self, slot: Place, seconds: float, late_s: float) -> None:
        self._counts.answered += 1
        self._counts.late += late_s > 0
        self._counts.late_s += max(late_s, 0.0)
        self._counts.late_max_s = max(self._counts.late_max_s, late_s)
        self._counts.predicted_s += slot.predicted_s
        self._counts.observed_s += seconds
        if slot.predicted_s > 0:
            self._counts.ratio_sum += seconds / slot.predicted_s
            self._counts.ratios += 1

    def _note_concurrency(self, slot: Place, concurrency: int) -> None:
        if self._slots.get(slot.key) is slot:
            known = sum(key[0] == slot.client.address for key in self._slots)
            if concurrency > known:
                self._add_places(slot.client, slot.type, known, concurrency)

    def _add_places(self, client: WorkerClient, type: InstanceType, first: int, end: int) -> None:
        for number in range(first, end):
            slot = Place(client, type, number)
            self._slots[slot.key] = slot
        self._fleet = fleet_of(self._slots.values())
        self._match()

    def _learn(self, kind: str, size: float, slot: Place, seconds: float) -> None:
        key = kind_at(kind, slot)
        if key not in self._model:
            self._model[key] = LearntLatency(LatencyLine(prior_s=self._prior_s))
        drifts = self._model[key].drifts
        self._model[key].observe(seconds, size)
        if self._model[key].drifts > drifts:
            _log.warning("latency_drifted tier=%s kind=%s seconds=%s", self._tier, key, seconds)

    def _backlog_s(self, waiter: _Waiter) -> float:
        predicted = [self._predicted(waiter, slot) for slot in self._slots.values()]
        if not predicted:
            return 1.0
        return max(len(self._waiting), 1) * max(predicted) / len(predicted)

    def _free(self, slot: Place) -> None:
        slot.idle = True
        self._match()

    def _recover(self, slot: Place) -> None:
        task = asyncio.get_running_loop().create_task(self._settled(slot))
        self._recoveries.add(task)
        task.add_done_callback(self._recoveries.discard)

    async def _settled(self, slot: Place) -> None:
        while self._slots.get(slot.key) is slot:
            try:
                await slot.client.settle(timeout_s=_SETTLE_S)
            except Unavailable:
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                self._free(slot)
                return
