"""Which rates are tried to find a breaking point: up until one is surely too much, then between.

Each rate is so many times the one before. Once the unit surely broke, the gap between the highest
rate that held and the lowest that did not is halved, on a logarithmic scale, until it is narrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt

from circinus.pipelines import checks
from circinus.scheduler.routing.breaking_point import RampStep, bracket

_LOWEST = 64  # times below the first rate nothing is tried


class RampPhase(StrEnum):
    """What a rate is tried for."""

    UP = "up"
    DOWN = "down"  # the first was too much already
    BETWEEN = "between"


@dataclass(frozen=True, slots=True, kw_only=True)
class RampPlan:
    """Which rates may be tried, and for how long each."""

    first_per_s: float  # `> 0`
    most_per_s: float  # never more, `>= first_per_s`
    growth: float = 1.5  # from rate to rate, `> 1`
    precision: float = 0.1  # part of the rate that the gap may be in the end, `> 0`
    most_steps: int = 24  # `>= 1`
    step_s: float = 5.0  # that each is held for, `> 0`
    # and at least until so many came: of fewer no 95th percentile is known
    least_requests: int = 100

    def __post_init__(self) -> None:
        checks.positive("first_per_s", self.first_per_s)
        checks.positive("most_per_s", self.most_per_s)
        rule = f"must be >= first_per_s, {self.first_per_s:g}"
        checks.require(self.most_per_s >= self.first_per_s, "most_per_s", rule, self.most_per_s)
        checks.require(1 < self.growth < 100, "growth", "must be in (1, 100)", self.growth)
        checks.positive("precision", self.precision)
        checks.at_least("most_steps", self.most_steps, 1)
        checks.positive("step_s", self.step_s)
        checks.at_least("least_requests", self.least_requests, 1)

    def lasts_s(self, per_s: float) -> float:
        """Give for how long a rate is held."""
        return max(self.step_s, self.least_requests / per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRate:
    """What is to be tried."""

    per_s: float
    phase: RampPhase


def next_rate(plan: RampPlan, steps: Sequence[RampStep]) -> NextRate | None:
    """Give what is to be tried after some steps, in any order; None: it is over."""
    if not steps:
        return NextRate(per_s=plan.first_per_s, phase=RampPhase.UP)
    if len(steps) >= plan.most_steps:
        return None
    highest, lowest = (end(step.per_s for step in steps) for end in (max, min))
    if highest < plan.most_per_s and not any(step.surely_broken for step in steps):
        up = min(highest * plan.growth, plan.most_per_s)
        return NextRate(per_s=up, phase=RampPhase.UP)
    held, broken = bracket(steps)
    if broken is None:
        return None
    if held is None:
        down = lowest / plan.growth**2
        if down * _LOWEST < plan.first_per_s:
            return None
        return NextRate(per_s=down, phase=RampPhase.DOWN)
    if broken.per_s <= held.per_s * (1 + plan.precision):
        return None
    return NextRate(per_s=sqrt(held.per_s * broken.per_s), phase=RampPhase.BETWEEN)
