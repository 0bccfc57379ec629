"""What the requests of a deployment got lately, and how many come now.

Latencies are counted in buckets of times, each a fiftieth wider than the one before: a request
costs a few additions, however many there are, and a percentile is at most 2 % too high.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from math import ceil, exp, log
from typing import Final

from circinus.pipelines.slo import LatencyStatistic

SPANS_S: Final = (60.0, 600.0, 3600.0)
RATE_SPAN_S: Final = 10.0  # of the rate of arrivals: short enough to follow, long enough to count
_SLOT_S = 10.0  # how finely the past is forgotten
_STEP = log(1.02)  # between buckets
_LEAST_S = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Lately:
    """What requests got within so many seconds; none: nothing was answered."""

    span_s: float
    requests: int  # that were answered, turned away or failed
    in_time: int  # answered within the deadline
    turned_away: int
    failed: int
    goodput_per_s: float  # answers in time, over the span or as long as there is a deployment
    p50_s: float | None = None  # of the answered, from arrival
    p95_s: float | None = None
    p99_s: float | None = None


@dataclass(slots=True)
class _Slot:
    began: float
    buckets: Counter[int] = field(default_factory=Counter)
    in_time: int = 0
    turned_away: int = 0
    failed: int = 0


@dataclass(slots=True, eq=False)
class Traffic:
    """Counts what becomes of requests. Not safe to share between threads."""

    since: float  # seconds of the clock that later moments are of
    _slots: deque[_Slot] = field(default_factory=deque, init=False)  # the newest last
    # [second, how many came in it], the newest last
    _arrivals: deque[list[int]] = field(default_factory=deque, init=False)

    def arrived(self, at: float) -> None:
        """Count a request that came, whatever becomes of it."""
        second = int(at)
        if not self._arrivals or self._arrivals[-1][0] < second:
            self._arrivals.append([second, 0])
        self._arrivals[-1][1] += 1
        self._forget_arrivals(at)

    def arrivals_per_s(self, now: float) -> float:
        """Give how many requests a second came within the last `RATE_SPAN_S`."""
        self._forget_arrivals(now)
        return sum(count for _, count in self._arrivals) / RATE_SPAN_S

    def _forget_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= now - RATE_SPAN_S:
            self._arrivals.popleft()

    def answered(self, at: float, latency_s: float, *, in_time: bool) -> None:
        """Count an answer."""
        slot = self._slot(at)
        slot.buckets[ceil(log(max(latency_s, _LEAST_S)) / _STEP)] += 1
        slot.in_time += in_time

    def turned_away(self, at: float) -> None:
        """Count a request that was refused so that others are in time."""
        self._slot(at).turned_away += 1

    def failed(self, at: float) -> None:
        """Count a request that got another error."""
        self._slot(at).failed += 1

    def lately(self, now: float) -> tuple[Lately, ...]:
        """Give the figures of every span."""
        return tuple(self._within(span_s, now) for span_s in SPANS_S)

    def _within(self, span_s: float, now: float) -> Lately:
        slots = [slot for slot in self._slots if slot.began > now - span_s]
        buckets = Counter[int]()
        for slot in slots:
            buckets.update(slot.buckets)
        in_time = sum(slot.in_time for slot in slots)
        turned_away = sum(slot.turned_away for slot in slots)
        failed = sum(slot.failed for slot in slots)
        told_s = max(min(span_s, now - self.since), _SLOT_S)
        return Lately(
            span_s=span_s,
            requests=buckets.total() + turned_away + failed,
            in_time=in_time,
            turned_away=turned_away,
            failed=failed,
            goodput_per_s=in_time / told_s,
            p50_s=_percentile(buckets, LatencyStatistic.P50),
            p95_s=_percentile(buckets, LatencyStatistic.P95),
            p99_s=_percentile(buckets, LatencyStatistic.P99),
        )

    def _slot(self, at: float) -> _Slot:
        began = at - at % _SLOT_S
        if not self._slots or self._slots[-1].began < began:
            self._slots.append(_Slot(began))
            while self._slots[0].began <= at - SPANS_S[-1]:
                self._slots.popleft()
        return self._slots[-1]


def _percentile(buckets: Counter[int], which: LatencyStatistic) -> float | None:
    """Give the end of the bucket that holds an inverted distribution function; None of nothing."""
    rank = ceil((which.quantile or 0.0) * buckets.total())
    for bucket in sorted(buckets):
        rank -= buckets[bucket]
        if rank <= 0:
            return exp(bucket * _STEP)
    return None
