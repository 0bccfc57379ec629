"""The costs that a query may bound, by the names under which they are told."""

from __future__ import annotations

from dataclasses import replace

from circinus.pipelines import units
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.slo import Slo

COSTS = ("cost", "cost_per_1000")
"""By the hour, and for 1,000 requests: as `Plan.states` names them."""

_ANY_USD = 1e12  # more than anything costs: what is bounded by it is looked at, and not bound


def cost_bounds(slo: Slo) -> dict[str, float]:
    """Return the most US dollars of each cost that is bounded."""
    bounds = (slo.cost_usd_per_hour, slo.cost_usd_per_1000_requests)
    return {name: most for name, most in zip(COSTS, bounds, strict=True) if most is not None}


def at_any_cost(slo: Slo) -> Slo:
    """Return the objectives without bounds on costs, plans to be told apart by the same costs."""
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


def cost_told(slo: Slo, plan: Plan) -> str:
    """Return what a plan costs, by the hour and by what else is bounded, in words."""
    names = ["cost", *(name for name in cost_bounds(slo) if name != "cost")]
    return " and ".join(cost_in_words(name, cost_of(name, plan)) for name in names)
