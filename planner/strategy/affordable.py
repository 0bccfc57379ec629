"""What plans of candidates cost before they are measured: whether a bound allows it, and at least.

Costs are in US dollars per hour at the rate of `costs.usual_rate`.
"""

from __future__ import annotations

from math import inf

import numpy as np
from scipy.special import log_ndtr

from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext
from circinus.pipelines.model.shares import SHARE_STEP
from circinus.planner.deployment.costs import usual_rate
from circinus.planner.models.operator_seconds import Seconds

_COST_DEVIATION = 0.4  # of the log of costs: shares come in steps, and caution raises them
_TINY = 1e-12
_ROUNDING = 1e-9
_SECONDS_PER_HOUR = 3600.0


def log_affordable(
    context: PlanningContext, seconds: Seconds, *, widened: float = 1.0
) -> FloatArray:  # (C,)
    """Return the log of the chance that the cheapest deployment meets the cost SLOs."""
    bound, cost = _most_usd_per_hour(context), seconds.share_cost
    if bound == inf or not _is_priced(context):
        return np.zeros(len(cost))
    # Where latency is likely missed there is no cost: the latency SLO says so already. What costs
    # nothing is within any bound.
    finite = np.isfinite(cost) & (cost > 0)
    deviation = np.sqrt(seconds.log_variance + _COST_DEVIATION**2)
    with np.errstate(divide="ignore"):
        ahead = np.log(bound) - np.log(np.where(finite, np.maximum(cost, _TINY), 1.0))
    return np.where(finite, log_ndtr(ahead / (widened * deviation)), 0.0)


def least_costs(context: PlanningContext, seconds: Seconds) -> FloatArray:  # (C,)
    """Return what the cheapest deployment costs at least, a deviation below what is expected.

    Shares of machines come in steps: where all have one price, so do costs. No candidate costs
    less than a step of the cheapest machine, unless free ones do all the work.
    """
    if not _is_priced(context):
        return np.zeros(len(seconds.share_cost))
    least = seconds.share_cost * np.exp(-np.sqrt(seconds.log_variance))
    tiers = context.infrastructure.tiers
    prices = {tier.price_usd_per_hour for tier in tiers if tier.price_usd_per_hour > 0}
    if not prices or any(tier.remote for tier in tiers):
        return least
    step = min(prices) * SHARE_STEP
    stepped = np.ceil(least / step - _ROUNDING) * step if len(prices) == 1 else least
    return np.where(least > 0, np.maximum(stepped, step), 0.0)


def _is_priced(context: PlanningContext) -> bool:
    tiers = context.infrastructure.tiers
    return any(tier.price_usd_per_hour > 0 or tier.remote for tier in tiers)


def _most_usd_per_hour(context: PlanningContext) -> float:
    """Return what the cost SLOs allow; inf: anything."""
    slo, rate = context.slo, usual_rate(context)
    hour = inf if slo.cost_usd_per_hour is None else slo.cost_usd_per_hour
    thousand = slo.cost_usd_per_1000_requests
    return hour if thousand is None else min(hour, thousand / 1000 * rate * _SECONDS_PER_HOUR)
