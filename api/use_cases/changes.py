"""Circumstances to try: figures changed by a factor, by an amount, or to a value.

`0.8x` times, `+2` and `-2` more or fewer, `5` exactly.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import isfinite

from circinus.api.schemas.explanation import ObjectiveChange, WhatIfBody
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.query import Query

_CHANGE = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?)(?P<times>x?)"
)


_BYTES_PER_MBIT = 1e6 / 8


def changed(name: str, value: float, change: str) -> float:
    """Give a figure after a change; empty: as it was.

    Raises:
        InvalidInput: If the text is none of the three forms.
    """
    if not change:
        return value
    match = _CHANGE.fullmatch(change.strip())
    good = match is not None and not (match["sign"] and match["times"])
    if match is None or not good or not isfinite(float(match["number"])):
        raise InvalidInput.of(name, "must be like 0.8x, +2, -2 or 5", change)
    number = float(match["number"])
    if match["times"]:
        return value * number
    return value + (-number if match["sign"] == "-" else number) if match["sign"] else number


def changed_query(query: Query, change: ObjectiveChange) -> Query:
    """Give the query with other SLOs.

    Raises:
        InvalidInput: If a change is malformed or leads to what no SLO can be.
    """
    slo = query.slo
    cost = slo.cost_usd_per_hour
    if change.cost and cost is None:
        rule = "must be a value: the query bounds no cost"
        checks.require(
            change.cost[-1] != "x" and change.cost[0] not in "+-", "cost", rule, change.cost
        )
        cost = 0.0
    return replace(
        query,
        slo=replace(
            slo,
            accuracy=changed("accuracy", slo.accuracy, change.accuracy),
            latency_s=changed("latency", slo.latency_s, change.latency),
            cost_usd_per_hour=None if cost is None else changed("cost", cost, change.cost),
        ),
    )


def changed_infrastructure(infrastructure: Infrastructure, change: WhatIfBody) -> Infrastructure:
    """Give the infrastructure with other prices, machines, speeds and links.

    Raises:
        InvalidInput: If a tier or link is not there, or a change is malformed or leads to what
            none can be.
    """
    names = [tier.name for tier in infrastructure.tiers]
    links = {"-".join(link.between): link for link in infrastructure.links}
    for field_name in ("price", "machines", "speed"):
        for tier in getattr(change, field_name):
            checks.require(
                tier in names, field_name, f"must name a tier ({', '.join(names)})", tier
            )
    for name in change.bandwidth:
        rule = f"must name a link ({', '.join(links) or 'there is none'})"
        checks.require(name in links, "bandwidth", rule, name)
    return replace(
        infrastructure,
        tiers=tuple(
            replace(
                tier,
                price_usd_per_hour=changed(
                    f"price.{tier.name}", tier.price_usd_per_hour, change.price.get(tier.name, "")
                ),
                machines=_machines(tier.name, tier.machines, change),
                speed_factor=changed(
                    f"speed.{tier.name}", tier.speed_factor, change.speed.get(tier.name, "")
                ),
            )
            for tier in infrastructure.tiers
        ),
        links=tuple(
            replace(
                link,
                bandwidth_bytes_per_s=_BYTES_PER_MBIT
                * changed(
                    f"bandwidth.{name}",
                    link.bandwidth_bytes_per_s / _BYTES_PER_MBIT,
                    change.bandwidth.get(name, ""),
                ),
            )
            for name, link in links.items()
        ),
    )


def _machines(tier: str, machines: int, change: WhatIfBody) -> int:
    count = changed(f"machines.{tier}", machines, change.machines.get(tier, ""))
    rule = "must leave a whole number >= 0"
    checks.require(count >= 0 and count == int(count), f"machines.{tier}", rule, count)
    return int(count)
