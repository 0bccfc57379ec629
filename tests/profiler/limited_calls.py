"""Calls of several holders under rate limits, moment by moment, and what a server saw of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from circinus.pipelines.clock import ManualClock
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.leases import Leases
from circinus.profiler.limiting import Ask, Limiter

ENDPOINT = "gpt"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnCall:
    """A call as it will be, which nobody knows before."""

    holder: int = 0
    at: float = 0.0  # when it asks
    requests: int = 1  # at most
    made: int = 1  # of these
    most_tokens: float = 0.0
    tokens: float = 0.0  # `<= most_tokens`
    takes_s: float = 0.0
    counted: float = 0.0  # when the server counts it: 0: as it leaves, 1: as it ends

    @property
    def most(self) -> Usage:
        return Usage(calls=self.requests, input_tokens=self.most_tokens)

    @property
    def used(self) -> Usage:
        return Usage(calls=self.made, input_tokens=self.tokens)


@dataclass(slots=True)
class SeenCall:
    """A call that left."""

    drawn: DrawnCall
    left: float
    ended: float
    killed: bool = False

    @property
    def counted(self) -> float:
        meant = self.left + self.drawn.counted * self.drawn.takes_s
        return min(meant, self.ended)


@dataclass
class Schedule:
    """Runs drawn calls; holders reach the leases as late as said, or not at all for a while."""

    limits: RateLimits
    leases: Leases
    clock: ManualClock
    calls: Sequence[DrawnCall]
    way_s: float = 0.0  # from holder to leases, and back
    kills: dict[int, float] = field(default_factory=dict)  # holder -> when it dies
    away: tuple[float, float] = (inf, inf)  # from when until when leases cannot be reached
    is_lost: bool = False  # whether then only answers are lost
    seen: list[SeenCall] = field(default_factory=list)
    exchanges: int = 0

    def run(self) -> list[SeenCall]:
        """Return what left, in its order."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._ends_due = 0
        self._dead: set[int] = set()
        holders = sorted({call.holder for call in self.calls} | set(self.kills))
        times = self.leases.times
        self._limiters = {
            each: Limiter(ENDPOINT, self.limits, f"holder-{each}", times) for each in holders
        }
        self._open: dict[int, list[tuple[Ask, DrawnCall]]] = {each: [] for each in holders}
        self._busy: set[int] = set()
        self._waking: dict[int, float] = {}
        for call in self.calls:
            self._at(call.at, lambda call=call: self._arrives(call))  # type: ignore[misc]
        for holder, at in self.kills.items():
            self._at(at, lambda holder=holder: self._dies(holder))  # type: ignore[misc]
        while self._events:
            at, _, happens = heapq.heappop(self._events)
            self.clock.seconds = max(self.clock.seconds, at)
            happens()
            for holder in holders:
                self._goes_on(holder)
            assert self.exchanges < 100_000, "it never ends"
        waiting = sum(map(len, self._open.values()))
        assert waiting == 0, f"{waiting} calls wait for ever"
        return self.seen

    def _at(self, at: float, happens: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (at, self._serial, happens))

    def _arrives(self, call: DrawnCall) -> None:
        if call.holder not in self._dead:
            ask = self._limiters[call.holder].ask(call.most, self.clock.now())
            self._open[call.holder].append((ask, call))

    def _dies(self, holder: int) -> None:
        self._dead.add(holder)
        self._open[holder].clear()
        for seen in self.seen:
            if seen.drawn.holder == holder and seen.ended > self.clock.now():
                seen.ended, seen.killed = self.clock.now(), True

    def _goes_on(self, holder: int) -> None:
        if holder in self._dead:
            return
        limiter, now = self._limiters[holder], self.clock.now()
        for ask, call in [each for each in self._open[holder] if each[0].goes]:
            self._open[holder].remove((ask, call))
            seen = SeenCall(call, now, now + call.takes_s)
            self.seen.append(seen)
            self._ends_due += 1
            self._at(seen.ended, lambda ask=ask, seen=seen: self._ends(ask, seen))  # type: ignore[misc]
        if limiter.due(now):
            self._exchanges(holder)
        elif self._open[holder] and not limiter.is_exchanging:
            self._wakes(holder, now + max(limiter.wait_s(now), 1e-3))
        elif self._ends_due or any(self._open.values()):  # a beat, while anything goes on
            self._wakes(holder, now + self.leases.times.use_s / 2)

    def _wakes(self, holder: int, at: float) -> None:
        if not self.clock.now() < self._waking.get(holder, -inf) <= at:
            self._waking[holder] = at
            self._at(at, lambda: None)

    def _ends(self, ask: Ask, seen: SeenCall) -> None:
        self._ends_due -= 1
        if not seen.killed:
            limiter = self._limiters[seen.drawn.holder]
            limiter.settle(ask, seen.drawn.used, self.clock.now())

    def _exchanges(self, holder: int) -> None:
        self.exchanges += 1
        limiter = self._limiters[holder]
        report = limiter.report(self.clock.now())

        def arrives() -> None:
            is_away = self.away[0] <= self.clock.now() < self.away[1]
            reply = None if is_away and not self.is_lost else self.leases.exchange(report)
            reply = None if is_away else reply

            def is_back() -> None:
                if reply is None:
                    limiter.failed(self.clock.now())
                else:
                    limiter.complete(reply, self.clock.now())

            self._at(self.clock.now() + self.way_s, is_back)

        self._at(self.clock.now() + self.way_s, arrives)


def most_in_a_window(events: Iterable[tuple[float, float]], window_s: float) -> float:
    """Return the most that any window holds, closed at both ends, by trying all that begin or end.

    Events are (when, how much).
    """
    told = sorted(events)
    return max(
        (
            sum(amount for at, amount in told if start <= at <= start + window_s)
            for start, _ in told
        ),
        default=0.0,
    )


def most_at_once(seen: Sequence[SeenCall]) -> int:
    """Return the most calls under way at any time; one that ends as another leaves is over."""
    return max(
        (sum(b.left <= a.left < b.ended for b in seen) for a in seen),
        default=0,
    )
