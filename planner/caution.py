"""How far a plan may be tightened: as far as the interval of its latency allows.

Tightened to the estimate itself every other plan would be late.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from pipelines.latency import compose
from pipelines.plan import Plan
from pipelines.slo import Estimate, Slo
from planner.estimates import CONFIDENCE, latency_estimate
from planner.latency_tail import LatencyTail
from planner.measuring import Measured
from planner.placement import Placements
from planner.plans import feasible_plans
from planner.prediction import Scene, condensed, effective_latencies, shares_of

CAUTION = 0.99
"""Of the interval by default: of plans tightened to its upper end one in two hundred is late.
They stand at the bound then, so whether the SLO is shown as met is decided here."""

_LEAST_DOUBT = 0.5
"""Where slow runs are as likely as this the figure says no more: it rests on half a slow run."""


def announced(  # noqa: PLR0913 - a configuration, what is known of it, and how to tighten
    scene: Scene,
    placements: Placements,
    measured: Measured,
    spread: LatencyTail,
    *,
    accuracy: Estimate | None,
    population: int,
    most: int,
    confidence: float | None,
) -> tuple[Plan, ...]:
    """Give the Pareto set of a configuration's plans, tightened as far as its interval allows.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        measured: The configuration, accurate enough.
        spread: Of operators' seconds, over all configurations.
        accuracy: What is known of its accuracy; None: what its own scores say.
        population: Number of inputs there are.
        most: Plans.
        confidence: Of the latency interval whose upper end must meet the SLO, in (0, 1); None:
            the estimate itself must.
    """
    ratio = upper_ratio(scene, placements, measured, spread, population, confidence)
    stricter = replace(scene, query=replace(scene.query, slo=_stricter(scene.slo, ratio)))
    plans = feasible_plans(stricter, placements, measured, population=population, most=most)
    return tuple(
        replace(
            plan,
            accuracy=accuracy or plan.accuracy,
            latency_s=_interval(plan, scene, measured, spread, population),
        )
        for plan in plans
    )


def _interval(
    plan: Plan, scene: Scene, measured: Measured, spread: LatencyTail, population: int
) -> Estimate:
    """Give the latency with the interval that its own inputs and those of all others allow.

    Of few inputs the own spread says little, and the luckiest of many configurations is
    announced. Where runs that were not seen may be slow, the interval is one of less confidence.
    Percentiles keep their order statistics.
    """
    own = plan.latency_s
    if scene.statistic.quantile is not None:
        return own
    names = [operator.name for operator in scene.graph.operators]
    on = [scene.infrastructure.position(plan.deployment.placement[name]) for name in names]
    low, high = spread.interval(scene, np.array(on), measured.work, population, CONFIDENCE)
    slow = spread.slow_chance(measured.work, population)
    sure = slow <= (1 - CONFIDENCE) / 2
    return replace(
        own,
        low=min(own.low, own.value * low),
        high=max(own.high, own.value * high),
        confidence=CONFIDENCE if sure else CONFIDENCE * (1 - min(slow, _LEAST_DOUBT)),
    )


def upper_ratio(
    scene: Scene,
    placements: Placements,
    measured: Measured,
    spread: LatencyTail,
    population: int,
    confidence: float | None,
) -> float:
    """Give the upper end of the least latency's interval over the latency, `>= 1`.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        measured: The configuration.
        spread: Of operators' seconds, over all configurations.
        population: Number of inputs there are.
        confidence: Of the interval, in (0, 1); None: the latency itself, 1.
    """
    if confidence is None:
        return 1.0
    quick = condensed(scene, measured.work)
    full = effective_latencies(scene, placements, quick, placements.full_steps)
    best = placements.take(np.array([int(np.argmin(full))]))
    shares = shares_of(best, best.full_steps)
    seconds = compose(scene.graph, scene.infrastructure, measured.work, best.tiers, shares)[0]
    estimate = latency_estimate(
        seconds, statistic=scene.statistic, population=population, confidence=confidence
    )
    if estimate.value <= 0:
        return 1.0
    z = float(ndtri((1 + confidence) / 2))
    pooled = spread.upper_ratio(scene, best.tiers[0], measured.work, population, z)
    return max(estimate.high / estimate.value, pooled, 1.0)


def _stricter(slo: Slo, ratio: float) -> Slo:
    """Give the SLO that seconds `ratio` times as long would still meet."""
    throughput = slo.throughput_per_s
    return replace(
        slo,
        latency_s=slo.latency_s / ratio,
        throughput_per_s=None if throughput is None else throughput * ratio,
    )
