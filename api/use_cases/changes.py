"""Circumstances to try: figures changed by a factor, by an amount, or to a value.

`0.8x` times, `+2` and `-2` more or fewer, `5` exactly.
"""

from __future__ import annotations

import re
from dataclasses import replace

from circinus.api.schemas.base import BYTES_PER_MBIT
from circinus.api.schemas.explanation import NUMBER, BreakEvenView, ObjectiveChange, WhatIfBody
from circinus.api.schemas.plans import plan_view
from circinus.pipelines import checks, ranges
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.query import Query
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import RATE_PER_S, Range
from circinus.planner.answers.break_even import BreakEven

_CHANGE = re.compile(rf"(?P<sign>[+-]?)(?P<number>{NUMBER})(?P<times>x?)")

_RANGES = {
    "price": ranges.PRICE_USD_PER_HOUR,
    "machines": ranges.MACHINES,
    "speed": ranges.SPEED_FACTOR,
    "bandwidth": ranges.BANDWIDTH_MBIT_PER_S,
}


def changed(name: str, value: float, change: str, within: Range) -> float:
    """Return a figure after a change (empty: as it was).

    InvalidInput if that is no such text, or leads out of the figure's range.
    """
    if not change:
        return value
    figure = _figure(name, value, change)
    within.check(name, figure)
    return figure


def _figure(name: str, value: float, change: str) -> float:
    match = _CHANGE.fullmatch(change)
    if match is None or (match["sign"] and match["times"]):
        raise InvalidInput.of(name, "must be like 0.8x, +2, -2 or 5", change)
    number = float(match["number"])
    if match["times"]:
        return value * number
    return value + (-number if match["sign"] == "-" else number) if match["sign"] else number


def changed_query(query: Query, change: ObjectiveChange) -> Query:
    """Return the query with other SLOs; InvalidInput if one is malformed or cannot be."""
    slo = query.slo
    return replace(
        query,
        slo=replace(
            slo,
            accuracy=changed("accuracy", slo.accuracy, change.accuracy, ranges.ACCURACY),
            latency_s=changed("latency", slo.latency_s, change.latency, ranges.LATENCY_S),
            cost_usd_per_hour=_changed_cost(
                "cost", slo.cost_usd_per_hour, change.cost, ranges.COST_USD_PER_HOUR
            ),
            cost_usd_per_1000_requests=_changed_cost(
                "cost_per_1000",
                slo.cost_usd_per_1000_requests,
                change.cost_per_1000,
                ranges.COST_USD_PER_1000_REQUESTS,
            ),
        ),
    )


def _changed_cost(name: str, cost: float | None, change: str, within: Range) -> float | None:
    """Return a bound on a cost after a change; one that is not there takes a value only."""
    if not change:
        return cost
    if cost is None:
        rule = "must be a value: the query bounds no cost"
        checks.require(change[-1] != "x" and change[0] not in "+-", name, rule, change)
    return changed(name, cost or 0.0, change, within)


def changed_infrastructure(infrastructure: Infrastructure, change: WhatIfBody) -> Infrastructure:
    """Return it with other figures; InvalidInput if one is malformed, impossible or of nothing."""
    tiers = [name for tier in infrastructure.tiers for name in tier.pools]
    links = ["-".join(link.between) for link in infrastructure.links]
    sentence = f"must name a tier ({', '.join(tiers)})"
    for field in ("price", "machines", "speed"):
        for tier in getattr(change, field):
            checks.require(tier in tiers, field, sentence, tier)
    for name in change.bandwidth:
        rule = f"must name a link ({', '.join(links) or 'there is none'})"
        checks.require(name in links, "bandwidth", rule, name)

    def new(field: str, name: str, value: float) -> float:
        text = getattr(change, field).get(name, "")
        return changed(f"{field}.{name}", value, text, _RANGES[field])

    def new_machines(tier: str, machines: int) -> int:
        count = new("machines", tier, machines)
        rule = "must leave a whole number"
        checks.require(count == int(count), f"machines.{tier}", rule, count)
        return int(count)

    def new_pool(name: str, pool: Tier) -> Tier:
        return replace(
            pool,
            price_usd_per_hour=new("price", name, pool.price_usd_per_hour),
            machines=new_machines(name, pool.machines),
            speed_factor=new("speed", name, pool.speed_factor),
        )

    return replace(
        infrastructure,
        tiers=tuple(tier.changed(new_pool) for tier in infrastructure.tiers),
        links=tuple(
            replace(
                link,
                bandwidth_bytes_per_s=BYTES_PER_MBIT
                * new("bandwidth", name, link.bandwidth_bytes_per_s / BYTES_PER_MBIT),
            )
            for name, link in zip(links, infrastructure.links, strict=True)
        ),
    )


_RATES = re.compile(rf"(?P<low>{NUMBER}):(?P<high>{NUMBER})")
_ALIKE = 1e-3
"""Relative difference of two rates below which only one is printed."""


def rates_of(query: Query, text: str) -> tuple[float, float]:
    """Return the range of rates, `LOW:HIGH` in requests per second.

    InvalidInput if it is no such text, or one is out of range, or the query has no rate.
    """
    rule = "must be left out with slo.throughput_per_s"
    checks.require(query.slo.throughput_per_s is None, "rate", rule, text)
    match = _RATES.fullmatch(text)
    if match is None:
        raise InvalidInput.of("rate", "must be LOW:HIGH, such as 0.1:50", text)
    low, high = float(match["low"]), float(match["high"])
    for rate in (low, high):
        RATE_PER_S.check("rate", rate)
    checks.require(low < high, "rate", "must be LOW:HIGH with LOW < HIGH", text)
    return low, high


def break_even_view(
    result: BreakEven, query: Query, infrastructure: Infrastructure
) -> BreakEvenView:
    """Return the view of a break-even for the owner of the query."""
    plans = {"calling": result.calling, "renting": result.renting}
    return BreakEvenView.of(
        result,
        words=_words(result),
        **{
            kind: None if plan is None else plan_view(plan, query.slo, infrastructure)
            for kind, plan in plans.items()
        },
    )


def _words(result: BreakEven) -> str:
    span = f"from {result.low:.4g} to {result.high:.4g} requests/s"
    if result.rate is None:
        if result.calling is None and result.renting is None:
            return f"{span} no measured plan does"
        if result.renting is None:
            return f"{span} only plans that call endpoints would do"
        return f"{span} plans that call endpoints are cheapest"
    if result.calling is None:
        return f"{span} only plans on machines would do"
    least = "?" if result.rate_low is None else f"{result.rate_low:.4g}"
    most = f"beyond {result.high:.4g}" if result.rate_high is None else f"{result.rate_high:.4g}"
    sentence = (
        f"machines become cheaper than calls at {result.rate:.4g} requests/s ({least} to {most})"
    )
    if result.rate == result.low:
        sentence = f"at {result.low:.4g} requests/s machines are cheaper than calls already"
    if result.for_good is None:
        return f"{sentence}; at {result.high:.4g} calls are cheaper again, as machines come whole"
    if result.for_good > result.rate * (1 + _ALIKE):
        return f"{sentence}, for good from {result.for_good:.4g} on, as machines come whole"
    return sentence
