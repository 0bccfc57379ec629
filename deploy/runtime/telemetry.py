"""Counts what becomes of a dispatcher's requests, for its report and for learners.

Latencies are counted in buckets of times, each a fiftieth wider than the one before: a request
costs a few additions, however many there are. Who reports costs little: the sums of each span
follow what comes into it and what leaves it. Nothing here is safe to share between threads.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import NamedTuple, TypeVar

from circinus.deploy.runtime.report import (
    LATEST_ANSWERS,
    SPANS_S,
    AnswerRow,
    DeploymentReport,
    LatestAnswers,
    QueueFigures,
    SpanCounts,
    bucket_of,
)
from circinus.scheduler.pool.monitor import TrafficChange, TrafficMonitor

RATE_SPAN_S = 10.0
"""Of the rate of arrivals: short enough to follow it, long enough to count."""
MOST_SAMPLES = 2_000
"""Samples that are held until they are reported, every second: of more the latest are."""
_SLOT_S = 10.0  # how finely the past is forgotten


class ArrivalSample(NamedTuple):
    """An arrival of a request."""

    at: float  # seconds, by a clock; in a replica's report: how many seconds ago
    size: float  # as its pipeline has it, in any unit
    waiting: int  # requests that it met


class ServiceSample(NamedTuple):
    """The seconds of a request on an instance."""

    tier: str
    kind: str  # see `TierLatencies`, as size and name
    size: float
    name: str  # of its type, or its address
    seconds: float


_Sample = TypeVar("_Sample")


@dataclass(slots=True, eq=False)
class TraceBuffer:
    """The latest samples of a dispatcher's own requests, and how many there were in all."""

    arrivals: deque[ArrivalSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    services: deque[ServiceSample] = field(default_factory=lambda: deque(maxlen=MOST_SAMPLES))
    arrival_count: int = 0
    service_count: int = 0

    def add_arrival(self, sample: ArrivalSample) -> None:
        """Add an arrival."""
        self.arrivals.append(sample)
        self.arrival_count += 1

    def add_service(self, sample: ServiceSample) -> None:
        """Add a sample of an instance."""
        self.services.append(sample)
        self.service_count += 1


def latest(samples: Collection[_Sample], count: int) -> Iterator[_Sample]:
    """Return the last so many samples, `>= 0`: all, if there were more than are held."""
    return islice(samples, max(len(samples) - count, 0), None)


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
    """Counts requests by what became of them, over the spans of a report."""

    since: float  # seconds of the clock that later moments are of
    _spans: tuple[_Span, ...] = field(default_factory=lambda: (*map(_Span, SPANS_S),), init=False)
    _slot: tuple[float, _Counts] = field(default_factory=lambda: (-inf, _Counts()), init=False)
    # [second, arrivals in it], the newest last
    _arrivals: deque[list[int]] = field(default_factory=deque, init=False)

    def arrived(self, at: float) -> None:
        """Count an arrival, whatever its outcome."""
        second = int(at)
        if not self._arrivals or self._arrivals[-1][0] < second:
            self._arrivals.append([second, 0])
        self._arrivals[-1][1] += 1
        self._forget_arrivals(at)

    def arrivals_per_s(self, now: float) -> float:
        """Return the arrivals per second within the last `RATE_SPAN_S`."""
        self._forget_arrivals(now)
        return sum(count for _, count in self._arrivals) / RATE_SPAN_S

    def _forget_arrivals(self, now: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= now - RATE_SPAN_S:
            self._arrivals.popleft()

    def answered(self, at: float, latency_s: float, *, in_time: bool) -> None:
        """Count an answer."""
        bucket = bucket_of(latency_s)
        for counts in self._counting(at):
            counts.buckets[bucket] += 1
            counts.in_time += in_time

    def failed(self, at: float, *, refused: bool = False) -> None:
        """Count a request that got an error, or was refused so that others are in time."""
        for counts in self._counting(at):
            counts.turned_away += refused
            counts.failed += not refused

    def spans(self, now: float) -> tuple[SpanCounts, ...]:
        """Return the counts of every span."""
        return tuple(self._within(span, now) for span in self._spans)

    def _within(self, span: _Span, now: float) -> SpanCounts:
        span.forget(now)
        sums = span.sums
        return SpanCounts(
            span_s=span.length_s,
            covered_s=max(min(span.length_s, now - self.since), _SLOT_S),
            buckets=dict(sums.buckets),
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


@dataclass(slots=True, eq=False)
class Telemetry:
    """Everything that a dispatcher counts of its requests."""

    plan_id: str
    tiers: tuple[str, ...]  # of the seconds of answers, in their order
    traffic: Traffic
    answered: int = 0
    errors: int = 0  # requests that failed, those refused left out
    refused: int = 0
    monitor: TrafficMonitor = field(default_factory=TrafficMonitor)
    trace: TraceBuffer = field(default_factory=TraceBuffer)  # not of what was ingested
    _rows: deque[AnswerRow] = field(
        default_factory=lambda: deque(maxlen=LATEST_ANSWERS), init=False
    )
    _newest: float = field(default=-inf, init=False)  # arrival that is known
    _changes: int = field(default=0, init=False)  # of the requests, by the monitor
    _last_change: TrafficChange | None = field(default=None, init=False)

    def add_arrival(self, sample: ArrivalSample) -> None:
        """Record an arrival at this dispatcher, once its size is known."""
        self.trace.add_arrival(sample)
        self._observe(sample)

    def ingest(self, arrivals: Iterable[ArrivalSample]) -> None:
        """Learn of requests to other dispatchers, by this one's clock and in order.

        One that arrived before others that are known is taken to have arrived with them.
        """
        for sample in arrivals:
            self._observe(sample)

    def _observe(self, sample: ArrivalSample) -> None:
        self._newest = max(self._newest, sample.at)
        change = self.monitor.observe(sample.size, self._newest, sample.waiting)
        if change is not None:
            self._changes, self._last_change = self._changes + 1, change

    def add_answer(self, row: AnswerRow, *, in_time: bool) -> None:
        """Count an answer."""
        self.answered += 1
        self._rows.append(row)
        at, _, sojourn_s, *_ = row
        self.traffic.answered(at, sojourn_s, in_time=in_time)

    def add_failure(self, at: float, *, refused: bool) -> None:
        """Count a request that got an error, or was refused so that others are in time."""
        self.refused += refused
        self.errors += not refused
        self.traffic.failed(at, refused=refused)

    def answers(self, now: float) -> LatestAnswers:
        """Return the latest answers."""
        return LatestAnswers(at=now, tiers=self.tiers, rows=tuple(self._rows))

    def report(self, now: float, queues: Mapping[str, QueueFigures]) -> DeploymentReport:
        """Return the report on all requests until now."""
        return DeploymentReport(
            plan_id=self.plan_id,
            serving_s=now - self.traffic.since,
            arrivals_per_s=self.traffic.arrivals_per_s(now),
            answered=self.answered,
            failed=self.errors + self.refused,
            answers=self.answers(now),
            spans=self.traffic.spans(now),
            queues=queues,
            changes=self._changes,
            known_requests=self.monitor.observed,
            last_change=self._last_change,
        )
