"""What measured configurations would meet at most, where none meets the objectives.

A relaxation is the nearest bound of one SLO that a measured plan would have met, the other SLOs
unchanged, with the bound that would surely do: a bound at the estimate itself would be missed half
the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np

from circinus.pipelines import units
from circinus.pipelines.model.latency import TierArray
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.shares import FULL_STEPS
from circinus.pipelines.model.slo import SURE, Slo
from circinus.planner.deployment.callers import tightest
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.prediction import copies_held, meets, predict
from circinus.planner.deployment.shares import MOST_ROWS, allocations
from circinus.planner.models.ahead import highest_bound
from circinus.planner.models.latency_tail import LatencyTail
from circinus.planner.search.intervals import upper_ratio
from circinus.planner.strategy.protocol import Measured, SearchSetting

_Item = TypeVar("_Item")

COSTS = ("cost", "cost_per_1000")
"""By the hour, and for 1,000 requests: as `Plan.states` names them."""

_ANY_USD = 1e12  # more than anything costs: what is bounded by it is compared, and not bound
_HALVINGS = 40  # of the rate: to a part in 10^12


def is_crowded(setting: SearchSetting, measured: Measured) -> bool:
    """Return whether a configuration is in time somewhere, but machines do not hold its copies."""
    context, spots = setting.context, setting.placements_of(measured.configuration)
    if context.requests_per_s is None:
        return False
    full = predict(context, spots, measured.work, spots.full_steps)
    quick = full.latency_s <= context.slo.latency_s
    return bool((quick & ~full.fits).any() and not (quick & full.fits).any())


def most_rate(setting: SearchSetting, measured: Measured) -> float:
    """Return the most requests per second that are in time on all machines; 0: none are."""
    spots = setting.placements_of(measured.configuration)

    def holds(rate: float) -> bool:
        query = replace(setting.context.query, request_rate_per_s=rate)
        context = replace(setting.context, query=query)
        full = predict(context, spots, measured.work, spots.full_steps)
        return bool(meets(context, full).any())

    low, high = 0.0, setting.context.query.request_rate_per_s or 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def least_latency_within(setting: SearchSetting, measured: Measured) -> float:
    """Return the least latency within the cost SLO on the machines; inf: there is none.

    Under a cost SLO over all shares of all tiers where they are few enough to try, otherwise over
    equal shares on all tiers: a bound that unlike shares might still improve on.
    """
    least, slo = inf, setting.slo
    placements = setting.placements_of(measured.configuration)
    for rows, steps in _tried(setting, placements):
        at = allocations(setting.context, placements.take(rows), measured.work, steps)
        holds = at.fits & (at.cost_usd_per_hour <= cost_bounds(slo).get("cost", inf))
        if at.cost_usd_per_1000_requests is not None:
            holds &= at.cost_usd_per_1000_requests <= cost_bounds(slo).get("cost_per_1000", inf)
        least = min(least, float(at.latency_s[holds].min(initial=inf)))
    return least


def _tried(setting: SearchSetting, placements: Placements) -> list[tuple[TierArray, TierArray]]:
    full, every = placements.full_steps, np.arange(len(placements))
    if not cost_bounds(setting.slo):
        return [(every, full)]
    used = np.flatnonzero((placements.widths > 0).any(axis=0)).tolist()
    if len(every) * FULL_STEPS ** len(used) > MOST_ROWS:
        return [(every, np.minimum(full, k)) for k in range(1, FULL_STEPS + 1)]
    vectors = np.full((FULL_STEPS ** len(used), full.shape[1]), FULL_STEPS)
    each = list(itertools.product(range(1, FULL_STEPS + 1), repeat=len(used)))
    vectors[:, used] = np.array(each, dtype=np.int64).reshape(len(vectors), len(used))
    rows = np.repeat(every, len(vectors))
    return [(rows, np.minimum(full[rows], np.tile(vectors, (len(every), 1))))]


def most_throughput(setting: SearchSetting, measured: Measured) -> float:
    """Return the most requests per second that all machines finish, at full shares."""
    context, work = setting.context, measured.work
    placements = setting.placements_of(measured.configuration)
    full = predict(context, placements, work, placements.full_steps)
    held = copies_held(context.infrastructure, placements, placements.full_steps)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(full.service_s > 0, held / full.service_s, inf).min(axis=1)
    use = tightest(context, placements.called, work)
    return min(float(each.max()), inf if use is None else use.most_per_s)


def cost_bounds(slo: Slo) -> dict[str, float]:
    """Return the most US dollars of each cost that is bounded."""
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    return {name: most for name, most in zip(COSTS, bounds, strict=True) if most is not None}


def at_any_cost(slo: Slo) -> Slo:
    """Return the objectives without bounds on costs, plans ranked by the same costs."""
    bounded = slo.cost_usd_per_1000_requests is not None
    thousand = _ANY_USD if bounded else None
    return replace(slo, cost_usd_per_hour=None, cost_usd_per_1000_requests=thousand)


def cost_of(name: str, plan: Plan) -> float:
    """Return one of the costs of a plan, in US dollars."""
    return plan.cost_usd_per_hour if name == "cost" else plan.cost_usd_per_1000_requests


def cost_relaxed(name: str, plan: Plan, slower: float) -> tuple[float, float]:
    """Return a bound that a plan keeps, and one that it surely does.

    Requests may take `slower` times as long, so machines cost about as many times more, and calls
    may cost as much as the upper end of their interval.
    """
    cost, calls = cost_of(name, plan), plan.calls
    dearer = 1.0
    if calls is not None and calls.usd_per_request.value > 0:
        dearer = calls.usd_per_request.high / calls.usd_per_request.value
    of_calls = plan.calls_usd_per_hour
    if name != "cost":
        of_calls = 0.0 if calls is None else 1000 * calls.usd_per_request.value
        if plan.requests_per_s is None:  # machines are used for as long, too
            slower *= slower
    return cost, (cost - of_calls) * slower + of_calls * dearer


def cost_in_words(name: str, usd: float) -> str:
    """Return US dollars of one of the costs, in words."""
    if name == "cost":
        return units.dollars_per_hour(usd)
    return f"${usd:.4g} per 1,000 requests"


def costs_in_words(slo: Slo, plan: Plan) -> str:
    """Return what a plan costs, by the hour and by what else is bounded, in words."""
    names = ["cost", *(name for name in cost_bounds(slo) if name != "cost")]
    return " and ".join(cost_in_words(name, cost_of(name, plan)) for name in names)


@dataclass(frozen=True, kw_only=True, eq=False)
class MeasuredOption:
    """A measured configuration with the plan that it would have, and whether SLOs hold there."""

    measured: Measured
    make_plan: Callable[[], Plan]  # makes `plan`
    accurate: bool  # whether it counts as accurate enough, or is not decided
    in_time: bool
    crowded: bool  # whether it would be, on machines that held all copies
    slo: Slo  # what it is measured by

    @cached_property
    def plan(self) -> Plan:
        """Its cheapest plan that meets the latency SLO, or its fastest; made where it is used."""
        return self.make_plan()

    @property
    def in_cost(self) -> bool:
        """Whether the plan is cheap enough."""
        return all(self.meets(name) for name in cost_bounds(self.slo))

    def meets(self, name: str) -> bool:
        """Return whether the plan is cheap enough by one of the costs."""
        bound = cost_bounds(self.slo).get(name, inf)
        return bound == inf or cost_of(name, self.plan) <= bound


class Relaxation(NamedTuple):
    """A bound that would have been met."""

    value: float  # by the estimates
    sure: float  # with `planner.models.estimates.CONFIDENCE` at least


def relaxations(
    setting: SearchSetting,
    options: Sequence[MeasuredOption],
    tail: LatencyTail,
    confidence: float | None,
    late: Callable[[], bool],
) -> dict[str, Relaxation]:
    """Return the sufficient bound of each SLO; one is missing when relaxing it helps none."""
    slo, ahead = setting.slo, setting.is_ahead
    # With how much slower they may be, as plans are judged: what is sure here is announced.
    enough = [
        (o, upper_ratio(setting, o.measured, tail, confidence))
        for o in _until(late, (o for o in options if o.accurate))
        if not ahead or _is_sure(o.plan)
    ]
    # Ahead, plans are as cheap as they may be already.
    in_time = [(o, 1.0 if ahead else slower) for o, slower in enough if o.in_time]
    candidates = {
        "accuracy": [_accuracy(setting, o) for o in options if o.in_time and o.in_cost],
        "latency": [
            Relaxation(least, least * slower)
            for o, slower in _until(late, enough)
            if (least := least_latency_within(setting, o.measured)) < inf
        ],
    }
    for name in cost_bounds(slo):
        candidates[name] = [
            Relaxation(*cost_relaxed(name, o.plan, slower))
            for o, slower in in_time
            if all(o.meets(other) for other in cost_bounds(slo) if other != name)
        ]
    if slo.throughput_per_s is not None:
        candidates["throughput"] = [
            Relaxation(most := most_throughput(setting, o.measured), most / slower)
            for o, slower in enough
        ]
    if setting.context.query.request_rate_per_s is not None:
        candidates["request_rate"] = [
            Relaxation(most := most_rate(setting, o.measured), most / slower)
            for o, slower in _until(late, ((o, slower) for o, slower in enough if o.crowded))
        ]
    if ahead:  # only proven plans are announced
        for name in {*candidates} - {"accuracy", *COSTS}:
            candidates[name] = [Relaxation(one.sure, one.sure) for one in candidates[name]]
    nearest = {name: _nearest(setting, name, ones) for name, ones in candidates.items()}
    return {name: one for name, one in nearest.items() if one is not None}


def _accuracy(setting: SearchSetting, option: MeasuredOption) -> Relaxation:
    known, ahead = option.measured.accuracy, option.plan.future
    if ahead is None:
        return Relaxation(known.value, known.low)
    bound = min(ahead.accuracy.low, highest_bound(known.value, setting.population))
    return Relaxation(bound, bound)


def _is_sure(plan: Plan) -> bool:
    return plan.future is not None and plan.future.latency_s.confidence >= SURE


def _until(late: Callable[[], bool], items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the first item in any case, others until it is late."""
    for position, item in enumerate(items):
        if position and late():
            return
        yield item


def _nearest(
    setting: SearchSetting, name: str, candidates: Sequence[Relaxation]
) -> Relaxation | None:
    """Return the nearest bound that relaxes an SLO; where only its sure bound does, that one."""
    if not candidates:
        return None
    if name == "accuracy":  # the surely most accurate: few inputs with good scores show nothing
        nearest = max(candidates, key=attrgetter("sure", "value"))
    else:
        nearest = (max if name in ("throughput", "request_rate") else min)(candidates)
    if _relaxes(setting, name, nearest.value):
        return nearest
    sure = Relaxation(nearest.sure, nearest.sure)
    return sure if _relaxes(setting, name, nearest.sure) else None


def _relaxes(setting: SearchSetting, name: str, bound: float) -> bool:
    """Return whether a bound is easier to meet than that of the query."""
    if name == "accuracy":
        return bound < setting.context.slo.accuracy
    if name == "throughput":
        return 0 < bound < (setting.slo.throughput_per_s or 0.0)
    if name == "request_rate":
        return bound > 0
    return bound > (cost_bounds(setting.slo) | {"latency": setting.slo.latency_s})[name]
