"""What the requests of a deployment got lately, and how many come now.

Latencies are counted in buckets of times, each a fiftieth wider than the one before: a request
costs a few additions, however many there are, and a percentile is at most 2 % too high. Who looks
costs little: the sums of each span follow what comes into it and what leaves it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, inf, log
from typing import Final

from circinus.pipelines.model.slo import LatencyStatistic

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCounts:
    """What was counted within a span: sums, so that those of several dispatchers add up."""

    span_s: float
    told_s: float  # of it, as long as there is a deployment
    buckets: Mapping[int, int]  # answers, by the number of their latency's bucket
    in_time: int
    turned_away: int
    failed: int

    def lately(self) -> Lately:
        """Return the figures."""
        buckets = Counter(self.buckets)
        p50_s, p95_s, p99_s = _percentiles(buckets)
        return Lately(
            span_s=self.span_s,
            requests=buckets.total() + self.turned_away + self.failed,
            in_time=self.in_time,
            turned_away=self.turned_away,
            failed=self.failed,
            goodput_per_s=self.in_time / self.told_s,
            p50_s=p50_s,
            p95_s=p95_s,
            p99_s=p99_s,
        )


def added(counts: Iterable[SpanCounts]) -> SpanCounts:
    """Return the sums of counts of one span; there is at least one."""
    first, *others = counts
    buckets, told = Counter(first.buckets), (first, *others)
    for each in others:
        buckets.update(each.buckets)
    return SpanCounts(
        span_s=first.span_s,
        told_s=max(each.told_s for each in told),
        buckets=buckets,
        in_time=sum(each.in_time for each in told),
        turned_away=sum(each.turned_away for each in told),
        failed=sum(each.failed for each in told),
    )


@dataclass(slots=True)
class _Counts:
    buckets: Counter[int] = field(default_factory=Counter)
    in_time: int = 0
    turned_away: int = 0
    failed: int = 0

    def subtract(self, other: _Counts) -> None:
        self.in_time -= other.in_time
        self.turned_away -= other.turned_away
        self.failed -= other.failed
        for bucket, count in other.buckets.items():
            self.buckets[bucket] -= count
            if not self.buckets[bucket]:
                del self.buckets[bucket]


@dataclass(slots=True)
class _Span:
    """The last so many seconds: what was counted in them, up to date with every request."""

    length_s: float
    sums: _Counts = field(default_factory=_Counts)
    slots: deque[tuple[float, _Counts]] = field(default_factory=deque)  # when each began

    def forget(self, now: float) -> None:
        while self.slots and self.slots[0][0] <= now - self.length_s:
            self.sums.subtract(self.slots.popleft()[1])


@dataclass(slots=True, eq=False)
class Traffic:
    """Counts what becomes of requests. Not safe to share between threads."""

    since: float  # seconds of the clock that later moments are of
    _spans: tuple[_Span, ...] = field(default_factory=lambda: (*map(_Span, SPANS_S),), init=False)
    _slot: tuple[float, _Counts] = field(default_factory=lambda: (-inf, _Counts()), init=False)
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
        """Return how many requests a second came within the last `RATE_SPAN_S`."""
        self._forget_arrivals(now)
        return sum(count for _, count in self._arrivals) / RATE_SPAN_S

    def _forget_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= now - RATE_SPAN_S:
            self._arrivals.popleft()

    def answered(self, at: float, latency_s: float, *, in_time: bool) -> None:
        """Count an answer."""
        bucket = ceil(log(max(latency_s, _LEAST_S)) / _STEP)
        for counts in self._counting(at):
            counts.buckets[bucket] += 1
            counts.in_time += in_time

    def turned_away(self, at: float) -> None:
        """Count a request that was refused so that others are in time."""
        for counts in self._counting(at):
            counts.turned_away += 1

    def failed(self, at: float) -> None:
        """Count a request that got another error."""
        for counts in self._counting(at):
            counts.failed += 1

    def lately(self, now: float) -> tuple[Lately, ...]:
        """Return the figures of every span."""
        return tuple(counts.lately() for counts in self.counts(now))

    def counts(self, now: float) -> tuple[SpanCounts, ...]:
        """Return what the figures of every span are made of, as they are: not to be kept."""
        return tuple(self._within(span, now) for span in self._spans)

    def _within(self, span: _Span, now: float) -> SpanCounts:
        span.forget(now)
        sums = span.sums
        return SpanCounts(
            span_s=span.length_s,
            told_s=max(min(span.length_s, now - self.since), _SLOT_S),
            buckets=sums.buckets,
            in_time=sums.in_time,
            turned_away=sums.turned_away,
            failed=sums.failed,
        )

    def _counting(self, at: float) -> tuple[_Counts, ...]:
        """Return all that counts what happens at a moment."""
        began = at - at % _SLOT_S
        if self._slot[0] < began:
            self._slot = (began, _Counts())
            for span in self._spans:
                span.forget(at)
                span.slots.append(self._slot)
        return (self._slot[1], *(span.sums for span in self._spans))


def _percentiles(buckets: Counter[int]) -> Iterator[float | None]:
    """Yield for each the end of the bucket that holds an inverted distribution function.

    None where nothing is counted.
    """
    total, below, ordered = buckets.total(), 0, iter(sorted(buckets.items()))
    end: float | None = None
    for which in (LatencyStatistic.P50, LatencyStatistic.P95, LatencyStatistic.P99):
        rank = ceil((which.quantile or 0.0) * total)
        while below < rank:
            bucket, count = next(ordered)
            below, end = below + count, exp(bucket * _STEP)
        yield end
