"""Watches the requests that a pool serves: are they still those that it was chosen for?

| symbol | meaning | shape |
| --- | --- | --- |
| n, m | requests of the reference, and of the last ones that are compared with it | |
| k | classes of size | |
| c, d | requests of each class in the reference, and among the last ones | (k,) |
| G | likelihood ratio of "two mixes" to "one mix", half the G statistic | |
| r, j | blocks of requests in the reference, and among the last ones | |
| v | deviation of the seconds of a block over their mean, in the reference | |

After every block of requests the last 1, 2, 4, ... blocks are compared with the reference: the
first requests since the monitor began, at most a window of them (10,000 as in Kairos, 5.2). Short
spans show a large change early, long ones show a small change at all.

*Mix.* Of independent sizes of one mix, the likelihood ratio of a sample to its own frequencies
has a moment generating function no larger than that of a gamma variable of shape k - 1 (Agrawal,
Finite-sample concentration of the multinomial in relative entropy, 2020). The pooled frequencies
fit both samples together better than the truth does, so with s = 2 (k - 1)

    G = sum_k c ln(c / n) + d ln(d / m) - (c + d) ln((c + d) / (n + m))
    P(G >= x) <= exp(-x) (e x / s)^s      for x > s

for any n and m. The classes are octiles of the first requests; strictly the bound is for classes
fixed before.

*Rate.* Mean seconds of a block are compared on a logarithmic scale by Student's t with r - 1
degrees, v sqrt(1 / r + 1 / j) the standard error. v is measured: arrivals need not be Poisson,
only alike in blocks.

*Queue.* It grows if so many requests in a row have met more waiting ones than any of the
reference did.

False alarms are shared out over all comparisons of a million requests (Bonferroni). Measured: none
in 8 million with Poisson arrivals, one in 8 million where bursts of 50 come four times as fast:
Student's t is an approximation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr, xlogy

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray, IntArray

_CLASSES = 8  # of size, of alike many of the first requests
_SHORTEST_FOR_RATE = 8  # blocks; seconds of fewer are too skewed for Student's t in bursts
_MILLION = 1_000_000
_LEAST_S = 1e-9  # of a block, so that its logarithm is finite where all come at once


# deviates: change-by-monitor
@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """What counts as a change."""

    window: int = 10_000  # requests of the reference, and most that are compared; `>= least`
    block: int = 100  # requests between two looks, `>= 10`
    least: int = 1_000  # requests of the reference before the first look, `>= 2 block`
    # expected per million requests of a steady mix and rate, in (0, 1): half for each
    false_alarms: float = 0.01
    # least change reported: a total-variation distance of mixes, and a factor between rates. Less
    # seldom makes another pool the better one
    distance: float = 0.05
    rate_factor: float = 1.1  # `> 1`
    # requests in a row that met a longer queue than all of the reference. In a million of rm2
    # and of wnd each, at the rate at which 1 % are late, the longest such run had 196
    queue_run: int = 500

    def __post_init__(self) -> None:
        checks.at_least("block", self.block, 10)
        checks.at_least("least", self.least, 2 * self.block)
        checks.at_least("window", self.window, self.least)
        checks.open_probability("false_alarms", self.false_alarms)
        checks.probability("distance", self.distance)
        checks.require(self.rate_factor > 1, "rate_factor", "must be > 1", self.rate_factor)
        checks.at_least("queue_run", self.queue_run, 1)

    @property
    def spans(self) -> tuple[int, ...]:
        """Return how many blocks are compared with the reference at a look: 1, 2, 4, ... all."""
        most = self.window // self.block
        return (*(2**i for i in range(most.bit_length()) if 2**i < most), most)

    @property
    def log_level(self) -> float:
        """Return the logarithm of the probability at which a single comparison counts."""
        return log(self.false_alarms / 2 * self.block / len(self.spans) / _MILLION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficChange:
    """A change: requests are not those any more that the pool was chosen for."""

    mix: bool
    rate: bool
    queue: bool  # it grows
    requests: int  # of the last ones, those in which the change is clearest, the others: theirs
    distance: float  # of their mix from the reference's, total variation, in [0, 1]
    rate_rps: float
    was_rps: float  # of the reference
    waiting: int  # at the last one's arrival


class _Block(NamedTuple):
    sizes: FloatArray  # (block,)
    counts: IntArray  # (k,)
    seconds: float  # from the last request before it to its own last
    longest: int  # queue that one of its requests met


class _Compared(NamedTuple):
    mix: float  # logarithm of the chance that mixes differ so much, 0 if it is too little
    rate: float  # likewise
    distance: float  # total variation
    seconds_before: float  # of a block of the reference, mean
    seconds: float  # of one of the last


class TrafficMonitor:
    """Keeps the last requests and what the pool was chosen for. Not for several threads."""

    def __init__(self, settings: MonitorSettings | None = None) -> None:
        self.settings = settings or MonitorSettings()
        self._blocks = self.settings.window // self.settings.block
        self._sizes: list[float] = []
        self._longest = 0
        self._began_s: float | None = None
        self._now_s = -inf
        self._most_waiting = inf  # of the reference, while there is one
        self._run = 0  # of requests that met more
        self._edges: FloatArray | None = None  # (k - 1,), of the classes
        self._first: list[_Block] = []
        self._last: deque[_Block] = deque(maxlen=self._blocks)
        self._ended = 0  # blocks

    def observe(self, size: float, arrived_s: float, waiting: int) -> TrafficChange | None:
        """Take in a request that met so many waiting ones; return the change if there is one.

        The requests of a reported change are the first of a new reference: for them a pool
        is to be chosen. InvalidInput if the size is not `>= 0`, or time falls.
        """
        checks.non_negative("size", size)
        rule = f"must not be before the request before it, {self._now_s:g}"
        checks.require(arrived_s >= self._now_s, "arrived_s", rule, arrived_s)
        self._began_s = arrived_s if self._began_s is None else self._began_s
        self._now_s = arrived_s
        self._sizes.append(size)
        self._longest = max(self._longest, waiting)
        self._run = self._run + 1 if waiting > self._most_waiting else 0
        if len(self._sizes) < self.settings.block:
            return None
        self._end_block()
        change = self._look(waiting)
        if change is not None:
            self._start_over(list(self._last)[-(change.requests // self.settings.block) :])
        return change

    def sizes(self) -> FloatArray:  # (N,), at most a window
        """Return the sizes of the last requests, the oldest first, none from before a change."""
        ended = [block.sizes for block in self._last]
        return np.concatenate([*ended, np.array(self._sizes)])[-self.settings.window :]

    @property
    def observed(self) -> int:
        """How many requests it has the sizes of."""
        last = len(self._last) * self.settings.block
        return min(last + len(self._sizes), self.settings.window)

    @property
    def rate_rps(self) -> float | None:
        """Latest requests per second, none from before a change; None: less than a block yet."""
        if not self._last:
            return None
        return len(self._last) * self.settings.block / sum(block.seconds for block in self._last)

    def _end_block(self) -> None:
        sizes, seconds = np.array(self._sizes), self._now_s - (self._began_s or 0.0)
        block = _Block(sizes, self._counted(sizes), max(seconds, _LEAST_S), self._longest)
        self._sizes, self._longest, self._began_s = [], 0, self._now_s
        self._last.append(block)
        if len(self._first) < self._blocks:
            self._first.append(block)
        self._ended += 1
        if self._ended * self.settings.block < self.settings.least:
            return
        if self._edges is None:
            self._edges = _edges(np.concatenate([block.sizes for block in self._first]))
            self._first = [b._replace(counts=self._counted(b.sizes)) for b in self._first]
            self._last = deque(self._first, self._blocks)
        if self._run == 0:  # else it would be compared with itself
            self._most_waiting = max(block.longest for block in self._first)

    def _start_over(self, blocks: Sequence[_Block]) -> None:
        self._edges = None
        self._first, self._last = list(blocks), deque(blocks, self._blocks)
        self._ended = len(blocks)
        self._run, self._most_waiting = 0, inf

    def _counted(self, sizes: FloatArray) -> IntArray:  # (k,)
        if self._edges is None:
            return np.zeros(0, dtype=np.int64)
        return np.bincount(np.searchsorted(self._edges, sizes), minlength=len(self._edges) + 1)

    def _look(self, waiting: int) -> TrafficChange | None:
        """Compare the last blocks with the reference; the span where a change is clearest."""
        least = self.settings.least // self.settings.block
        spans = [j for j in self.settings.spans if self._ended - j >= least]
        if not spans:
            return None
        compared = {span: self._compared(span) for span in spans}
        level = self.settings.log_level
        mix = any(one.mix < level for one in compared.values())
        rate = any(one.rate < level for j, one in compared.items() if j >= _SHORTEST_FOR_RATE)
        queue = self._run >= self.settings.queue_run
        if not (mix or rate or queue):
            return None
        span = min(spans, key=lambda j: min(compared[j].mix, compared[j].rate))
        one = compared[span]
        return TrafficChange(
            mix=mix,
            rate=rate,
            queue=queue,
            requests=span * self.settings.block,
            distance=one.distance,
            rate_rps=self.settings.block / one.seconds,
            was_rps=self.settings.block / one.seconds_before,
            waiting=waiting,
        )

    def _compared(self, span: int) -> _Compared:
        """Compare the last blocks with the reference, as far as it is before them."""
        reference, recent = self._first[: self._ended - span], list(self._last)[-span:]
        before = np.array([block.counts for block in reference]).sum(axis=0)
        after = np.array([block.counts for block in recent]).sum(axis=0)
        distance = float(np.abs(before / before.sum() - after / after.sum()).sum() / 2)
        seconds_before = np.array([block.seconds for block in reference])
        was, now = float(seconds_before.mean()), sum(block.seconds for block in recent) / span
        mix = rate = 0.0
        if distance >= self.settings.distance:
            mix = log_chance_of_mixes(before, after)
        if max(was, now) >= self.settings.rate_factor * min(was, now):
            rate = _log_chance_of_rates(seconds_before, now, span)
        return _Compared(mix, rate, distance, was, now)


def log_chance_of_mixes(before: IntArray, after: IntArray) -> float:  # (k,), (k,)
    """Return a bound on the logarithm of the chance that counts of one mix differ so much."""
    both = before + after
    ratio = float((xlogy(before, before) + xlogy(after, after) - xlogy(both, both)).sum())
    n, m = float(before.sum()), float(after.sum())
    ratio += float(xlogy(n + m, n + m) - xlogy(n, n) - xlogy(m, m))
    shape = 2.0 * (len(before) - 1)
    return -ratio + shape * (1 + log(ratio / shape)) if ratio > shape else 0.0


def _log_chance_of_rates(seconds: FloatArray, lasted_s: float, span: int) -> float:  # (r,)
    r, mean = len(seconds), float(seconds.mean())
    error = float(seconds.std(ddof=1)) / mean * sqrt(1 / r + 1 / span)
    if error == 0:
        return -inf if lasted_s != mean else 0.0
    chance = 2.0 * float(stdtr(r - 1, -abs(log(lasted_s / mean)) / error))
    return log(chance) if chance > 0 else -inf


def _edges(sizes: FloatArray) -> FloatArray:  # (k - 1,)
    """Return the upper ends of all classes but the last: octiles, and beyond either end."""
    inner = np.quantile(sizes, np.arange(1, _CLASSES + 1) / _CLASSES, method="inverted_cdf")
    return np.unique(np.append(inner, np.nextafter(sizes.min(), -inf)))
