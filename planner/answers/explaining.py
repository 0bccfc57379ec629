"""Why a plan is what it is: what each operator takes and costs, and what else was ruled out.

Everything is computed from measurements that are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from circinus.pipelines import units
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.infrastructure import divided
from circinus.pipelines.model.latency import TierArray, busy_seconds, deployment_arrays
from circinus.pipelines.model.operators import KnobValue
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.restrictions import allowed_tiers
from circinus.planner.answers.known import Answer, Known
from circinus.planner.deployment.callers import called_by, tightest
from circinus.planner.deployment.costs import ranked_by
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION, mean_work, predict
from circinus.planner.deployment.slices import tier_of
from circinus.planner.search.plans import feasible_plans
from circinus.planner.search.relaxations import is_crowded
from circinus.planner.strategy.protocol import Measured, SearchSetting

_USD = Usage._fields.index("usd")
_PLANNED = HIGHEST_UTILISATION  # of an endpoint's limits


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPart:
    """What one operator contributes."""

    operator: str  # its name
    after: tuple[str, ...]  # operators whose outputs it takes; none: it takes the input
    tier: str  # where it runs
    share: float  # of one machine there, of the slice that all operators of the tier run in
    knobs: Mapping[str, KnobValue]  # its settings
    seconds: float  # mean seconds there in the slice of all that run there, calls included
    # Mean seconds until the data of its parents, or the input, has arrived from other tiers, the
    # slowest of them.
    transfer_s: float
    cost_usd_per_hour: float  # its part of the price of its slices, by seconds, and its calls
    usd_per_request: float = 0.0  # mean US dollars of its calls for one request


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The plan with one operator elsewhere, all else where it is."""

    operator: str  # which one is moved
    tier: str  # where to
    possible: bool  # whether the SLOs would hold
    cost_usd_per_hour: float | None  # of its cheapest allocation; None where it is not possible
    because: str  # what rules it out, or what it would change, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """Configurations that are no plan, by what rules them out."""

    # `accuracy`, `latency`, `machines`, `cost`, `failure`, `undecided`, `restriction` or
    # `unmeasured`
    by: str
    configurations: int  # how many
    nearest: str  # what the nearest of them gives, in words; empty where nothing is known


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a plan is what it is."""

    plan: Plan  # the plan
    operators: tuple[OperatorPart, ...]  # in topological order
    alternatives: tuple[Alternative, ...]  # each operator on each other tier
    ruled_out: tuple[RuledOut, ...]  # what is no plan and why


def explained(plan: Plan, answer: Answer, known: Known) -> Explanation:
    """Return why a plan is what it is; InvalidInput if its configuration was not measured."""
    mine = next((m for m in answer.measured if m.configuration == plan.configuration), None)
    if mine is None:
        raise InvalidInput.of("plan", "must be of a configuration that was measured", plan.id)
    context = answer.setting.context
    own = divided(context.infrastructure, plan.deployment.further)
    placement, shares = deployment_arrays(context.graph, own, plan.deployment)
    within = replace(context, infrastructure=own)
    tiers = len(context.infrastructure.tiers) - len(context.further)
    return Explanation(
        plan=plan,
        operators=_operators(within, plan, mine, placement, shares),
        alternatives=tuple(
            _moved(answer.setting, plan, mine, o=o, to=to)
            for o, operator in enumerate(context.graph.operators)
            for to in range(tiers)
            if context.infrastructure.tiers[to].name != plan.deployment.placement[operator.name]
        ),
        ruled_out=_ruled_out(answer, known),
    )


def _operators(
    context: PlanningContext,
    plan: Plan,
    measured: Measured,
    placement: TierArray,  # (1, O)
    shares: FloatArray,  # (1, O)
) -> tuple[OperatorPart, ...]:
    graph, infrastructure = context.graph, context.infrastructure
    work = mean_work(measured.work)
    busy = busy_seconds(graph, infrastructure, work, placement, shares)[0, :, 0]
    names = [infrastructure.tiers[t].name for t in placement[0]]
    usd = np.zeros(len(names)) if work.used is None else work.used[:, _USD, 0]
    calls_usd = plan.calls_usd_per_hour * usd / usd.sum() if usd.any() else usd
    price, total = defaultdict[str, float](float), defaultdict[str, float](float)
    for name, item in plan.deployment.demand_of(graph).items():
        copies = plan.deployment.replicas[plan.deployment.groups[name][0]]
        price[name] = copies * item.share * infrastructure.tier(name).price_usd_per_hour
    for name, seconds in zip(names, busy, strict=True):
        total[name] += float(seconds)
    origin = infrastructure.origin or infrastructure.tiers[0].name
    parts = []
    for o, operator in enumerate(graph.operators):
        sources = [(names[p], float(work.output_bytes[p, 0])) for p in graph.parents[o]] or [
            (origin, float(work.input_bytes[0]))
        ]
        routes = [(infrastructure.route(tier, names[o]), size) for tier, size in sources]
        part = float(busy[o]) / total[names[o]] if total[names[o]] > 0 else 0.0
        parts.append(
            OperatorPart(
                operator=operator.name,
                after=tuple(graph.operators[p].name for p in graph.parents[o]),
                tier=plan.deployment.placement[operator.name],
                share=float(shares[0, o]),
                knobs=plan.configuration.of(operator.name),
                seconds=float(busy[o]),
                transfer_s=max(r.delay_s + r.s_per_byte * size for r, size in routes),
                cost_usd_per_hour=price[names[o]] * part + float(calls_usd[o]),
                usd_per_request=float(usd[o]),
            )
        )
    return tuple(parts)


def _moved(
    setting: SearchSetting,
    plan: Plan,
    measured: Measured,
    *,
    o: int,
    to: int,
) -> Alternative:
    context, spots = setting.context, setting.placements_of(measured.configuration)
    placed = plan.deployment.placement
    target = [
        context.infrastructure.position(placed[each.name]) for each in context.graph.operators
    ]
    target[o] = to
    spot = spots.take(np.flatnonzero((tier_of(context)[spots.tiers] == target).all(axis=1)))
    allowed = allowed_tiers(context.graph, context.infrastructure, context.query.restrictions)
    tier, cost = context.infrastructure.tiers[to], None
    if to not in allowed[o]:
        because = "ruled out by a restriction"
    elif (called := called_by(context.graph.operators[o], measured.configuration)) and not (
        called <= {each.name for each in tier.endpoints}
    ):
        because = f"it calls {', '.join(sorted(called))}, not all of which are there"
    elif not called and not tier.machines > 0:
        because = "the tier has no machine"
    elif not len(spot) and tier.share_steps is not None:
        because = "its GPUs give no share for so many operators at once, or data goes back down"
    elif not len(spot):
        because = "placements that send data back down were left out"
    elif cheapest := feasible_plans(replace(setting, placements=spot), measured, most=1):
        cost = cheapest[0].cost_usd_per_hour
        because = _compared(context, plan, cheapest[0])
    else:
        because = _missed(context, spot, measured)
    return Alternative(
        operator=context.graph.operators[o].name,
        tier=tier.name,
        possible=cost is not None,
        cost_usd_per_hour=cost,
        because=because,
    )


def _missed(context: PlanningContext, spot: Placements, measured: Measured) -> str:
    full = predict(context, spot, measured.work, spot.full_steps)
    bound = context.slo.latency_s
    use = tightest(context, spot.called, measured.work)
    rate = context.requests_per_s
    if not full.fits[0] and use is not None and rate and rate > _PLANNED * use.most_per_s:
        limit = use.limit.replace("_", " ")
        return f"ruled out by {use.endpoint}: its limit on {limit} is {use.allowed:.15g}"
    if not full.fits[0]:
        return "ruled out by machines: they do not hold the copies that the rate needs"
    if (least := full.latency_s[0]) > bound:
        latency, allowed = units.seconds(least), units.seconds(bound)
        return f"ruled out by latency: {latency} on whole machines, {allowed} allowed"
    return "ruled out by cost: no allocation in time is cheap enough"


def _compared(context: PlanningContext, plan: Plan, other: Plan) -> str:
    more = ranked_by(context, other) - ranked_by(context, plan)
    later = other.latency_s.value - plan.latency_s.value
    dollars = units.dollars_per_hour(abs(more))
    if context.by_request:
        dollars = f"${abs(more):.4g} per 1,000 requests"
    cost = f"costs {dollars} {'more' if more >= 0 else 'less'}"
    return f"{cost}, takes {units.seconds(abs(later))} {'more' if later >= 0 else 'less'}"


def _ruled_out(answer: Answer, known: Known) -> tuple[RuledOut, ...]:
    planned = {plan.configuration for plan in answer.plans}
    by: dict[str, list[Measured]] = defaultdict(list)
    for one in answer.measured:
        if one.configuration not in planned:
            by[_reason(one, answer)].append(one)
    words_of = {
        "accuracy": lambda m: (m.accuracy.value, _scored(m)),
        "undecided": lambda m: (m.accuracy.value, f"{_scored(m)} so far"),
        "latency": lambda m: (-m.latency_s, f"{units.seconds(m.latency_s)} on whole machines"),
        "machines": lambda m: (-m.latency_s, "they do not hold the copies that the rate needs"),
        "cost": lambda m: (m.accuracy.value, f"{_scored(m)}, but beaten"),
    }
    result = [
        (reason, len(ones), max(map(describe, ones))[1])
        for reason, describe in words_of.items()
        if (ones := by[reason])
    ]
    whole, left = ConfigurationSpace(known.graph).size, answer.setting.space.size
    counted = len(answer.measured) + len(answer.failed)
    result += [
        ("failure", len(answer.failed), answer.failed[0].failure.cause if answer.failed else ""),
        ("restriction", whole - left, ""),
        ("unmeasured", left - counted, ""),
    ]
    return tuple(
        RuledOut(by=reason, configurations=count, nearest=words)
        for reason, count, words in result
        if count > 0
    )


def _scored(measured: Measured) -> str:
    return f"accuracy {measured.accuracy.value:.4g}{measured.accuracy.over}"


def _reason(measured: Measured, answer: Answer) -> str:
    slo = answer.setting.slo
    if measured.latency_s > slo.latency_s:
        return "machines" if is_crowded(answer.setting, measured) else "latency"
    if measured.configuration in answer.accurate:
        return "cost"
    return "accuracy" if measured.accuracy.value < slo.accuracy else "undecided"
