"""Why no measured plan was enough: which SLO binds, the closest plan, what would do.

SLOs are never relaxed here: the relaxations are told, not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from pipelines.plan import Plan
from pipelines.slo import Slo
from planner.allocation import allocations
from planner.measuring import Ending, Measured
from planner.placement import FULL_STEPS, Placements
from planner.plans import feasible_plans, plan_of
from planner.prediction import Scene, condensed, effective_latency, predict
from planner.result import Shortfall

_SMALL = 1e-9  # a bound of 0 is missed by an absolute, not a relative amount


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Deployable:
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
        return self.plan.cost_usd_per_hour

    @property
    def score(self) -> float:
        return self.measured.accuracy.value


def shortfall(
    scene: Scene,
    placements: Placements,
    measured: Sequence[Measured],
    *,
    population: int,
    evidence: str,
) -> Shortfall:
    """Give why none of the measured configurations meets the SLOs.

    Every configuration stands with its cheapest deployment that meets the latency SLO, or with
    its fastest one when none does.
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
    relaxations = _relaxations(scene, placements, options)
    return Shortfall(
        binding=binding,
        closest=plan,
        sentence=_sentence(scene.slo, binding, plan, relaxations, evidence),
        relaxations=relaxations,
        evidence=evidence,
    )


def _deployable(
    scene: Scene, placements: Placements, measured: Measured, population: int
) -> _Deployable:
    if measured.latency_s <= scene.slo.latency_s:
        slo = replace(scene.slo, cost_usd_per_hour=None)
        at_any_cost = replace(scene, query=replace(scene.query, slo=slo))
        plans = feasible_plans(at_any_cost, placements, measured, population, most=1)
        if plans:
            return _Deployable(
                measured=measured, plan=plans[0], latency_s=plans[0].latency_s.value
            )
    work = condensed(scene, measured.work)
    full = predict(scene, placements, work, placements.full_steps)
    fastest = placements.take(np.array([int(np.argmin(effective_latency(scene, full)))]))
    plan = plan_of(scene, fastest, fastest.full_steps, measured, population)
    return _Deployable(measured=measured, plan=plan, latency_s=measured.latency_s)


def _accurate(slo: Slo, option: _Deployable) -> bool:
    ending = option.measured.ending
    undecided = ending in (Ending.SLOW, Ending.PARTIAL) and option.score >= slo.accuracy
    return ending is Ending.ACCURATE or undecided


def _in_time(slo: Slo, option: _Deployable) -> bool:
    return option.latency_s <= slo.latency_s


def _in_cost(slo: Slo, option: _Deployable) -> bool:
    return option.cost_usd_per_hour <= _cost_bound(slo)


def _cost_bound(slo: Slo) -> float:
    return inf if slo.cost_usd_per_hour is None else slo.cost_usd_per_hour


def _distance(slo: Slo, option: _Deployable) -> tuple[float, float]:
    """Give the sum of relative misses, then the cost."""
    cost = option.cost_usd_per_hour
    missed = (
        max(slo.accuracy - option.score, 0.0) / max(slo.accuracy, _SMALL)
        + max(option.latency_s / slo.latency_s - 1, 0.0)
        + max(cost - _cost_bound(slo), 0.0) / max(min(_cost_bound(slo), cost), _SMALL)
    )
    return missed, cost


def _binding(slo: Slo, options: Sequence[_Deployable]) -> tuple[str, ...]:
    """Give the SLOs that nothing meets; if each is met by something, those not met together."""
    rules: dict[str, Callable[[_Deployable], bool]] = {
        "accuracy": lambda option: _accurate(slo, option),
        "latency": lambda option: _in_time(slo, option),
    }
    alone = tuple(name for name, holds in rules.items() if not any(map(holds, options)))
    if alone:
        return alone
    both = any(all(holds(option) for holds in rules.values()) for option in options)
    if not both:
        return tuple(rules)
    return ("cost",) if slo.cost_usd_per_hour is not None else tuple(rules)


def _relaxations(
    scene: Scene, placements: Placements, options: Sequence[_Deployable]
) -> dict[str, float]:
    slo = scene.slo
    affordable = [o for o in options if _in_time(slo, o) and _in_cost(slo, o)]
    accurate = [o for o in options if _accurate(slo, o)]
    found = {
        "accuracy": max((o.score for o in affordable), default=None),
        "latency": min(
            (s for o in accurate if (s := _least_latency(scene, placements, o)) < inf),
            default=None,
        ),
        "cost": min((o.cost_usd_per_hour for o in accurate if _in_time(slo, o)), default=None),
    }
    beyond = {
        "accuracy": lambda value: value < slo.accuracy,
        "latency": lambda value: value > slo.latency_s,
        "cost": lambda value: value > _cost_bound(slo),
    }
    return {
        name: value for name, value in found.items() if value is not None and beyond[name](value)
    }


def _least_latency(scene: Scene, placements: Placements, option: _Deployable) -> float:
    """Give the least latency within the cost SLO; inf: there is none.

    At full shares; under a cost SLO at any share too, the same on all tiers: a bound that unlike
    shares might still improve on.
    """
    bound = scene.slo.cost_usd_per_hour
    full = placements.full_steps
    tried = [full] if bound is None else [np.minimum(full, k) for k in range(1, FULL_STEPS + 1)]
    least = inf
    for steps in tried:
        at = allocations(scene, placements, option.measured.work, steps)
        holds = at.fits & (at.cost_usd_per_hour <= _cost_bound(scene.slo))
        least = min(least, float(at.latency_s[holds].min(initial=inf)))
    return least


def _sentence(
    slo: Slo,
    binding: tuple[str, ...],
    closest: Plan,
    relaxations: dict[str, float],
    evidence: str,
) -> str:
    asked = {
        "accuracy": f"accuracy >= {slo.accuracy:.4g}",
        "latency": f"{slo.latency_statistic} latency <= {slo.latency_s:.4g} s",
        "cost": f"cost <= {slo.cost_usd_per_hour} USD per hour",
    }
    words = " with ".join(asked[name] for name in binding)
    parts = [
        f"No measured plan is confirmed to reach {words} ({evidence}).",
        f"The closest one has accuracy {closest.accuracy.value:.4g}, "
        f"{slo.latency_statistic} latency {closest.latency_s.value:.4g} s "
        f"and costs {closest.cost_usd_per_hour:.4g} USD per hour "
        f"({closest.accuracy.inputs} inputs measured).",
    ]
    if relaxations:
        enough = " or ".join(f"{name} {value:.4g}" for name, value in relaxations.items())
        parts.append(f"Enough would have been: {enough}.")
    return " ".join(parts)
