"""A gate that keeps within rate limits, for threads and for one event loop, from one core.

The one rule: a waiting call has nothing of the endpoints that come later in the alphabet, so two
that need the same endpoints never wait for each other.

Asking the leases may take a round trip to a database: it is done outside the lock, by one thread
at a time for each endpoint, and never on an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Self

from circinus.pipelines.clock import Clock, Waits
from circinus.pipelines.errors import Stopped, Unavailable
from circinus.pipelines.execution.calling import Permit
from circinus.pipelines.model.endpoints import NOTHING_USED, RateLimits, Usage
from circinus.profiler.leases import LeaseReport, Leases
from circinus.profiler.limiting import Ask, Limiter

_LOOK_S = 0.1  # between two looks at whether to stop
_STOPPED = "nothing is called any more"


@dataclass(eq=False, slots=True)
class PendingAttempt:
    """An attempt that would call endpoints: it has, or waits for, one after the other."""

    most: Mapping[str, Usage]
    ticket: str
    ahead: list[str]  # limited endpoints that it has not requested, the last one first
    asks: list[tuple[Limiter, Ask]] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        """Whether the endpoint requested last is not had yet."""
        return bool(self.asks) and not self.asks[-1][1].goes


@dataclass(slots=True)
class RateAdmission:
    """What both gates do without waiting: ask, look, exchange, settle. Threads may share it.

    The holder is a name that no other process has that shares the leases.
    """

    limits: Mapping[str, RateLimits]  # by endpoint; one that is not there has none
    leases: Leases
    clock: Clock
    holder: str
    changed: threading.Condition = field(default_factory=threading.Condition, init=False)
    _limiters: dict[str, Limiter] = field(default_factory=dict, init=False, repr=False)
    _under_way: dict[str, PendingAttempt] = field(default_factory=dict, init=False, repr=False)
    _tickets: Iterator[int] = field(default_factory=count, init=False, repr=False)

    def ask(self, most: Mapping[str, Usage]) -> PendingAttempt:
        """Line up an attempt; InvalidInput if it may use more than a whole limit."""
        limited = (name for name in most if self.limits.get(name, RateLimits()) != RateLimits())
        with self.changed:
            ticket = f"{self.holder}/{next(self._tickets)}"
            pending = PendingAttempt(most, ticket, sorted(limited, reverse=True))
            self._under_way[ticket] = pending
        try:
            self.wait_s(pending)
        except BaseException:
            self.give_up(pending)
            raise
        return pending

    def wait_s(self, pending: PendingAttempt) -> float | None:
        """Return the seconds after which to look again, 0 if an exchange is due; None: it may go.

        InvalidInput if it may use more than a whole limit.
        """
        with self.changed:
            now = self.clock.now()
            while not pending.waits and pending.ahead:
                name = pending.ahead[-1]
                limiter = self._limiter(name)
                pending.asks.append((limiter, limiter.ask(pending.most[name], now)))
                pending.ahead.pop()
            return pending.asks[-1][0].wait_s(now) if pending.waits else None

    def lacking(self, pending: PendingAttempt) -> str:
        """Return what an attempt waits for, in words."""
        with self.changed:
            waiting = ((limiter, ask) for limiter, ask in pending.asks if not ask.goes)
            return " and ".join(limiter.lacking(ask) for limiter, ask in waiting)

    def due_s(self) -> float:
        """Return the seconds after which an exchange may be due; 0: it is."""
        with self.changed:
            now, every = self.clock.now(), self._limiters.values()
            if any(each.due(now) for each in every):
                return 0.0
            return min((each.wait_s(now) for each in every), default=inf)

    def exchange(self) -> bool:
        """Exchange with the leases wherever that is due; return whether it was.

        Unavailable if they cannot be reached; what is in hand may be used while it is good.
        """
        with self.changed:
            now = self.clock.now()
            due = [each for each in self._limiters.values() if each.due(now)]
            reports = [(each, each.report(now)) for each in due]
        self._exchange(reports)
        return bool(reports)

    def settle(self, ticket: str, used: Mapping[str, Usage]) -> None:
        """Record what an attempt used by endpoint, once; unknown tickets have nothing."""
        with self.changed:
            pending = self._under_way.pop(ticket, None)
            if pending is None:
                return
            now = self.clock.now()
            for limiter, ask in pending.asks:
                if ask.goes:
                    limiter.settle(ask, used.get(limiter.endpoint, NOTHING_USED), now)
                else:
                    limiter.drop(ask, now)
            self.changed.notify_all()

    def give_up(self, pending: PendingAttempt) -> None:
        """Forget an attempt that is not made."""
        self.settle(pending.ticket, {})

    def close(self) -> None:
        """Return all that is in hand, so that others need not wait until it lapses."""
        with self.changed:
            now = self.clock.now()
            free = [each for each in self._limiters.values() if not each.is_exchanging]
            reports = [(each, each.report(now, last=True)) for each in free]
        try:
            self._exchange(reports)
        except Unavailable:
            return  # it lapses

    def _exchange(self, reports: Sequence[tuple[Limiter, LeaseReport]]) -> None:
        left = list(reports)
        try:
            while left:
                limiter, report = left[0]
                reply = self.leases.exchange(report)
                with self.changed:
                    limiter.complete(reply, self.clock.now())
                    self.changed.notify_all()
                left.pop(0)
        finally:
            with self.changed:
                for limiter, _ in left:
                    limiter.failed(self.clock.now())
                self.changed.notify_all()

    def _limiter(self, name: str) -> Limiter:
        if name not in self._limiters:
            limits, times = self.limits[name], self.leases.times
            self._limiters[name] = Limiter(name, limits, self.holder, times)
        return self._limiters[name]


class RateGate:
    """A `PermitGate` that waits until rate limits let an attempt leave, first come, first served.

    While leases cannot be reached it waits, too. A context manager: inside, a thread reports to
    the leases that this holder lives, and at the end what is in hand is given back. It
    polls `stop` ten times a second; `pause` waits for a change, or so many seconds at most.
    """

    def __init__(
        self,
        admission: RateAdmission,
        stop: Callable[[], bool] = lambda: False,
        pause: Callable[[threading.Condition, float], object] = threading.Condition.wait,
    ) -> None:
        self.waits = Waits(admission.clock)
        """What was waited for."""
        self._admission = admission
        self._stop = stop
        self._pause = pause
        self._over = threading.Event()
        self._beats = threading.Thread(target=self._beat_on, name="rate-limits", daemon=True)

    def __enter__(self) -> Self:
        self._beats.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._beats.join()
        self._admission.close()

    def stop_when(self, over: Callable[[], bool]) -> None:
        """Raise Stopped, in place of waiting for a permit, once `over` is true."""
        self._stop = over

    def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Wait for leave, see `Gate.admit`; InvalidInput if it may use more than a whole limit."""
        pending = self._admission.ask(most)
        try:
            while not self._goes(pending):
                with self.waits.during(self._admission.lacking(pending)):
                    self.beat()
        except BaseException:
            self._admission.give_up(pending)
            raise
        return Permit(operator=operator, most=most, ticket=pending.ticket)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Return what an attempt did not use, see `Gate.settle`."""
        self._admission.settle(permit.ticket, used)
        self.beat()

    def beat(self) -> None:
        """Exchange what is due; called now and then it reports that this holder lives."""
        with suppress(Unavailable):  # it is tried again; meanwhile what is in hand is used up
            self._admission.exchange()

    def _goes(self, pending: PendingAttempt) -> bool:
        """Wait until it may go, or an exchange is due."""
        with self._admission.changed:
            while (wait_s := self._admission.wait_s(pending)) is not None:
                if self._stop():
                    raise Stopped(_STOPPED)
                if wait_s == 0:
                    return False
                with self.waits.during(self._admission.lacking(pending)):
                    self._pause(self._admission.changed, min(wait_s, _LOOK_S))
        return True

    def _beat_on(self) -> None:
        while not self._over.wait(self._admission.leases.times.use_s / 2):
            self.beat()


class AsyncRateGate:
    """The same for attempts that one event loop makes, which it never blocks.

    An asynchronous context manager, inside which a task exchanges with the leases, in threads.
    Not safe to share between loops.
    """

    def __init__(self, admission: RateAdmission) -> None:
        self._admission = admission
        self._changed = asyncio.Event()
        self._wanted = asyncio.Event()  # something may be due
        self._supply: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._supply = asyncio.create_task(self._supply_on())
        self._supply.add_done_callback(lambda _: self._tell())
        return self

    async def __aexit__(self, *raised: object) -> None:
        if self._supply is not None:
            self._supply.cancel()
            await asyncio.gather(self._supply, return_exceptions=True)
        await asyncio.to_thread(self._admission.close)

    async def admit(self, operator: str, most: Mapping[str, Usage]) -> Permit:
        """Return leave as soon as the limits allow it; cancelled, it leaves its place.

        InvalidInput if it may use more than a whole limit.
        """
        pending = self._admission.ask(most)
        try:
            while self._admission.wait_s(pending) is not None:
                if self._supply is not None and self._supply.done():
                    await self._supply  # raises what ended it: no call would ever go
                self._wanted.set()
                await self._changed.wait()
        except BaseException:
            self._admission.give_up(pending)
            self._tell()
            raise
        return Permit(operator=operator, most=most, ticket=pending.ticket)

    def settle(self, permit: Permit, used: Mapping[str, Usage]) -> None:
        """Record what an attempt used, without waiting."""
        self._admission.settle(permit.ticket, used)
        self._tell()

    def _tell(self) -> None:
        self._wanted.set()
        self._changed.set()
        self._changed = asyncio.Event()  # for those who wait from now on

    async def _supply_on(self) -> None:
        while True:
            self._wanted.clear()
            due_s = self._admission.due_s()
            if due_s > 0:
                wait_s = min(due_s, self._admission.leases.times.use_s / 2)
                # Not `wait_for`: that may swallow its cancelling when it is wanted just then.
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wanted.wait()
                continue
            with suppress(Unavailable):
                await asyncio.to_thread(self._admission.exchange)
            self._tell()
