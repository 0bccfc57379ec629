"""What one configuration would do at most, where no plan of it meets the objectives."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import inf

import numpy as np

from circinus.pipelines.model.latency import TierArray
from circinus.pipelines.model.shares import FULL_STEPS
from circinus.planner.deployment.endpoint_limits import tightest
from circinus.planner.deployment.placement import Placements
from circinus.planner.deployment.prediction import copies_held, meets, predict
from circinus.planner.deployment.shares import MOST_ROWS, allocations
from circinus.planner.search.cost_bounds import cost_bounds
from circinus.planner.strategy.protocol import Measured, SearchSetting

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
