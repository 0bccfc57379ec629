"""Why no measured plan was enough: which SLO binds, the closest plan, what would do.

Told with the nearest bound of each SLO that a measured plan would have met, the others as they
are, and with the bound that would surely do: estimates have intervals, and a bound at the
estimate itself would be missed half the time. For future inputs that one alone would do. SLOs are
never relaxed here: relaxations are told, not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf
from operator import attrgetter
from typing import NamedTuple, TypeVar

from circinus.pipelines import units
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.slo import SURE, HoldsFor, Slo, SloState
from circinus.planner.deployment.endpoint_limits import tightest
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION
from circinus.planner.models.ahead import accuracy_shown, would_show
from circinus.planner.models.estimates import CONFIDENCE
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.plans.plans import estimated, feasible_plans, stricter, upper_ratio
from circinus.planner.search.at_most import (
    is_crowded,
    least_latency_within,
    most_rate,
    most_throughput,
)
from circinus.planner.search.cost_bounds import (
    COSTS,
    at_any_cost,
    cost_bounds,
    cost_in_words,
    cost_of,
    cost_relaxed,
    cost_told,
)
from circinus.planner.search.result import Shortfall
from circinus.planner.search.trials import fastest_plan
from circinus.planner.strategy.protocol import Ending, Measured, SearchSetting

_Item = TypeVar("_Item")

_MOST_PLANS = 24  # of a configuration, among which the one that costs miss least is looked for
_SMALL = 1e-9  # a bound of 0 is missed by an absolute, not a relative amount


@dataclass(frozen=True, kw_only=True, eq=False)
class _Option:
    """A measured configuration with the plan that it would have, and whether SLOs hold there."""

    measured: Measured
    made: Callable[[], Plan]  # gives `plan`
    accurate: bool  # whether it counts as accurate enough, or is not decided
    in_time: bool
    crowded: bool  # whether it would be, on machines that held all copies
    slo: Slo  # what it is measured by

    @cached_property
    def plan(self) -> Plan:
        """Its cheapest plan that meets the latency SLO, or its fastest; most are not asked for."""
        return self.made()

    @property
    def in_cost(self) -> bool:
        """Whether the plan is cheap enough."""
        return all(self.keeps(name) for name in cost_bounds(self.slo))

    def keeps(self, name: str) -> bool:
        """Whether the plan is cheap enough by one of the costs."""
        bound = cost_bounds(self.slo).get(name, inf)
        return bound == inf or cost_of(name, self.plan) <= bound


class Relaxation(NamedTuple):
    """A bound that would have been met."""

    value: float  # by the estimates
    sure: float  # with `planner.models.estimates.CONFIDENCE` at least


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
    for stand with their fastest deployment: what is told would do, something nearer may, too.
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
    relaxed = _relaxations(setting, options, tail, confidence, late)
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
    judged: Callable[..., _Option],  # gives what one is, see `_option`
    late: Callable[[], bool],
) -> list[_Option]:
    """Return what was measured, the most promising first.

    Finding the cheapest deployment goes over all placements. Where no cost is bound, costs decide
    among those alone that miss the SLOs by least.
    """
    options = list[_Option]()
    ordered = sorted(measured, key=partial(_missed, slo))
    least = _missed(slo, ordered[0])
    for one in ordered:
        decides = bool(cost_bounds(slo)) or _missed(slo, one) <= least
        in_full = decides and not (options and late())
        options.append(judged(one, in_full=in_full))
    return options


def _option(
    setting: SearchSetting,
    tail: LatencyTail,
    confidence: float | None,
    measured: Measured,
    *,
    in_full: bool,
) -> _Option:
    slo, asked, ahead = setting.slo, setting.asked, setting.asked.holds_for is HoldsFor.FUTURE
    ending, score = measured.ending, measured.accuracy.value
    within = stricter(slo, upper_ratio(setting, measured, tail, confidence) if ahead else 1.0)
    plans: tuple[Plan, ...] = ()
    most = 1 if slo.cost_usd_per_1000_requests is None else _MOST_PLANS
    in_time, accurate = measured.latency_s <= within.latency_s, ending is Ending.ACCURATE
    if in_time and in_full:
        plans = feasible_plans(setting.with_slo(at_any_cost(within)), measured, most)

    def made() -> Plan:
        ordered = sorted(plans, key=partial(_dearer, slo))
        plan = ordered[0] if ordered else fastest_plan(setting, measured)
        return estimated(setting, plan, measured, tail) if ahead else plan

    if ahead:
        plan = made()
        states = plan.states(asked)
        accurate = states["accuracy"] is SloState.MET
        in_time = in_time and states["latency"] is SloState.MET
    undecided = ending not in (Ending.ACCURATE, Ending.INACCURATE) and score >= slo.accuracy
    return _Option(
        measured=measured,
        made=(lambda: plan) if ahead else made,
        accurate=accurate or undecided,
        in_time=in_time,
        crowded=not in_time and is_crowded(setting, measured),
        slo=slo,
    )


def _closest(slo: Slo, options: Sequence[_Option]) -> _Option:
    """Return the option of least distance; they are ordered by what they miss besides cost."""
    best, least = options[0], _distance(slo, options[0])
    for option in options[1:]:
        if _missed(slo, option.measured) > least[0]:
            break  # and cost adds to that
        if (distance := _distance(slo, option)) < least:
            best, least = option, distance
    return best


def _distance(slo: Slo, option: _Option) -> tuple[float, float]:
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


def _binding(slo: Slo, options: Sequence[_Option]) -> tuple[str, ...]:
    """Return the SLOs that nothing meets; if each is met by something, those not met together.

    None where something seems to meet all, and met too few inputs to say so.

    Late configurations meet few inputs: beside a latency that nothing keeps, accuracy is told
    only where none of them may have it.
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
    missed = (name for name in cost_bounds(slo) if not any(o.keeps(name) for o in both))
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
    asked = {
        "accuracy": f"accuracy >= {slo.accuracy:.15g}",
        "latency": f"{slo.latency_statistic} latency <= {units.seconds(slo.latency_s)}",
        **{
            name: f"cost <= {cost_in_words(name, bound)}"
            for name, bound in cost_bounds(slo).items()
        },
        "throughput": f"throughput >= {slo.throughput_per_s} requests per second",
        "request_rate": f"{rate or 0:.4g} requests per second on the machines that there are",
    }
    words, future = " with ".join(asked[name] for name in binding), ""
    told = f"No measured plan is confirmed to reach {words}"
    if not binding:
        told = "No configuration was measured on enough inputs to confirm a plan"
    if ahead is not None:
        future = f" ({ahead.accuracy.low:.4g}-{ahead.accuracy.high:.4g} for future inputs)"
        told = f"{told} for future inputs"
    parts = [
        f"{told} ({evidence}).",
        f"The closest one has accuracy {closest.accuracy.value:.4g}{closest.accuracy.over}"
        f"{future}, {slo.latency_statistic} latency {units.seconds(closest.latency_s.value)} "
        f"and costs {cost_told(slo, closest)} "
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


def _relaxations(
    setting: SearchSetting,
    options: Sequence[_Option],
    tail: LatencyTail,
    confidence: float | None,
    late: Callable[[], bool],
) -> dict[str, Relaxation]:
    """Return the sufficient bound of each SLO; one is missing when relaxing it helps none."""
    slo, ahead = setting.slo, setting.asked.holds_for is HoldsFor.FUTURE
    # With how much slower they may be, as plans are judged: what is told as sure is announced.
    enough = [
        (o, upper_ratio(setting, o.measured, tail, confidence))
        for o in _until(late, (o for o in options if o.accurate))
        if not ahead or _is_sure(o.plan)
    ]
    accuracies = [_accuracy(setting, o) for o in options if o.in_time and o.in_cost]
    latencies = [
        Relaxation(least, least * slower)
        for o, slower in _until(late, enough)
        if (least := least_latency_within(setting, o.measured)) < inf
    ]
    # Ahead, plans are as cheap as they may be already.
    in_time = [(o, 1.0 if ahead else slower) for o, slower in enough if o.in_time]
    costs = {
        name: [
            Relaxation(*cost_relaxed(name, o.plan, slower))
            for o, slower in in_time
            if all(o.keeps(other) for other in cost_bounds(slo) if other != name)
        ]
        for name in cost_bounds(slo)
    }
    throughputs = [
        Relaxation(most := most_throughput(setting, o.measured), most / slower)
        for o, slower in enough
        if slo.throughput_per_s is not None
    ]
    rates = [
        Relaxation(most := most_rate(setting, o.measured), most / slower)
        for o, slower in _until(late, ((o, slower) for o, slower in enough if o.crowded))
        if setting.context.query.request_rate_per_s is not None
    ]
    if ahead:  # nothing but what is shown is announced
        latencies = [Relaxation(one.sure, one.sure) for one in latencies]
        throughputs = [Relaxation(one.sure, one.sure) for one in throughputs]
        rates = [Relaxation(one.sure, one.sure) for one in rates]
    found: dict[str, tuple[Relaxation | None, Callable[[float], bool]]] = {
        # The one that is surely the most accurate: a few inputs with good scores show nothing.
        "accuracy": (
            max(accuracies, key=attrgetter("sure", "value"), default=None),
            lambda value: value < setting.asked.accuracy,
        ),
        "latency": (min(latencies, default=None), lambda value: value > slo.latency_s),
        **{
            name: (min(found, default=None), partial(_is_above, cost_bounds(slo)[name]))
            for name, found in costs.items()
        },
        "throughput": (
            max(throughputs, default=None),
            lambda value: 0 < value < (slo.throughput_per_s or 0.0),
        ),
        "request_rate": (max(rates, default=None), lambda value: value > 0),
    }
    told = {name: _told(one, beyond) for name, (one, beyond) in found.items() if one is not None}
    return {name: one for name, one in told.items() if one is not None}


def _is_above(bound: float, value: float) -> bool:
    return value > bound


def _accuracy(setting: SearchSetting, option: _Option) -> Relaxation:
    known, ahead = option.measured.accuracy, option.plan.future
    if ahead is None:
        return Relaxation(known.value, known.low)
    shown = min(ahead.accuracy.low, accuracy_shown(known.value, setting.population))
    return Relaxation(shown, shown)


def _is_sure(plan: Plan) -> bool:
    return plan.future is not None and plan.future.latency_s.confidence >= SURE


def _until(late: Callable[[], bool], items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the first item in any case, others until it is late."""
    for position, item in enumerate(items):
        if position and late():
            return
        yield item


def _told(found: Relaxation, beyond: Callable[[float], bool]) -> Relaxation | None:
    """Return what is worth telling: where the bound holds, but is not sure to, the sure one."""
    if beyond(found.value):
        return found
    return Relaxation(found.sure, found.sure) if beyond(found.sure) else None
