"""How far a plan may be tightened: as far as the interval of its latency allows.

Tightened to the estimate itself every other plan would be late.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from pipelines.latency import compose
from pipelines.slo import Slo
from planner.estimates import latency_estimate
from planner.measuring import Measured
from planner.placement import Placements
from planner.prediction import Scene, condensed, effective_latencies, shares_of
from planner.spread import PooledSpread

CAUTION = 0.96
"""Of the interval by default: of plans tightened to its upper end one in fifty is late."""


def cautious(
    scene: Scene,
    placements: Placements,
    measured: Measured,
    spread: PooledSpread,
    *,
    population: int,
    confidence: float | None,
) -> Scene:
    """Give the scene with bounds so much stricter that the true ones hold with the confidence.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        measured: The configuration to tighten.
        spread: Of operators' seconds, over all configurations.
        population: Number of inputs there are.
        confidence: Of the latency interval whose upper end must meet the SLO, in (0, 1); None:
            the estimate itself must.
    """
    if confidence is None:
        return scene
    ratio = upper_ratio(scene, placements, measured, spread, population, confidence)
    return replace(scene, query=replace(scene.query, slo=_stricter(scene.slo, ratio)))


def upper_ratio(
    scene: Scene,
    placements: Placements,
    measured: Measured,
    spread: PooledSpread,
    population: int,
    confidence: float,
) -> float:
    """Give the upper end of the least latency's interval over the latency, `>= 1`.

    Args:
        scene: The query and where it runs.
        placements: All of them.
        measured: The configuration.
        spread: Of operators' seconds, over all configurations.
        population: Number of inputs there are.
        confidence: Of the interval, in (0, 1).
    """
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
