"""Parts of rate limits, leased by all who call ahead of their calls.

    what is counted of a limit = what holders have in hand or under way + what was used up

A holder (a process, mostly) reports at each exchange what it still has and what has ended since,
and asks for more. The one rule: what a call may use is counted from before it leaves until a
window after it ended. A server counts a call somewhere between the two, so no window of the server
ever holds more than the limit: when the call leaves that is the last of a window, all others in it
are counted still.

An exchange is a pure function of records; memory and database only store them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf
from typing import NamedTuple, Protocol

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock
from circinus.pipelines.model.endpoints import RateLimits

_GRAINS = 120  # parts of a window, by which what was used up is put together: 0.8 % of waiting
_SHORTEST_WAIT_S = 1e-3
_LONGEST_LOOK = 2  # times the shortest, of those far back in the line


class Allowance(NamedTuple):
    """A part of what the limits of an endpoint allow, or all of it."""

    requests: float = 0.0  # that begin within a window
    tokens: float = 0.0  # read and written within a window
    slots: float = 0.0  # calls under way at once

    def plus(self, other: Allowance) -> Allowance:
        """Return both together."""
        return Allowance(*(a + b for a, b in zip(self, other, strict=True)))

    def minus(self, other: Allowance) -> Allowance:
        """Return what is left without the other; negative where there was less."""
        return Allowance(*(a - b for a, b in zip(self, other, strict=True)))

    def least(self, other: Allowance) -> Allowance:
        """Return the smaller of both in each."""
        return Allowance(*map(min, self, other))

    def most(self, other: Allowance) -> Allowance:
        """Return the larger of both in each."""
        return Allowance(*map(max, self, other))

    def within(self, other: Allowance) -> bool:
        """Return whether the other is at least as large in each."""
        return all(a <= b for a, b in zip(self, other, strict=True))

    @classmethod
    def of(cls, limits: RateLimits) -> Allowance:
        """Return all that limits allow; infinite where there is none."""
        each = (limits.requests_per_minute, limits.tokens_per_minute, limits.concurrent)
        return cls(*(inf if limit is None else float(limit) for limit in each))


NO_ALLOWANCE = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long what is leased is good for: all follow from the window of the limits."""

    window_s: float = 60.0  # `> 0`; others than 60 s are for tests, and count limits per window

    def __post_init__(self) -> None:
        checks.positive("window_s", self.window_s)

    @property
    def use_s(self) -> float:
        """Seconds that what is in hand may lie unused before others may have it.

        Short, so that no holder hoards; long against a round trip to a database.
        """
        return self.window_s / 30

    @property
    def lapse_s(self) -> float:
        """Seconds after its last exchange for which a holder counts as alive, and may use it."""
        return self.window_s / 6

    @property
    def look_s(self) -> float:
        """Seconds between requests where it is unknown when others give something back."""
        return self.window_s / 400

    @property
    def grain_s(self) -> float:
        """Seconds by which what was used up may be counted too long."""
        return self.window_s / _GRAINS


class EndedCalls(NamedTuple):
    """What calls used that have ended."""

    ago_s: float  # since the end of the last of them, `>= 0`
    requests: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """What a holder reports of one endpoint, and requests."""

    endpoint: str
    limits: RateLimits
    holder: str
    held: Allowance  # in hand and under way, without what has ended; the rest is given back
    ended: tuple[EndedCalls, ...] = ()  # since the last exchange that went well
    needs: Allowance = NO_ALLOWANCE  # what its oldest waiting call lacks; none: no call waits
    wants: Allowance = NO_ALLOWANCE  # the most that it would have, `>= needs`
    waited_s: float = 0.0  # by the oldest waiting call, `>= 0`: the longest waiting is next


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReply:
    """What a holder gets."""

    granted: Allowance  # beside what it held; less than it needs only while it is the next one
    wait_s: float  # after which it is worth asking again; 0: it has what it needs
    good_s: float  # for how long all that it has is its own, from before the exchange on
    contended: bool  # whether others wait


class Leases(Protocol):
    """Keeps who has what of the limits. Threads may share it."""

    @property
    def times(self) -> LeaseTimes:
        """The times by which it counts."""

    def exchange(self, report: LeaseReport) -> LeaseReply:
        """Record the report of a holder and grant it what it may have, as one step for all.

        The longest waiting is served first: none gets what an older one waits for. Repeating a
        report is safe: at worst what has ended is counted twice. Unavailable if it cannot be
        reached; what was taken in is not known then.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A record: of a holder of an endpoint, or, without one, what was used up."""

    holder: str = ""  # empty: what was used up, by whomever, up to a moment
    grain: int = 0  # which moment, in grains of time
    counted: Allowance
    until: float  # the last moment at which a call of it may be counted by the server
    needs: Allowance = NO_ALLOWANCE  # what its oldest waiting call lacks
    since: float = 0.0  # when that request was made

    @property
    def key(self) -> tuple[str, int]:
        """Identifies it among the records of its endpoint."""
        return self.holder, self.grain


LeaseRecords = Mapping[tuple[str, int], LeaseRecord]
"""All records of one endpoint, by their keys."""


def exchanged(
    records: LeaseRecords, report: LeaseReport, now: float, times: LeaseTimes
) -> tuple[LeaseRecords, LeaseReply]:
    """Return the records after an exchange, and the reply; `now` by the clock of the records.

    What has run out is left out.
    """
    after = _with_ended(records, report, now, times)
    others = tuple(after.values())
    since = now - report.waited_s
    waiting = [each for each in others if each.needs != NO_ALLOWANCE and each.until > now]
    ahead = [each for each in waiting if (each.since, each.holder) < (since, report.holder)]
    free = Allowance.of(report.limits).minus(report.held)
    for each in others:
        free = free.minus(_counts(each, now))
    granted = _granted(report, free, ahead)
    own = LeaseRecord(
        holder=report.holder,
        counted=report.held.plus(granted),
        until=now + times.lapse_s,
        needs=report.needs.minus(granted).most(NO_ALLOWANCE),
        since=since,
    )
    if own.counted != NO_ALLOWANCE or own.needs != NO_ALLOWANCE:
        after[own.key] = own
    wait_s = _wait_s(own, others, ahead, free.minus(granted), now, times)
    reply = LeaseReply(
        granted=granted, wait_s=wait_s, good_s=times.lapse_s, contended=bool(waiting)
    )
    return after, reply


def _with_ended(
    before: LeaseRecords, report: LeaseReport, now: float, times: LeaseTimes
) -> dict[tuple[str, int], LeaseRecord]:
    """Return the records of others than the holder, with what has ended of its calls."""
    records = {
        key: each
        for key, each in before.items()
        if each.until + times.window_s > now and report.holder != each.holder
    }
    for ended in report.ended:
        grain = floor((now - ended.ago_s) / times.grain_s) + 1  # after the end: never too early
        used = LeaseRecord(
            grain=grain,
            counted=Allowance(ended.requests, ended.tokens),
            until=grain * times.grain_s,
        )
        same = records.get(used.key)
        if same is not None:
            used = replace(used, counted=used.counted.plus(same.counted))
        records[used.key] = used
    return records


def _counts(record: LeaseRecord, now: float) -> Allowance:
    """Return what a record counts; calls of a silent holder are no longer under way."""
    return record.counted if record.until > now else record.counted._replace(slots=0.0)


def _granted(report: LeaseReport, free: Allowance, ahead: Sequence[LeaseRecord]) -> Allowance:
    """Return what a holder gets of what is free, beside what those ahead of it wait for."""
    if report.needs == NO_ALLOWANCE:
        return NO_ALLOWANCE
    if not ahead and not report.needs.within(free):
        # The next one gathers what it needs; all others have to wait for it.
        return report.needs.least(free.most(NO_ALLOWANCE))
    for each in ahead:
        free = free.minus(each.needs)
    if report.needs.within(free):
        return report.wants.least(free).most(report.needs)
    return NO_ALLOWANCE


def _wait_s(
    own: LeaseRecord,
    others: Sequence[LeaseRecord],
    ahead: Sequence[LeaseRecord],
    free: Allowance,
    now: float,
    times: LeaseTimes,
) -> float:
    """Return how long until it gets what it lacks.

    Known where no other one has anything; else they may give something back at any time.
    """
    if own.needs == NO_ALLOWANCE:
        return 0.0
    if any(each.holder and each.counted != NO_ALLOWANCE for each in others):
        return times.look_s * min(1 + len(ahead), _LONGEST_LOOK)
    needs = own.needs
    for each in ahead:
        needs = needs.plus(each.needs)
    wait_s = times.lapse_s / 2  # it keeps its place by asking again
    for each in sorted(others, key=lambda record: record.until):
        free = free.plus(each.counted)
        if needs.within(free):
            return min(max(each.until + times.window_s - now, _SHORTEST_WAIT_S), wait_s)
    return wait_s


@dataclass(slots=True)
class MemoryLeases:
    """Leases of one process, for all its threads."""

    clock: Clock
    times: LeaseTimes = field(default_factory=LeaseTimes)
    _records: dict[str, LeaseRecords] = field(default_factory=dict, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def exchange(self, report: LeaseReport) -> LeaseReply:
        """Exchange under a lock, see `Leases.exchange`."""
        with self._lock:
            before = self._records.get(report.endpoint, {})
            after, reply = exchanged(before, report, self.clock.now(), self.times)
            self._records[report.endpoint] = after
        return reply
