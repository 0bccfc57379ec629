"""What a deployment's requests really took."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from pipelines.slo import LatencyStatistic


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Latency of the requests of late, in seconds; None before the first.

    Attributes:
        count: Requests answered since the deployment began.
        failed: Requests that got an error instead.
        window: Number of latest answers that the figures are over.
        mean: Seconds.
        p50: Seconds that half of them did not exceed; so on.
        p90: Seconds.
        p95: Seconds.
        p99: Seconds.
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
