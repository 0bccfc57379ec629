"""Why a plan is what it is: what each operator takes and costs, and what else was ruled out.

Everything is computed from measurements that are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pipelines.configuration import ConfigurationSpace
from pipelines.errors import InvalidInput
from pipelines.latency import busy_seconds, deployment_arrays
from pipelines.operators import KnobValue
from pipelines.plan import Plan
from pipelines.restrictions import allowed_tiers
from planner.known import Answer, Known
from planner.measuring import Measured
from planner.placement import Placements
from planner.plans import feasible_plans
from planner.prediction import Scene, mean_work, predict


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPart:
    """What one operator contributes.

    Attributes:
        operator: Its name.
        tier: Where it runs.
        share: Of one machine there.
        knobs: Its settings.
        seconds: Mean seconds there at that share, calls included.
        transfer_s: Mean seconds until the data of its parents, or the input, has arrived from
            other tiers, the slowest of them.
        cost_usd_per_hour: Its part of the price of its slices, by seconds.
    """

    operator: str
    tier: str
    share: float
    knobs: Mapping[str, KnobValue]
    seconds: float
    transfer_s: float
    cost_usd_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The plan with one operator elsewhere, all else where it is.

    Attributes:
        operator: Which one is moved.
        tier: Where to.
        possible: Whether the SLOs would hold.
        cost_usd_per_hour: Of its cheapest allocation; None where it is not possible.
        because: What rules it out, or what it would change, in words.
    """

    operator: str
    tier: str
    possible: bool
    cost_usd_per_hour: float | None
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """Configurations that are no plan, by what rules them out.

    Attributes:
        by: `accuracy`, `latency`, `cost`, `failure`, `undecided`, `restriction` or `unmeasured`.
        configurations: How many.
        nearest: What the nearest of them gives, in words; empty where nothing is known.
    """

    by: str
    configurations: int
    nearest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a plan is what it is.

    Attributes:
        plan: The plan.
        operators: In topological order.
        alternatives: Each operator on each other tier.
        ruled_out: What is no plan and why.
    """

    plan: Plan
    operators: tuple[OperatorPart, ...]
    alternatives: tuple[Alternative, ...]
    ruled_out: tuple[RuledOut, ...]


def explained(plan: Plan, found: Answer, known: Known) -> Explanation:
    """Give why a plan is what it is.

    Raises:
        InvalidInput: If its configuration was not measured.
    """
    mine = next((m for m in found.measured if m.configuration == plan.configuration), None)
    if mine is None:
        raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)
    return Explanation(
        plan=plan,
        operators=_operators(found.scene, plan, mine),
        alternatives=_alternatives(found, plan, mine, known.population),
        ruled_out=_ruled_out(found, known),
    )


def _operators(scene: Scene, plan: Plan, measured: Measured) -> tuple[OperatorPart, ...]:
    graph, infrastructure = scene.graph, scene.infrastructure
    work = mean_work(measured.work)
    tiers, shares = deployment_arrays(graph, infrastructure, plan.deployment)
    busy = busy_seconds(graph, infrastructure, work, tiers, shares)[0, :, 0]
    names = [infrastructure.tiers[t].name for t in tiers[0]]
    price: dict[str, float] = defaultdict(float)
    for tier, share in plan.demand:
        price[tier] += share * infrastructure.tier(tier).price_usd_per_hour
    total: dict[str, float] = defaultdict(float)
    for name, seconds in zip(names, busy, strict=True):
        total[name] += float(seconds)
    parts = []
    for o, operator in enumerate(graph.operators):
        origin = infrastructure.origin or infrastructure.tiers[0].name
        sources = [(names[p], float(work.output_bytes[p, 0])) for p in graph.parents[o]] or [
            (origin, float(work.input_bytes[0]))
        ]
        routes = [(infrastructure.route(tier, names[o]), size) for tier, size in sources]
        part = float(busy[o]) / total[names[o]] if total[names[o]] > 0 else 0.0
        parts.append(
            OperatorPart(
                operator=operator.name,
                tier=names[o],
                share=float(shares[0, o]),
                knobs=plan.configuration.of(operator.name),
                seconds=float(busy[o]),
                transfer_s=max(r.delay_s + r.s_per_byte * size for r, size in routes),
                cost_usd_per_hour=price[names[o]] * part,
            )
        )
    return tuple(parts)


def _alternatives(
    found: Answer, plan: Plan, measured: Measured, population: int
) -> tuple[Alternative, ...]:
    scene = found.scene
    tiers, _ = deployment_arrays(scene.graph, scene.infrastructure, plan.deployment)
    return tuple(
        _moved(found, plan, measured, population, o=o, to=to)
        for o in range(len(scene.graph.operators))
        for to in range(len(scene.infrastructure.tiers))
        if to != tiers[0, o]
    )


def _moved(
    found: Answer,
    plan: Plan,
    measured: Measured,
    population: int,
    *,
    o: int,
    to: int,
) -> Alternative:
    scene, spots = found.scene, found.placements
    tiers, _ = deployment_arrays(scene.graph, scene.infrastructure, plan.deployment)
    operator, tier = scene.graph.operators[o].name, scene.infrastructure.tiers[to]
    target = tiers[0].copy()
    target[o] = to
    spot = spots.take(np.flatnonzero((spots.tiers == target).all(axis=1)))
    cost, because = None, _never(scene, o, to)
    if not because and not len(spot):
        because = "placements that send data back down were left out"
    if not because:
        cheapest = feasible_plans(scene, spot, measured, population=population, most=1)
        cost = cheapest[0].cost_usd_per_hour if cheapest else None
        because = _compared(plan, cheapest[0]) if cheapest else _missed(scene, spot, measured)
    return Alternative(
        operator=operator,
        tier=tier.name,
        possible=cost is not None,
        cost_usd_per_hour=cost,
        because=because,
    )


def _never(scene: Scene, o: int, to: int) -> str:
    tier = scene.infrastructure.tiers[to]
    allowed = allowed_tiers(scene.graph, scene.infrastructure, scene.query.restrictions)
    if to not in allowed[o]:
        return "ruled out by a restriction"
    return "" if tier.machines > 0 else "the tier has no machine"


def _missed(scene: Scene, spot: Placements, measured: Measured) -> str:
    full = predict(scene, spot, measured.work, spot.full_steps)
    bound = scene.slo.latency_s
    if not full.fits[0]:
        return "ruled out by machines: they do not hold the copies that the rate needs"
    if full.latency_s[0] > bound:
        return (
            f"ruled out by latency: {full.latency_s[0]:.4g} s on whole machines, "
            f"{bound:.4g} s allowed"
        )
    return "ruled out by cost: no allocation in time is cheap enough"


def _compared(plan: Plan, other: Plan) -> str:
    more = other.cost_usd_per_hour - plan.cost_usd_per_hour
    later = other.latency_s.value - plan.latency_s.value
    cost = f"costs {abs(more):.4g} USD per hour {'more' if more >= 0 else 'less'}"
    return f"{cost}, takes {abs(later):.4g} s {'more' if later >= 0 else 'less'}"


def _ruled_out(found: Answer, known: Known) -> tuple[RuledOut, ...]:
    planned = {plan.configuration for plan in found.plans}
    by: dict[str, list[Measured]] = defaultdict(list)
    for one in found.measured:
        if one.configuration not in planned:
            by[_reason(one, found)].append(one)
    told = {
        "accuracy": lambda m: (m.accuracy.value, f"accuracy {m.accuracy.value:.4g}"),
        "undecided": lambda m: (m.accuracy.value, f"accuracy {m.accuracy.value:.4g} so far"),
        "latency": lambda m: (-m.latency_s, f"{m.latency_s:.4g} s on whole machines"),
        "cost": lambda m: (m.accuracy.value, f"accuracy {m.accuracy.value:.4g}, but beaten"),
    }
    result = [
        RuledOut(by=reason, configurations=len(by[reason]), nearest=max(map(tell, by[reason]))[1])
        for reason, tell in told.items()
        if by[reason]
    ]
    whole = ConfigurationSpace(known.graph).size
    left = ConfigurationSpace(found.scene.graph).size
    seen = len(found.measured) + len(found.failed)
    rest = {
        "failure": (len(found.failed), found.failed[0].failure.cause if found.failed else ""),
        "restriction": (whole - left, ""),
        "unmeasured": (left - seen, ""),
    }
    result += [
        RuledOut(by=reason, configurations=count, nearest=words)
        for reason, (count, words) in rest.items()
        if count > 0
    ]
    return tuple(result)


def _reason(measured: Measured, found: Answer) -> str:
    slo = found.scene.slo
    if measured.latency_s > slo.latency_s:
        return "latency"
    if measured.configuration in found.accurate:
        return "cost"
    return "accuracy" if measured.accuracy.value < slo.accuracy else "undecided"
