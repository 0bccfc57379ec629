"""The rate limiter of one endpoint for one holder: who may call next, of what was leased.

Calls take their turns in the order of their requests: a small one that could go does not pass a
large one that cannot yet, or a stream of small ones would hold that up for ever. The one rule: a
call uses what is in hand and still good, and what it may use at most is taken from that before
it leaves; what it did not use is in hand again when it ended.

Every method gets the time; nothing here waits, locks or calls others. See `profiler.leases` for
how no window of the server holds more than the limit.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, fields
from math import floor, inf

from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.endpoints import RateLimits, Usage
from circinus.profiler.leases import (
    NO_ALLOWANCE,
    Allowance,
    EndedCalls,
    LeaseReply,
    LeaseReport,
    LeaseTimes,
)

_BLOCKS = 20
"""A block leased ahead of use is this part of a limit: few round trips, and no holder hoards."""


@dataclass(eq=False, slots=True)
class Ask:
    """One attempt that would call the endpoint, waiting or under way."""

    most: Allowance  # what it may use
    at: float  # when it was requested
    goes: bool = False  # whether it may leave


@dataclass(slots=True)
class Limiter:
    """Returns calls of one endpoint their turns; for one thread at a time.

    Its owner exchanges with the leases whenever `due` is true: `report`, then `took` with
    the reply, or `failed`. In between it may be used.
    """

    endpoint: str
    limits: RateLimits
    holder: str  # unique among all who share the limits
    times: LeaseTimes
    _waiting: deque[Ask] = field(default_factory=deque, init=False)
    _in_hand: Allowance = field(default=NO_ALLOWANCE, init=False)
    _under_way: Allowance = field(default=NO_ALLOWANCE, init=False)
    _ended: list[tuple[float, Allowance]] = field(default_factory=list, init=False)
    _exchange: _Exchange | None = field(default=None, init=False)  # an exchange is under way
    _known: bool = field(default=False, init=False)  # whether others count something of it
    _contended: bool = field(default=False, init=False)
    _good_until: float = field(default=-inf, init=False)  # what is in hand is its own
    _fresh_until: float = field(default=-inf, init=False)  # and need not be requested again
    _look_at: float = field(default=-inf, init=False)  # when asking again is worth while
    _exchanged_at: float = field(default=-inf, init=False)

    @property
    def is_exchanging(self) -> bool:
        """Whether an exchange is under way."""
        return self._exchange is not None

    def ask(self, most: Usage, now: float) -> Ask:
        """Line up a call with the most that it may use; it may go at once.

        An attempt of several calls may make them all at once, or with as many slots as there are.
        InvalidInput if it is more than the whole limit, which it then could never have.
        """
        limit = Allowance.of(self.limits)
        slots = min(most.calls, limit.slots)
        most_used = Allowance(most.calls, most.tokens, slots)
        for each, name in zip(fields(RateLimits), Allowance._fields, strict=True):
            bound, wanted = getattr(limit, name), getattr(most_used, name)
            rule = f"must be at least the {name} that one attempt may use, {wanted:g}"
            if not wanted <= bound:
                where = f"endpoint {self.endpoint}.limits.{each.name}"
                raise InvalidInput.of(where, rule, getattr(self.limits, each.name))
        ask = Ask(self._limited(most_used), now)
        self._waiting.append(ask)
        self._serve(now)
        return ask

    def lacking(self, ask: Ask) -> str:
        """Return which limits a call waits for, in words."""
        figures = zip(fields(RateLimits), ask.most, self._in_hand, strict=True)
        limited = [each for each in figures if getattr(self.limits, each[0].name) is not None]
        short = [each for each in limited if each[1] > each[2]] or limited
        names = [each.name for each, *_ in short]
        return f"{' and '.join(names).replace('_', ' ')} of endpoint {self.endpoint}"

    def drop(self, ask: Ask, now: float) -> None:
        """Forget a call that does not wait any more; nothing, if it went already."""
        if not ask.goes and ask in self._waiting:
            self._waiting.remove(ask)
            self._look_at = now  # what the next one lacks is something else
            self._serve(now)

    def settle(self, ask: Ask, used: Usage, now: float) -> None:
        """Record what a call used that has ended."""
        spent = self._limited(Allowance(used.calls, used.tokens))
        self._under_way = self._under_way.minus(ask.most)
        left = ask.most.minus(spent).most(NO_ALLOWANCE)  # it may have used more than it declared
        self._in_hand = self._in_hand.plus(left)
        if spent != NO_ALLOWANCE:
            self._ended.append((now, spent))
        # Others wait for what it gives back, or it may do for what is waiting here.
        soon = now if self._contended else max(now, self._exchanged_at + self.times.look_s)
        self._look_at = min(self._look_at, soon)
        self._serve(now)

    def due(self, now: float) -> bool:
        """Return whether an exchange is due."""
        if self._exchange is not None:
            return False
        if self._waiting:
            return now >= self._look_at
        if not self._known:
            return False
        in_hand = self._in_hand != NO_ALLOWANCE
        after_s = self.times.use_s if in_hand else self.times.lapse_s / 3
        return (self._contended and in_hand) or now >= self._exchanged_at + after_s

    def wait_s(self, now: float) -> float:
        """Return how long until an exchange is due, as far as is known; infinite: none."""
        if self._exchange is not None or not self._waiting:
            return inf
        return max(self._look_at - now, 0.0)

    def report(self, now: float, *, last: bool = False) -> LeaseReport:
        """Begin an exchange; at the last one all that is in hand is given back.

        What is in hand goes back where a call here or elsewhere waits, and where it was not used:
        a holder that keeps some while it waits for more would hold up others that do the same.
        """
        stale = self._waiting or self._contended or now >= self._fresh_until or last
        back = self._in_hand if stale else NO_ALLOWANCE
        self._in_hand = self._in_hand.minus(back)
        ended, self._ended = self._ended, []
        self._exchange = _Exchange(now, ended)
        held = self._in_hand.plus(self._under_way)
        oldest = self._waiting[0] if self._waiting and not last else None
        return LeaseReport(
            endpoint=self.endpoint,
            limits=self.limits,
            holder=self.holder,
            held=held,
            ended=_together(ended, now, self.times),
            needs=NO_ALLOWANCE if oldest is None else oldest.most,
            wants=NO_ALLOWANCE if oldest is None else self._wants(oldest),
            waited_s=0.0 if oldest is None else now - oldest.at,
        )

    def complete(self, reply: LeaseReply, now: float) -> None:
        """End an exchange that went well."""
        began = now if self._exchange is None else self._exchange.at
        self._exchange = None
        self._in_hand = self._in_hand.plus(reply.granted)
        self._contended = reply.contended
        self._good_until = began + reply.good_s
        self._exchanged_at = now
        refused = reply.wait_s > 0 and reply.contended  # then what comes free here is for others
        self._fresh_until = now if refused else now + self.times.use_s
        self._look_at = now + reply.wait_s
        self._serve(now)
        left = self._in_hand.plus(self._under_way)
        self._known = bool(self._ended) or bool(self._waiting) or left != NO_ALLOWANCE

    def failed(self, now: float) -> None:
        """End an exchange that failed: its outcome is unknown.

        What it gave back may be others' by now. What had ended is reported again.
        """
        if self._exchange is not None:
            self._ended = self._exchange.ended + self._ended
        self._exchange, self._known = None, True
        self._look_at = now + self.times.look_s
        self._exchanged_at = now
        self._serve(now)

    def _serve(self, now: float) -> None:
        if now >= self._good_until:
            self._in_hand = NO_ALLOWANCE
        while self._waiting:
            ask = self._waiting[0]
            if not (ask.most.within(self._in_hand) and now < self._fresh_until):
                break
            self._waiting.popleft()
            self._in_hand = self._in_hand.minus(ask.most)
            self._under_way = self._under_way.plus(ask.most)
            ask.goes = True

    def _limited(self, amount: Allowance) -> Allowance:
        """Return what of it is counted: what has no limit is not."""
        pairs = zip(amount, Allowance.of(self.limits), strict=True)
        return Allowance(*(0.0 if limit == inf else value for value, limit in pairs))

    def _wants(self, oldest: Ask) -> Allowance:
        """Return what would do for a while: for the oldest call, those behind it, and a block."""
        limit = self._limited(Allowance.of(self.limits))
        all_waiting = NO_ALLOWANCE
        for ask in self._waiting:
            all_waiting = all_waiting.plus(ask.most)
        block = Allowance(*(floor(each / _BLOCKS) for each in limit))
        several = Allowance(*(4 * each for each in block))
        wanted = oldest.most.most(all_waiting.least(several)).plus(block._replace(slots=0.0))
        slots = oldest.most.slots + limit.slots // 4
        wanted = wanted._replace(slots=min(all_waiting.slots, slots))
        return wanted.least(limit).most(oldest.most)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """The content of an exchange under way."""

    at: float
    ended: list[tuple[float, Allowance]]


def _together(
    ended: list[tuple[float, Allowance]], now: float, times: LeaseTimes
) -> tuple[EndedCalls, ...]:
    """Return what has ended with what ended soon before or after it: few records."""
    by_grain: dict[int, EndedCalls] = {}
    for at, spent in ended:
        ago_s = now - at
        grain = floor(ago_s / times.grain_s)
        before = by_grain.get(grain, EndedCalls(ago_s, 0.0, 0.0))
        by_grain[grain] = EndedCalls(
            min(ago_s, before.ago_s),
            before.requests + spent.requests,
            before.tokens + spent.tokens,
        )
    return tuple(by_grain.values())
