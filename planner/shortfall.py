"""Why no measured plan was enough: which SLO binds, the closest plan, what would do.

SLOs are never relaxed here: the relaxations are told, not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from pipelines.plan import Plan
from pipelines.slo import ANY_LATENCY_S, Slo
from planner.estimates import CONFIDENCE
from planner.latency_tail import LatencyTail
from planner.measuring import Measured
from planner.placement import Placements
from planner.plans import feasible_plans, plan_of
from planner.prediction import Scene, condensed, effective_latency, predict
from planner.relaxing import Deployable, Relaxation, accurate, cost_bound, in_time, relaxations
from planner.result import Shortfall

_SMALL = 1e-9  # a bound of 0 is missed by an absolute, not a relative amount


def shortfall(  # noqa: PLR0913 - what was searched, what was found, and how to tell it
    scene: Scene,
    placements: Placements,
    measured: Sequence[Measured],
    *,
    population: int,
    spread: LatencyTail,
    caution: float | None,
    evidence: str,
) -> Shortfall:
    """Give why none of the measured configurations meets the SLOs.

    Every configuration stands with its cheapest deployment that meets the latency SLO, or with
    its fastest one when none does. Relaxations are as cautious as plans are tightened.
    """
    if not measured:
        return Shortfall(
            binding=(),
            closest=None,
            sentence=f"Nothing is known of the query: {evidence}.",
            relaxations={},
            evidence=evidence,
        )
    options = [_deployable(scene, placements, each, population) for each in measured]
    plan = min(options, key=lambda option: _distance(scene.slo, option)).plan
    binding = _binding(scene.slo, options)
    relaxed = relaxations(scene, placements, options, population, spread, caution)
    return Shortfall(
        binding=binding,
        closest=plan,
        sentence=_sentence(scene.slo, binding, plan, relaxed, evidence),
        relaxations={name: one.value for name, one in relaxed.items()},
        sure_relaxations={name: one.sure for name, one in relaxed.items()},
        evidence=evidence,
    )


def _deployable(
    scene: Scene, placements: Placements, measured: Measured, population: int
) -> Deployable:
    if measured.latency_s <= scene.slo.latency_s:
        slo = replace(scene.slo, cost_usd_per_hour=None)
        at_any_cost = replace(scene, query=replace(scene.query, slo=slo))
        plans = feasible_plans(at_any_cost, placements, measured, population, most=1)
        if plans:
            return Deployable(measured=measured, plan=plans[0], latency_s=plans[0].latency_s.value)
    work = condensed(scene, measured.work)
    full = predict(scene, placements, work, placements.full_steps)
    fastest = placements.take(np.array([int(np.argmin(effective_latency(scene, full)))]))
    plan = plan_of(scene, fastest, fastest.full_steps, measured, population)
    return Deployable(measured=measured, plan=plan, latency_s=measured.latency_s)


def _distance(slo: Slo, option: Deployable) -> tuple[float, float]:
    """Give the sum of relative misses, then the cost."""
    cost = option.cost_usd_per_hour
    missed = (
        max(slo.accuracy - option.score, 0.0) / max(slo.accuracy, _SMALL)
        + max(option.latency_s / slo.latency_s - 1, 0.0)
        + max(cost - cost_bound(slo), 0.0) / max(min(cost_bound(slo), cost), _SMALL)
    )
    return missed, cost


def _binding(slo: Slo, options: Sequence[Deployable]) -> tuple[str, ...]:
    """Give the SLOs that nothing meets; if each is met by something, those not met together.

    Late configurations meet few inputs: beside a latency that nothing keeps, accuracy is told
    only where none of them may have it.
    """
    # Of batch work that bounds no latency, what machines do not hold is told as latency.
    speed = "throughput" if slo.latency_s >= ANY_LATENCY_S else "latency"
    rules: dict[str, Callable[[Deployable], bool]] = {
        "accuracy": lambda option: accurate(slo, option),
        speed: lambda option: in_time(slo, option),
    }
    alone = tuple(name for name, holds in rules.items() if not any(map(holds, options)))
    if len(alone) > 1 and any(o.measured.accuracy.high >= slo.accuracy for o in options):
        return (speed,)
    if alone:
        return alone
    both = any(all(holds(option) for holds in rules.values()) for option in options)
    if not both:
        return tuple(rules)
    return ("cost",) if slo.cost_usd_per_hour is not None else tuple(rules)


def _sentence(
    slo: Slo,
    binding: tuple[str, ...],
    closest: Plan,
    relaxed: dict[str, Relaxation],
    evidence: str,
) -> str:
    asked = {
        "accuracy": f"accuracy >= {slo.accuracy:.4g}",
        "latency": f"{slo.latency_statistic} latency <= {slo.latency_s:.4g} s",
        "cost": f"cost <= {slo.cost_usd_per_hour} USD per hour",
        "throughput": f"throughput >= {slo.throughput_per_s} requests per second",
    }
    words = " with ".join(asked[name] for name in binding)
    parts = [
        f"No measured plan is confirmed to reach {words} ({evidence}).",
        f"The closest one has accuracy {closest.accuracy.value:.4g}, "
        f"{slo.latency_statistic} latency {closest.latency_s.value:.4g} s "
        f"and costs {closest.cost_usd_per_hour:.4g} USD per hour "
        f"({closest.accuracy.inputs} inputs measured).",
    ]
    if relaxed:
        enough = " or ".join(
            f"{name} {one.value:.4g} ({one.sure:.4g} with {CONFIDENCE:.0%} confidence)"
            for name, one in relaxed.items()
        )
        parts.append(f"Enough would have been: {enough}.")
    return " ".join(parts)
