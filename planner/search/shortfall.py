"""Why no measured plan was enough: which SLO binds, the closest plan, which bounds would do.

SLOs are never relaxed here: relaxations are reported, not applied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from circinus.pipelines import units
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.slo import HoldsFor, Slo, SloState
from circinus.planner.deployment.callers import tightest
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION
from circinus.planner.models.ahead import would_show
from circinus.planner.models.estimates import CONFIDENCE
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.search.intervals import estimated, stricter, upper_ratio
from circinus.planner.search.plans import fastest_plan, feasible_plans
from circinus.planner.search.relaxations import (
    COSTS,
    MeasuredOption,
    Relaxation,
    at_any_cost,
    cost_bounds,
    cost_in_words,
    cost_of,
    costs_in_words,
    is_crowded,
    relaxations,
)
from circinus.planner.search.result import Shortfall
from circinus.planner.strategy.protocol import Ending, Measured, SearchSetting

_MOST_PLANS = 24  # of a configuration, among which the one that costs miss least is looked for
_SMALL = 1e-9  # a bound of 0 is missed by an absolute, not a relative amount


def shortfall(
    setting: SearchSetting,
    measured: Sequence[Measured],  # what was measured
    tail: LatencyTail,  # of operators' seconds, over all configurations
    confidence: float | None,  # of the interval that plans are tightened by; None: they are not
    evidence: str,  # what this rests on, in words
    late: Callable[[], bool] = lambda: False,  # whether time is over; once it is, it stays so
) -> Shortfall:
    """Return why none of the measured configurations meets the SLOs.

    Every configuration stands with its cheapest deployment that meets the latency SLO, or with
    its fastest one when none does, or when its costs decide nothing. Relaxations are as cautious
    as plans are tightened. The most promising ones are looked at first; those that it is too late
    for stand with their fastest deployment: a nearer bound may do, too.
    """
    if not measured:
        return Shortfall(
            binding=(),
            closest=None,
            sentence=f"Nothing is known of the query: {evidence.rstrip('.')}.",
            relaxations={},
            evidence=evidence,
        )
    slo, judged = setting.slo, partial(_option, setting, tail, confidence)
    options = _options(slo, measured, judged, late)
    closest = _closest(slo, options)
    binding = _binding(slo, options)
    relaxed = relaxations(setting, options, tail, confidence, late)
    if late():
        evidence = f"{evidence}; there was no time to compare all of them"
    plan = estimated(setting, closest.plan, closest.measured, tail)
    return Shortfall(
        binding=binding,
        closest=plan,
        sentence=_sentence(setting.context, binding, plan, relaxed, evidence)
        + _crowded(setting, closest.measured),
        relaxations={name: one.value for name, one in relaxed.items()},
        sure_relaxations={name: one.sure for name, one in relaxed.items()},
        evidence=evidence,
    )


def _options(
    slo: Slo,
    measured: Sequence[Measured],
    judged: Callable[..., MeasuredOption],  # gives what one is, see `_option`
    late: Callable[[], bool],
) -> list[MeasuredOption]:
    """Return what was measured, the most promising first.

    Finding the cheapest deployment goes over all placements. Where no cost is bound, costs decide
    among those alone that miss the SLOs by least.
    """
    options = list[MeasuredOption]()
    ordered = sorted(measured, key=partial(_missed, slo))
    least = _missed(slo, ordered[0])
    for one in ordered:
        decides = bool(cost_bounds(slo)) or _missed(slo, one) <= least
        options.append(judged(one, in_full=decides and not (options and late())))
    return options


def _option(
    setting: SearchSetting,
    tail: LatencyTail,
    confidence: float | None,
    measured: Measured,
    *,
    in_full: bool,
) -> MeasuredOption:
    slo, ahead = setting.slo, setting.is_ahead
    ending, score = measured.ending, measured.accuracy.value
    within = stricter(slo, upper_ratio(setting, measured, tail, confidence) if ahead else 1.0)
    plans: tuple[Plan, ...] = ()
    most = 1 if slo.cost_usd_per_1000_requests is None else _MOST_PLANS
    in_time, accurate = measured.latency_s <= within.latency_s, ending is Ending.ACCURATE
    if in_time and in_full:
        plans = feasible_plans(setting.with_slo(at_any_cost(within)), measured, most)

    def make_plan() -> Plan:
        ordered = sorted(plans, key=partial(_dearer, slo))
        plan = ordered[0] if ordered else fastest_plan(setting, measured)
        return estimated(setting, plan, measured, tail) if ahead else plan

    if ahead:
        plan = make_plan()
        states = plan.states(setting.context.slo)
        accurate = states["accuracy"] is SloState.MET
        in_time = in_time and states["latency"] is SloState.MET
    undecided = ending not in (Ending.ACCURATE, Ending.INACCURATE) and score >= slo.accuracy
    return MeasuredOption(
        measured=measured,
        make_plan=(lambda: plan) if ahead else make_plan,
        accurate=accurate or undecided,
        in_time=in_time,
        crowded=not in_time and is_crowded(setting, measured),
        slo=slo,
    )


def _closest(slo: Slo, options: Sequence[MeasuredOption]) -> MeasuredOption:
    """Return the option of least distance; they are ordered by what they miss besides cost."""
    best, least = options[0], _distance(slo, options[0])
    for option in options[1:]:
        if _missed(slo, option.measured) > least[0]:
            break  # and cost adds to that
        if (distance := _distance(slo, option)) < least:
            best, least = option, distance
    return best


def _distance(slo: Slo, option: MeasuredOption) -> tuple[float, float]:
    """Return the sum of relative misses, then the cost."""
    plan = option.plan
    return _missed(slo, option.measured) + _dearer(slo, plan), plan.cost_usd_per_hour


def _dearer(slo: Slo, plan: Plan) -> float:
    """Return the sum of the relative misses of the costs that are bounded."""
    missed = 0.0
    for name, bound in cost_bounds(slo).items():
        cost = cost_of(name, plan)
        missed += max(cost - bound, 0.0) / max(min(bound, cost), _SMALL)
    return missed


def _missed(slo: Slo, measured: Measured) -> float:
    """Return the sum of the relative misses of accuracy, as far as it is known, and latency."""
    inaccurate = max(slo.accuracy - measured.accuracy.low, 0.0) / max(slo.accuracy, _SMALL)
    return inaccurate + max(measured.latency_s / slo.latency_s - 1, 0.0)


def _binding(slo: Slo, options: Sequence[MeasuredOption]) -> tuple[str, ...]:
    """Return the SLOs that nothing meets; if each is met by something, those not met together.

    None where something seems to meet all, and met too few inputs to decide.

    Late configurations meet few inputs: beside a latency that nothing meets, accuracy binds only
    where none of them may have it.
    """
    # What would be in time, but for machines that do not hold its copies, misses the rate.
    load = "request_rate" if slo.throughput_per_s is None else "throughput"
    speed = load if any(option.crowded for option in options) else "latency"
    accurate, in_time = any(o.accurate for o in options), any(o.in_time for o in options)
    if not in_time:
        known = accurate or any(o.measured.accuracy.high >= slo.accuracy for o in options)
        return (speed,) if known else ("accuracy", speed)
    if not accurate:
        return ("accuracy",)
    both = [o for o in options if o.accurate and o.in_time]
    if any(o.in_cost for o in both):
        return ()
    missed = (name for name in cost_bounds(slo) if not any(o.meets(name) for o in both))
    return tuple(missed) or tuple(cost_bounds(slo)) if both else ("accuracy", speed)


def _sentence(
    context: PlanningContext,
    binding: tuple[str, ...],
    closest: Plan,
    relaxed: dict[str, Relaxation],
    evidence: str,
) -> str:
    slo, rate = context.slo, context.requests_per_s
    ahead = closest.future if slo.holds_for is HoldsFor.FUTURE else None
    bounds = {
        "accuracy": f"accuracy >= {slo.accuracy:.15g}",
        "latency": f"{slo.latency_statistic} latency <= {units.seconds(slo.latency_s)}",
        **{
            name: f"cost <= {cost_in_words(name, bound)}"
            for name, bound in cost_bounds(slo).items()
        },
        "throughput": f"throughput >= {slo.throughput_per_s} requests per second",
        "request_rate": f"{rate or 0:.4g} requests per second on the machines that there are",
    }
    words, future = " with ".join(bounds[name] for name in binding), ""
    claim = f"No measured plan is confirmed to reach {words}"
    if not binding:
        claim = "No configuration was measured on enough inputs to confirm a plan"
    if ahead is not None:
        future = f" ({ahead.accuracy.low:.4g}-{ahead.accuracy.high:.4g} for future inputs)"
        claim = f"{claim} for future inputs"
    parts = [
        f"{claim} ({evidence}).",
        f"The closest one has accuracy {closest.accuracy.value:.4g}{closest.accuracy.over}"
        f"{future}, {slo.latency_statistic} latency {units.seconds(closest.latency_s.value)} "
        f"and costs {costs_in_words(slo, closest)} "
        f"({closest.accuracy.inputs} inputs measured).",
    ]
    if relaxed:
        enough = " or ".join(
            f"{name.replace('_', ' ')} {_figure(name, one.value)} ({_sure_figure(name, one)}"
            f"with {CONFIDENCE:.0%} confidence)"
            for name, one in relaxed.items()
        )
        parts.append(f"Enough would have been: {enough}.")
    if ahead is not None and (needed := would_show(ahead, slo)) is not None:
        parts.append(f"About {needed} examples would show it for future inputs.")
    return " ".join(parts)


def _crowded(setting: SearchSetting, measured: Measured) -> str:
    """Return which limit of an endpoint does not let the requests through; empty: all do."""
    context, spots = setting.context, setting.placements_of(measured.configuration)
    rate, use = context.requests_per_s, tightest(context, spots.called, measured.work)
    planned = HIGHEST_UTILISATION if context.slo.throughput_per_s is None else 1.0
    if rate is None or use is None or rate <= use.most_per_s * planned:
        return ""
    limit = f"{use.limit.replace('_', ' ')} of {use.allowed:.15g}"
    return (
        f" Endpoint {use.endpoint} lets {use.most_per_s:.4g} requests per second through, at its "
        f"limit on {limit}; planned for are at most {planned:.0%} of that, asked {rate:.4g}."
    )


def _sure_figure(name: str, one: Relaxation) -> str:
    return "" if one.sure == one.value else f"{_figure(name, one.sure)} "


def _figure(name: str, value: float) -> str:
    if name in COSTS:
        return cost_in_words(name, value)
    if name == "request_rate":
        return f"{value:.4g} per second"
    return units.seconds(value) if name == "latency" else f"{value:.4g}"
