"""What the requests to one deployed plan got: one value, from its dispatcher to metrics and pages.

Reports of several dispatchers of a plan add up. A new figure is a field here, what two of it
add up to in `plus`, and where the dispatcher counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from math import ceil, exp, log
from typing import Any, Final, Protocol

import numpy as np

from circinus.pipelines.model.endpoints import NOTHING_USED, Usage
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.slo import LatencyStatistic
from circinus.scheduler.pool.monitor import TrafficChange

LATEST_ANSWERS = 400
"""Answers that are reported one by one. 348 bound a 99th percentile from both sides with 95 %."""
JUDGED_ANSWERS = 200
"""Latest answers that drifts are judged by."""
SPANS_S: Final = (60.0, 600.0, 3600.0)
_STEP = log(1.02)  # between buckets of latencies: a percentile is at most 2 % too high
_LEAST_S = 1e-6

AnswerRow = tuple[float, ...]
"""Time of an answer, `latency_s`, `sojourn_s`, `moved_s`, `usd`, and the seconds on each tier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestAnswers:
    """The latest answers, the oldest first. Its arrays have shape (n,)."""

    at: float = 0.0  # now, by the clock of the rows
    tiers: tuple[str, ...] = ()
    rows: tuple[AnswerRow, ...] = ()

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ago_s(self) -> FloatArray:
        """Seconds since each was sent."""
        return self.at - self._column(0)

    @property
    def latency_s(self) -> FloatArray:
        """Seconds of each, from having the request to having the output."""
        return self._column(1)

    @property
    def sojourn_s(self) -> FloatArray:
        """Seconds of each from the arrival of its request: reading that counts, too."""
        return self._column(2)

    @property
    def moved_s(self) -> FloatArray:
        """Seconds of each on the way: all but operators and waiting for an instance's turn."""
        return self._column(3)

    @property
    def usd(self) -> FloatArray:
        """US dollars that the calls of each cost."""
        return self._column(4)

    def tier_s(self, tier: str) -> FloatArray:
        """Return the seconds for which each kept instances of a tier busy."""
        return self._column(5 + self.tiers.index(tier))

    def _column(self, number: int) -> FloatArray:
        return np.array([row[number] for row in self.rows])

    def within(self, span_s: float) -> LatestAnswers:
        """Return those of the last so many seconds."""
        return replace(self, rows=tuple(row for row in self.rows if self.at - row[0] <= span_s))

    def latest(self, count: int) -> LatestAnswers:
        """Return the last so many, `>= 0`: all, if there are fewer."""
        return replace(self, rows=self.rows[max(len(self.rows) - count, 0) :])

    def elsewhere_s(self) -> dict[str, float]:
        """Return, of each tier, the mean seconds that answers spent elsewhere, waits left out."""
        if not self.rows:
            return {}
        busy = {tier: self.tier_s(tier) for tier in self.tiers}
        every = self.moved_s + sum(busy.values())
        return {tier: float(np.mean(every - busy[tier])) for tier in self.tiers}

    def on_clock(self, at: float) -> LatestAnswers:
        """Return them by another clock, on which it is `at` now."""
        late = at - self.at
        return replace(self, at=at, rows=tuple((row[0] + late, *row[1:]) for row in self.rows))

    def plus(self, other: LatestAnswers) -> LatestAnswers:
        """Return the latest of both, by the clock of these."""
        if not other.rows:
            return self
        rows = sorted((*self.rows, *other.on_clock(self.at).rows), key=lambda row: row[0])
        tiers = self.tiers or other.tiers
        return LatestAnswers(at=self.at, tiers=tiers, rows=tuple(rows[-LATEST_ANSWERS:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanCounts:
    """What requests got within so many seconds: sums, and figures that follow from them."""

    span_s: float
    covered_s: float  # of it, as long as there is a deployment
    # answers, by the number of their latency's bucket; latencies count from arrival
    buckets: Mapping[int, int] = field(default_factory=dict)
    in_time: int = 0  # answered within the deadline
    turned_away: int = 0
    failed: int = 0

    @property
    def requests(self) -> int:
        """Those that were answered, turned away or failed."""
        return sum(self.buckets.values()) + self.turned_away + self.failed

    @property
    def goodput_per_s(self) -> float:
        """Answers in time, over the span or as long as there is a deployment."""
        return self.in_time / self.covered_s

    @property
    def p50_s(self) -> float | None:
        """Median latency; None: nothing was answered."""
        return self._percentile(LatencyStatistic.P50)

    @property
    def p95_s(self) -> float | None:
        """95th percentile of latency; None: nothing was answered."""
        return self._percentile(LatencyStatistic.P95)

    @property
    def p99_s(self) -> float | None:
        """99th percentile of latency; None: nothing was answered."""
        return self._percentile(LatencyStatistic.P99)

    def _percentile(self, which: LatencyStatistic) -> float | None:
        """Return the end of the bucket that holds an inverted distribution function."""
        rank = ceil((which.quantile or 0.0) * sum(self.buckets.values()))
        below = 0
        for bucket, count in sorted(self.buckets.items()):
            below += count
            if below >= rank:
                return exp(bucket * _STEP)
        return None

    def plus(self, other: SpanCounts) -> SpanCounts:
        """Return the sums of both, which are of one span."""
        return replace(
            self,
            **_sums(self, other, "in_time", "turned_away", "failed"),
            covered_s=max(self.covered_s, other.covered_s),
            buckets=Counter(self.buckets) + Counter(other.buckets),
        )


def _sums(one: object, other: object, *fields: str) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in fields}


def bucket_of(latency_s: float) -> int:
    """Return the number of a latency's bucket, for `SpanCounts`."""
    return ceil(log(max(latency_s, _LEAST_S)) / _STEP)


@dataclass(slots=True, kw_only=True)
class QueueFigures:
    """A tier's queue at a moment; sums are of all that it answered."""

    waiting: int = 0  # requests without a turn
    places: int = 0  # requests that instances take at once
    workers: int = 0  # instances that take requests
    busy: tuple[str, ...] = ()  # addresses of instances that are at work or out
    idle: int = 0  # number of requests that could start now
    answered: int = 0  # requests
    late: int = 0  # those of them that missed their deadline
    late_s: float = 0.0  # by how much, together
    late_max_s: float = 0.0  # by how much the worst of them
    turned_away: int = 0  # requests refused or given up
    lost: int = 0  # times that an instance went away with a request
    waited_s: float = 0.0  # for an instance's turn
    predicted_s: float = 0.0  # of the calls, as predicted when they started: a quantile
    observed_s: float = 0.0  # seconds of these calls
    drifts: int = 0  # times that latencies had changed for good and were learnt anew
    observed_over_predicted: float = 1.0  # mean of calls, over the quantile; 1 before the first
    endpoints: Usage = NOTHING_USED  # what was used of those on a remote tier

    @property
    def is_saturated(self) -> bool:
        """Whether more wait than could be at work."""
        return self.waiting > self.places

    def plus(self, other: QueueFigures) -> QueueFigures:
        """Return both queues for the same instances as one: `places` and `workers` are shared."""
        answered = self.answered + other.answered
        weighed = self.answered * self.observed_over_predicted
        weighed += other.answered * other.observed_over_predicted
        sums = ("waiting", "answered", "late", "late_s", "turned_away", "lost", "waited_s")
        return replace(
            self,
            **_sums(self, other, *sums, "predicted_s", "observed_s", "drifts"),
            busy=tuple(dict.fromkeys((*self.busy, *other.busy))),
            idle=min(self.idle, other.idle),  # who is at work for one is so for all
            late_max_s=max(self.late_max_s, other.late_max_s),
            observed_over_predicted=weighed / answered if answered else 1.0,
            endpoints=self.endpoints.plus(other.endpoints),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentReport:
    """What the requests to one deployed plan got, from one dispatcher or several."""

    plan_id: str
    serving_s: float = 0.0  # since it began to serve
    arrivals_per_s: float = 0.0  # now, refused requests included
    answered: int = 0  # requests, since it began
    failed: int = 0  # those that got an error instead
    answers: LatestAnswers = LatestAnswers()
    spans: tuple[SpanCounts, ...] = tuple(SpanCounts(span_s=s, covered_s=s) for s in SPANS_S)
    queues: Mapping[str, QueueFigures] = field(default_factory=dict)  # by tier
    changes: int = 0  # times that the requests have become other ones
    known_requests: int = 0  # latest whose sizes are known, none from before the last change
    last_change: TrafficChange | None = None

    def latency(self) -> dict[LatencyStatistic, float]:
        """Return statistics of the latest answers' latency; empty: nothing was answered."""
        latency_s = self.answers.latency_s
        if not len(latency_s):
            return {}
        return {each: float(each.of(latency_s)) for each in LatencyStatistic}

    def plus(self, other: DeploymentReport) -> DeploymentReport:
        """Return both as one, of this one's plan and tiers.

        Changes are this one's: it learns of all requests.
        """
        queues = {
            tier: figures.plus(other.queues[tier]) if tier in other.queues else figures
            for tier, figures in self.queues.items()
        }
        return replace(
            self,
            **_sums(self, other, "arrivals_per_s", "answered", "failed"),
            answers=self.answers.plus(other.answers),
            spans=tuple(map(SpanCounts.plus, self.spans, other.spans)),
            queues=queues,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBill:
    """The answers to a plan's requests, and their usage."""

    plan_id: str
    answered: int = 0  # requests
    failed: int = 0  # those that got an error, refused ones left out
    # operator -> endpoint -> what was used of it, by answered requests and others
    used: Mapping[str, Mapping[str, Usage]] = field(default_factory=dict)
    # attempts of unknown usage: in `used` with the most that they may have
    unsure: int = 0

    @property
    def total(self) -> Usage:
        """What was used in all."""
        each = (used for by_endpoint in self.used.values() for used in by_endpoint.values())
        return reduce(Usage.plus, each, NOTHING_USED)

    @property
    def usd_per_1000_requests(self) -> float | None:
        """US dollars for a thousand answers, what failed included; None: nothing was answered."""
        return self.total.usd / self.answered * 1000 if self.answered else None

    def plus(self, other: ServedBill) -> ServedBill:
        """Return the sum of both bills, as of this one's plan."""
        sums = _sums(self, other, "answered", "failed", "unsure")
        return replace(self, **sums, used=used_together(self.used, other.used))


def used_together(
    one: Mapping[str, Mapping[str, Usage]], other: Mapping[str, Mapping[str, Usage]]
) -> dict[str, dict[str, Usage]]:
    """Return the sum of both usages, by operator and endpoint."""
    together = {operator: dict(by_endpoint) for operator, by_endpoint in one.items()}
    for operator, by_endpoint in other.items():
        known = together.setdefault(operator, {})
        for endpoint, used in by_endpoint.items():
            known[endpoint] = known.get(endpoint, NOTHING_USED).plus(used)
    return together


class BillMemory(Protocol):
    """Stores the bills of serving. Safe to share between threads.

    Calls may take long: they are made off the event loop. Unavailable if they cannot be answered
    now, which the memory itself logs.
    """

    def keep(self, run: str, query_id: str, bill: ServedBill) -> None:
        """Replace the bill of a run of a query's plan, from its start until its end."""
