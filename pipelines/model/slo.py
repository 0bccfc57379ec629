"""Service-level objectives, and what is known about whether they hold."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np

from circinus.pipelines import checks, ranges
from circinus.pipelines.model.profile import FloatArray

ANY_LATENCY_S = 86_400.0
"""The latency bound of a throughput-critical query that asks for none: a day. Finite, so that
models of latency stay finite too."""


SURE = 0.95
"""Confidence of an interval from which its verdict is certain; few inputs may allow for less."""


class LatencyStatistic(StrEnum):
    """Which figure of a latency distribution an SLO bounds."""

    MEAN = "mean"
    P50 = "p50"
    P90 = "p90"
    P95 = "p95"
    P99 = "p99"

    @property
    def quantile(self) -> float | None:
        """The quantile in (0, 1); None for the mean."""
        return None if self is LatencyStatistic.MEAN else int(self.value[1:]) / 100

    def of(self, latencies_s: FloatArray) -> FloatArray:
        """Return the figure over the last axis, (..., n) -> (...).

        A percentile is the inverted distribution function: an observed value that at least the
        fraction q does not exceed, never an interpolation below one.
        """
        if self.quantile is None:
            return np.asarray(latencies_s.mean(axis=-1))
        return np.asarray(np.quantile(latencies_s, self.quantile, axis=-1, method="inverted_cdf"))


class HoldsFor(StrEnum):
    """Which inputs objectives must hold for."""

    EXAMPLES = "examples"  # those of the query's data
    FUTURE = "future"  # any of the same source, with 95 % confidence


class SloState(StrEnum):
    """The verdict of measurements on one SLO of one plan."""

    MET = "met"  # the whole interval is on the good side of the bound, and it is one of 95 %
    LIKELY = "likely"  # the estimate is on the good side, its interval is not entirely
    UNPROVEN = "unproven"
    """The estimate is on the bad side, its interval not entirely; or nothing was measured."""
    VIOLATED = "violated"  # the whole interval is on the bad side


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a query asks for. Bounds are inclusive."""

    accuracy: float  # least mean score over the data, in [0, 1]
    latency_s: Annotated[float, ranges.LATENCY_S]  # most seconds per request
    latency_statistic: LatencyStatistic = LatencyStatistic.MEAN  # which figure `latency_s` bounds
    # at most, for the deployed plan; None: any
    cost_usd_per_hour: Annotated[float, ranges.COST_USD_PER_HOUR] | None = None
    # US dollars of machines and calls together for 1,000 requests at the query's rate, at most;
    # None: any
    cost_usd_per_1000_requests: Annotated[float, ranges.COST_USD_PER_1000_REQUESTS] | None = None
    # least requests per second that the plan finishes when it always has some to do; None: any.
    # For batch work (Circinus 6.1, throughput-critical): requests queue, so `latency_s` bounds a
    # request from its start, without waits
    throughput_per_s: Annotated[float, ranges.RATE_PER_S] | None = None
    holds_for: HoldsFor = HoldsFor.EXAMPLES  # which accuracy and latency bind

    def __post_init__(self) -> None:
        checks.probability("slo.accuracy", self.accuracy)
        ranges.check_fields("slo.", self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure and how well it is known."""

    value: float  # the figure
    low: float  # lower end of its confidence interval, `<= value`
    high: float  # upper end, `>= value`
    confidence: float  # of the interval, in (0, 1)
    inputs: int  # on how many inputs it rests, `>= 0`
    # of an accuracy, inputs beside these that count for nothing: they failed everywhere, `>= 0`
    left_out: int = 0

    def __post_init__(self) -> None:
        within = self.low <= self.value <= self.high
        limits = (self.low, self.value, self.high)
        checks.require(within, "estimate", "must lie within its interval", limits)
        checks.open_probability("estimate.confidence", self.confidence)
        checks.at_least("estimate.inputs", self.inputs, 0)
        checks.at_least("estimate.left_out", self.left_out, 0)

    @property
    def over(self) -> str:
        """Of how many inputs it stands on which, in words; empty: on all of them."""
        return f" over {self.inputs} of {self.inputs + self.left_out}" if self.left_out else ""

    def at_least(self, bound: float) -> SloState:
        """Return the verdict on `figure >= bound`."""
        return self._state(self.value >= bound, certain=self.low >= bound or self.high < bound)

    def at_most(self, bound: float) -> SloState:
        """Return the verdict on `figure <= bound`."""
        return self._state(self.value <= bound, certain=self.high <= bound or self.low > bound)

    def _state(self, good: bool, *, certain: bool) -> SloState:
        if certain and self.confidence >= SURE:
            return SloState.MET if good else SloState.VIOLATED
        return SloState.LIKELY if good else SloState.UNPROVEN
