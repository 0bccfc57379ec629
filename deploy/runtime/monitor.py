"""What a deployment tells of its requests: how long they took, and how its queues fare."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from circinus.pipelines.slo import LatencyStatistic


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Latency of the requests of late, in seconds; None before the first.

    `count` requests were answered since the deployment began, `failed` got an error instead; the
    figures are over the `window` latest answers.
    """

    count: int
    failed: int
    window: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None


class LatencyWindow:
    """Latencies of the last requests. Not safe to share between threads."""

    def __init__(self, size: int = 1000) -> None:
        self._latencies: deque[float] = deque(maxlen=size)
        self._count = 0
        self._failed = 0

    def answered(self, latency_s: float) -> None:
        """Note a request that got its output."""
        self._count += 1
        self._latencies.append(latency_s)

    def failed(self) -> None:
        """Note a request that got an error."""
        self._failed += 1

    def observed(self) -> Observed:
        """Give the figures so far."""
        latencies = np.array(self._latencies)
        figures = {s.value: float(s.of(latencies)) for s in LatencyStatistic if len(latencies)}
        return Observed(count=self._count, failed=self._failed, window=len(latencies), **figures)


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
    # Mean of what calls took over their predicted quantile; 1 before the first
    observed_over_predicted: float = 1.0
