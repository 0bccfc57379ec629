"""The nearest bound of each SLO that a measured plan would have met, the others as they are.

Told, never taken. Each with the bound that would surely do: estimates have intervals, and a bound
at the estimate itself would be missed half the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

import numpy as np

from pipelines.latency import TierArray
from pipelines.plan import Plan
from pipelines.slo import Slo
from planner.allocation import allocations
from planner.caution import upper_ratio
from planner.latency_tail import LatencyTail
from planner.measuring import Ending, Measured
from planner.minimal_shares import MOST_ROWS
from planner.placement import FULL_STEPS, Placements
from planner.prediction import Scene, predict


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Deployable:
    """A measured configuration with the plan that it would have.

    Attributes:
        measured: The configuration.
        plan: Its cheapest plan that meets the latency SLO, or its fastest one.
        latency_s: What it takes there; above the SLO when machines do not hold it.
    """

    measured: Measured
    plan: Plan
    latency_s: float

    @property
    def cost_usd_per_hour(self) -> float:
        """Of the plan."""
        return self.plan.cost_usd_per_hour

    @property
    def score(self) -> float:
        """Mean score."""
        return self.measured.accuracy.value


class Relaxation(NamedTuple):
    """A bound that would have been met.

    Attributes:
        value: By the estimates.
        sure: With `planner.estimates.CONFIDENCE` at least.
    """

    value: float
    sure: float


def accurate(slo: Slo, option: Deployable) -> bool:
    """Give whether a configuration counts as accurate enough."""
    ending = option.measured.ending
    undecided = ending in (Ending.SLOW, Ending.PARTIAL) and option.score >= slo.accuracy
    return ending is Ending.ACCURATE or undecided


def in_time(slo: Slo, option: Deployable) -> bool:
    """Give whether the latency SLO holds."""
    return option.latency_s <= slo.latency_s


def in_cost(slo: Slo, option: Deployable) -> bool:
    """Give whether the cost SLO holds."""
    return option.cost_usd_per_hour <= cost_bound(slo)


def cost_bound(slo: Slo) -> float:
    """Give the cost SLO; inf: there is none."""
    return inf if slo.cost_usd_per_hour is None else slo.cost_usd_per_hour


def relaxations(
    scene: Scene,
    placements: Placements,
    options: Sequence[Deployable],
    population: int,
    spread: LatencyTail,
    caution: float | None,
) -> dict[str, Relaxation]:
    """Give what would have been enough of each SLO; one is missing when relaxing it helps none.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        options: What was measured.
        population: Number of inputs there are.
        spread: Of operators' seconds, over all configurations.
        caution: Of the interval that plans are tightened by; None: they are not.
    """
    slo = scene.slo
    affordable = [o for o in options if in_time(slo, o) and in_cost(slo, o)]
    # With how much slower they may be, as plans are judged: what is told as sure is announced.
    enough = [
        (o, upper_ratio(scene, placements, o.measured, spread, population, caution))
        for o in options
        if accurate(slo, o)
    ]
    found = {
        "accuracy": max(
            (Relaxation(o.score, o.measured.accuracy.low) for o in affordable), default=None
        ),
        "latency": min(
            (
                Relaxation(least, least * slower)
                for o, slower in enough
                if (least := _least_latency(scene, placements, o)) < inf
            ),
            default=None,
        ),
        "cost": min(
            (
                Relaxation(o.cost_usd_per_hour, o.cost_usd_per_hour * slower)
                for o, slower in enough
                if in_time(slo, o)
            ),
            default=None,
        ),
    }
    if slo.throughput_per_s is not None:
        found["throughput"] = max(
            (
                Relaxation(most := _most_throughput(scene, placements, o), most / slower)
                for o, slower in enough
            ),
            default=None,
        )
    beyond: dict[str, Callable[[float], bool]] = {
        "accuracy": lambda value: value < slo.accuracy,
        "latency": lambda value: value > slo.latency_s,
        "cost": lambda value: value > cost_bound(slo),
        "throughput": lambda value: 0 < value < (slo.throughput_per_s or 0.0),
    }
    told = {name: _told(one, beyond[name]) for name, one in found.items() if one is not None}
    return {name: one for name, one in told.items() if one is not None}


def _told(found: Relaxation, beyond: Callable[[float], bool]) -> Relaxation | None:
    """Give what is worth telling: where the bound holds, but is not sure to, the sure one."""
    if beyond(found.value):
        return found
    return Relaxation(found.sure, found.sure) if beyond(found.sure) else None


def _least_latency(scene: Scene, placements: Placements, option: Deployable) -> float:
    """Give the least latency within the cost SLO on the machines; inf: there is none.

    Under a cost SLO over all shares of all tiers where they are few enough to try, otherwise over
    equal shares on all tiers: a bound that unlike shares might still improve on.
    """
    least = inf
    for rows, steps in _tried(scene, placements):
        at = allocations(scene, placements.take(rows), option.measured.work, steps)
        holds = at.fits & (at.cost_usd_per_hour <= cost_bound(scene.slo))
        least = min(least, float(at.latency_s[holds].min(initial=inf)))
    return least


def _tried(scene: Scene, placements: Placements) -> list[tuple[TierArray, TierArray]]:
    full, every = placements.full_steps, np.arange(len(placements))
    if scene.slo.cost_usd_per_hour is None:
        return [(every, full)]
    tiers = full.shape[1]
    if len(placements) * FULL_STEPS**tiers > MOST_ROWS:
        return [(every, np.minimum(full, k)) for k in range(1, FULL_STEPS + 1)]
    vectors = np.array(list(itertools.product(range(1, FULL_STEPS + 1), repeat=tiers)))
    rows = np.repeat(every, len(vectors))
    return [(rows, np.minimum(full[rows], np.tile(vectors, (len(placements), 1))))]


def _most_throughput(scene: Scene, placements: Placements, option: Deployable) -> float:
    """Give the most requests per second that all machines finish, at whole machines."""
    full = predict(scene, placements, option.measured.work, placements.full_steps)
    machines = np.array([tier.machines for tier in scene.infrastructure.tiers])
    with np.errstate(divide="ignore"):
        each = np.where(full.service_s > 0, machines / full.service_s, inf).min(axis=1)
    return float(each.max())
