"""Which rates are tried to find a breaking point: up until one is surely too much, then between.

Each rate is so many times the one before. Once the unit surely broke, the gap between the highest
rate that held and the lowest that did not is halved, on a logarithmic scale, until it is narrow;
then the gaps between what is sure and what is not, on both sides, so that the interval is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from circinus.pipelines import checks
from circinus.scheduler.routing.breaking_point import RampStep, borne_out, bracket

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
    # and at least until so many came: of few no 95th percentile is known
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
    found = _next(plan, steps) if len(steps) < plan.most_steps else None
    if found is None:
        return None
    per_s, phase = found
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
