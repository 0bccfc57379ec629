"""What a unit can take: the highest rate of requests that it holds (adaptive orchestration, 5.3).

Requests are sent at a rate for a while, a step, without waiting for each other. A rate holds while
the unit keeps up with it, is busy for no more than 80 % of the time, and 95 % of its requests take
no longer than they may. Each of the three is a mean or a quantile over a step, and has a
margin, over blocks of time in it that stand for independent repetitions (batch means; a quantile
by their jackknife): beyond its margin it is sure, of one verdict in `1 / _ERROR` wrongly at most.

| symbol | meaning |
| --- | --- |
| K | blocks of a step; what comes before them, while queues fill, is left out |
| n | requests of a step |
| x, m | what is above a limit, and its margin: `t(1 - _ERROR, K - 1)` standard errors, |
| | times `sqrt(1 + _FEW / n)`: of few requests blocks resemble each other, and err together |
| g | requests per second that come and are not served: 0 if the unit keeps up |
| T^max | the breaking point |

What is sure at one rate is sure of a side of it: latency and busy time rise with the rate. A step
without a burst looks better than its rate is, and surer, so that what is surely within its limits
counts only if the next higher rate held as well. What was served is a bound by itself: a unit
takes as many at least, and no more where g > m. T^max is at least the lowest of the lower bounds
and at most the lowest of the upper ones. On both sides up to five steps are so near that they
might err: 2.5 % each, 95 % for the interval.

Published is no rule for when throughput "plateaus", and no interval.

Rates are tried upwards (`next_rate`), each so many times the one before, until one surely breaks
the unit. Then the gap between the highest rate that held and the lowest that did not is halved, on
a logarithmic scale, until it is narrow; then the gaps between what is sure and what is not, on
both sides, so that the interval is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, log, nan, sqrt
from statistics import fmean

import numpy as np
from scipy.special import stdtrit

from circinus.pipelines import checks
from circinus.pipelines.model.profile import FloatArray

QUANTILE = 0.95  # deviates: latency-of-95-in-100
"""Part of the requests that are to be within the latency."""
_ERROR = 0.005  # deviates: breaking-by-intervals
_BLOCKS = 8
_FEW = 300.0  # so that intervals hold of M/M/1 with 60 requests a step
_SETTLES = 0.2  # part of a step that queues have to fill in
_SHORTEST_S = 1e-9  # that a request takes, for logarithms


class BreakingReason(StrEnum):
    """Why no more is held."""

    LATENCY = "latency"
    THROUGHPUT = "throughput"  # what is served no longer follows what comes
    UTILISATION = "utilisation"
    LIMIT = "limit"  # of what was tried


_KEEPS_UP = BreakingReason.THROUGHPUT


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakingLimits:
    """What a unit may be like at a rate that holds, besides keeping up."""

    latency_s: float | None = None  # of 95 % of the requests, `> 0`; None: any
    busy: float = 0.8  # part of the time, in (0, 1]; 0.8 as published

    def __post_init__(self) -> None:
        checks.positive("latency_s", self.latency_s)
        checks.share("busy", self.busy)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RampObservation:
    """Observations of requests at one rate."""

    per_s: float  # that arrived in the mean, `> 0`
    lasted_s: float  # that requests arrived for, `> 0`
    sent_s: FloatArray  # (n,), rising, from the step's beginning; at least one
    response_s: FloatArray  # (n,); inf: failed
    busy_s: FloatArray | None = None  # (n,), that each occupied the unit for; None: not known

    def __post_init__(self) -> None:
        checks.positive("per_s", self.per_s)
        checks.positive("lasted_s", self.lasted_s)
        checks.require(len(self.sent_s) > 0, "sent_s", "must have at least one", 0)
        lengths = [len(each) for each in (self.response_s, self.busy_s) if each is not None]
        alike = all(count == len(self.sent_s) for count in lengths)
        checks.require(
            alike, "response_s and busy_s", f"must have {len(self.sent_s)} values", lengths
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Excess:
    """How far something is above its limit."""

    value: float
    margin: float  # `>= 0`; inf: nothing is sure

    @property
    def surely_above(self) -> bool:
        """Whether it is, whatever chance did."""
        return self.value > self.margin

    @property
    def surely_below(self) -> bool:
        """Whether it is not, whatever chance did."""
        return self.value < -self.margin


@dataclass(frozen=True, slots=True, kw_only=True)
class RampStep:
    """A rate, its figures and the verdict on it."""

    per_s: float
    requests: int
    failed: int
    served_per_s: float
    served_margin: float  # of it
    mean_s: float  # of those that were served; nan: none was
    p50_s: float  # of all; inf: failed
    p95_s: float
    busy: float | None  # part of the time; None: not known
    service_s: float | None  # mean that a request occupied the unit for; None: not known
    service_std_s: float | None  # and its standard deviation
    excess: Mapping[BreakingReason, Excess]  # of what is limited

    @property
    def broken_by(self) -> tuple[BreakingReason, ...]:
        """What is above its limit. Not keeping up only counts where chance does not explain it."""
        return tuple(
            reason
            for reason, excess in self.excess.items()
            if (excess.surely_above if reason is _KEEPS_UP else excess.value > 0)
        )

    @property
    def held(self) -> bool:
        """Whether all is within its limits."""
        return not self.broken_by

    @property
    def surely_held(self) -> bool:
        """Whether all that is limited surely is; keeping up counts as observed."""
        others = [e for reason, e in self.excess.items() if reason is not _KEEPS_UP]
        return self.held and all(excess.surely_below for excess in others)

    @property
    def surely_broken(self) -> bool:
        """Whether something is not, whatever chance did."""
        return any(excess.surely_above for excess in self.excess.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakingPoint:
    """The highest rate that holds."""

    per_s: float  # within the interval; 0: none that was tried holds
    low_per_s: float  # of its 95 % interval, `>= 0`
    high_per_s: float | None  # None: of no rate that was tried it is sure that it is too much
    reasons: tuple[BreakingReason, ...]  # why the next higher one does not hold
    there: RampStep | None  # the highest rate tried that held; None: none did


def judged(observation: RampObservation, limits: BreakingLimits) -> RampStep:
    """Return the verdict of a step on its rate."""
    margin = _T * sqrt(1 + _FEW / len(observation.sent_s))
    edges = np.linspace(
        _SETTLES * observation.lasted_s, observation.lasted_s, _BLOCKS + 1
    )  # (K + 1,)
    block_s, done_s = float(edges[1] - edges[0]), observation.sent_s + observation.response_s
    arrivals, served = (
        _counted(at_s, edges) / block_s for at_s in (observation.sent_s, done_s)
    )  # (K,)
    excess = {}
    if limits.latency_s is not None:
        excess[BreakingReason.LATENCY] = _late(observation, edges, limits.latency_s, margin)
    excess[BreakingReason.THROUGHPUT] = _mean(arrivals - served, margin)
    busy = None
    if observation.busy_s is not None:
        part = _busy(observation.busy_s, done_s, edges) / block_s
        busy = float(part.mean())
        excess[BreakingReason.UTILISATION] = _mean(part - limits.busy, margin)
    settled = observation.response_s[observation.sent_s >= edges[0]]
    response_s = settled if len(settled) else observation.response_s
    answered = response_s[np.isfinite(response_s)]
    return RampStep(
        per_s=observation.per_s,
        requests=len(observation.sent_s),
        failed=int(np.isinf(observation.response_s).sum()),
        served_per_s=float(served.mean()),
        served_margin=_mean(served, margin).margin,
        mean_s=float(answered.mean()) if len(answered) else nan,
        p50_s=_quantile(response_s, 0.5),
        p95_s=_quantile(response_s, QUANTILE),
        busy=busy,
        service_s=None if observation.busy_s is None else float(np.nanmean(observation.busy_s)),
        service_std_s=None if observation.busy_s is None else float(np.nanstd(observation.busy_s)),
        excess=excess,
    )


def breaking_point(steps: Sequence[RampStep]) -> BreakingPoint:
    """Return where a unit breaks, of at least one step, in any order."""
    checks.require(len(steps) > 0, "steps", "must have at least one", 0)
    there, broken = bracket(steps)
    bounds = [_bounds(reason, steps, there) for reason in BreakingReason]
    low = min((least for least, _ in bounds if least is not None), default=0.0)
    high = min(most for _, most in bounds)
    low, high = min(low, high), max(low, high)  # contradicting bounds are both ends of the range
    # Of what a unit does not keep up with it serves what it can.
    flat = [step.served_per_s for step in steps if step.excess[_KEEPS_UP].surely_above]
    most = fmean(flat) if flat else inf
    return BreakingPoint(
        per_s=min(max(min(there.per_s if there else 0.0, most), low), high),
        low_per_s=low,
        high_per_s=None if high == inf else high,
        reasons=(BreakingReason.LIMIT,) if broken is None else broken.broken_by,
        there=there,
    )


def bracket(steps: Sequence[RampStep]) -> tuple[RampStep | None, RampStep | None]:
    """Return the highest rate that held below all that did not, and the lowest that did not.

    None: there is none.
    """
    rising = sorted(steps, key=lambda step: step.per_s)
    broken = next((step for step in rising if not step.held), None)
    below = [step for step in rising if broken is None or step.per_s < broken.per_s]
    return (below[-1] if below else None), broken


def borne_out(steps: Sequence[RampStep], there: RampStep | None) -> list[RampStep]:
    """Return those below the highest rate that held, which the next higher one bears out."""
    return [step for step in steps if there is not None and step.per_s < there.per_s]


def _bounds(
    reason: BreakingReason, steps: Sequence[RampStep], there: RampStep | None
) -> tuple[float | None, float]:
    """Return what rate one limit allows at least, None: it is not limited; and at most."""
    its = [(step, step.excess[reason]) for step in steps if reason in step.excess]
    if reason is _KEEPS_UP:
        least = [step.served_per_s - step.served_margin for step, _ in its]
        most = [s.served_per_s + s.served_margin for s, excess in its if excess.surely_above]
        return max([0.0, *least]), min(most, default=inf)
    if not its:
        return None, inf
    good = borne_out([step for step, excess in its if excess.surely_below], there)
    held = [step.per_s for step in good]
    return max(held, default=0.0), min((s.per_s for s, e in its if e.surely_above), default=inf)


def _late(
    observation: RampObservation, edges: FloatArray, limit_s: float, margin: float
) -> Excess:
    """Return the log of the quantile over a limit, by the jackknife over blocks."""
    block = np.searchsorted(edges, observation.sent_s, "right") - 1  # (n,); -1: before the first
    response_s = np.maximum(
        np.minimum(observation.response_s, _longest_s(observation)), _SHORTEST_S
    )
    counted = response_s[block >= 0]
    value = log(_quantile(counted, QUANTILE) / limit_s) if len(counted) else 0.0
    without = [response_s[(block >= 0) & (block != each)] for each in range(_BLOCKS)]
    if not all(len(each) for each in without):
        return Excess(value=value, margin=inf)
    left = np.log([_quantile(each, QUANTILE) for each in without])  # (K,)
    error = sqrt((_BLOCKS - 1) / _BLOCKS * float(((left - left.mean()) ** 2).sum()))
    return Excess(value=value, margin=margin * error)


def _longest_s(observation: RampObservation) -> float:
    """Return what a request that failed is taken to have taken: longer than all others."""
    answered = observation.response_s[np.isfinite(observation.response_s)]
    return max(10 * float(answered.max(initial=0.0)), 1e3 * observation.lasted_s)


def _mean(values: FloatArray, margin: float) -> Excess:  # (K,)
    error = float(values.std(ddof=1)) / sqrt(len(values))
    return Excess(value=float(values.mean()), margin=margin * error)


def _counted(at_s: FloatArray, edges: FloatArray) -> FloatArray:  # (n,), (K + 1,) -> (K,)
    return np.histogram(at_s[np.isfinite(at_s)], edges)[0].astype(float)


def _busy(busy_s: FloatArray, done_s: FloatArray, edges: FloatArray) -> FloatArray:
    """Return busy seconds of each block, if each request was served just before its end."""
    known = np.isfinite(done_s) & np.isfinite(busy_s)
    end_s, start_s = done_s[known], (done_s - busy_s)[known]
    upto = [np.clip(edge - start_s, 0.0, end_s - start_s).sum() for edge in edges]
    return np.diff(np.array(upto, dtype=float))


def _quantile(values: FloatArray, part: float) -> float:
    return float(np.quantile(values, part, method="higher"))


_T = float(stdtrit(_BLOCKS - 1, 1 - _ERROR))


_LOWEST = 8.0  # times below the first rate nothing is tried
_LONGER = 2.0  # times a step takes where it decides


class RampPhase(StrEnum):
    """What a rate is tried for."""

    UP = "up"
    DOWN = "down"  # the first was too much already, or may have been
    BETWEEN = "between"
    EDGE = "edge"  # of what is sure


@dataclass(frozen=True, slots=True, kw_only=True)
class RampPlan:
    """Which rates may be tried, and for how long each."""

    first_per_s: float  # `> 0`
    most_per_s: float  # never more, `>= first_per_s`
    growth: float = 1.5  # from rate to rate, in (1, 100)
    precision: float = 0.1  # part of the rate that the gap may be, `> 0`; twice at the edges
    most_steps: int = 24  # `>= 1`
    step_s: float = 5.0  # that a rate is held for on the way up, `> 0`; twice where it decides
    # and at least until so many arrived: few have no known 95th percentile
    least_requests: int = 60

    def __post_init__(self) -> None:
        checks.positive("first_per_s", self.first_per_s)
        checks.positive("most_per_s", self.most_per_s)
        rule = f"must be >= {self.first_per_s:g}, the first rate"
        checks.require(self.most_per_s >= self.first_per_s, "most_per_s", rule, self.most_per_s)
        checks.require(1 < self.growth < 100, "growth", "must be in (1, 100)", self.growth)
        checks.positive("precision", self.precision)
        checks.at_least("most_steps", self.most_steps, 1)
        checks.positive("step_s", self.step_s)
        checks.at_least("least_requests", self.least_requests, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRate:
    """What is to be tried."""

    per_s: float
    phase: RampPhase
    lasts_s: float


def next_rate(plan: RampPlan, steps: Sequence[RampStep]) -> NextRate | None:
    """Return what is to be tried after some steps, in any order; None: it is over."""
    proposal = _next(plan, steps) if len(steps) < plan.most_steps else None
    if proposal is None:
        return None
    per_s, phase = proposal
    longer = 1.0 if phase is RampPhase.UP else _LONGER
    lasts_s = max(plan.step_s * longer, plan.least_requests * longer / per_s)
    return NextRate(per_s=per_s, phase=phase, lasts_s=lasts_s)


def _next(plan: RampPlan, steps: Sequence[RampStep]) -> tuple[float, RampPhase] | None:
    if not steps:
        return plan.first_per_s, RampPhase.UP
    highest, lowest = (end(step.per_s for step in steps) for end in (max, min))
    if highest < plan.most_per_s and not any(step.surely_broken for step in steps):
        return min(highest * plan.growth, plan.most_per_s), RampPhase.UP
    held, broken = bracket(steps)
    down = lowest / plan.growth**2
    sure = any(step.surely_held for step in borne_out(steps, held))
    if not sure and down * _LOWEST >= plan.first_per_s:
        return down, RampPhase.DOWN
    if held is None or broken is None:
        return None
    if broken.per_s > held.per_s * (1 + plan.precision):
        return sqrt(held.per_s * broken.per_s), RampPhase.BETWEEN
    return _edge(plan, steps, held)


def _edge(
    plan: RampPlan, steps: Sequence[RampStep], held: RampStep
) -> tuple[float, RampPhase] | None:
    """Return a rate between the highest that surely holds and the next, or so at the other end."""
    sure = [step.per_s for step in borne_out(steps, held) if step.surely_held]
    low = max(sure, default=held.per_s)
    high = min((step.per_s for step in steps if step.surely_broken), default=held.per_s)
    unsure = sorted(step.per_s for step in steps if low < step.per_s < high)
    if not unsure:
        return None
    for below, above in ((low, unsure[0]), (unsure[-1], high)):
        if above > below * (1 + 2 * plan.precision):
            return sqrt(below * above), RampPhase.EDGE
    return None
