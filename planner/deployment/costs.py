"""Dollars of a plan: of the machines that it rents and of the calls that it makes.

| symbol | meaning |
| --- | --- |
| M | US dollars per hour of machines |
| u | US dollars of the calls of one request, mean over inputs |
| rate | requests per second; where they come one after the other, 1 / mean latency |

An hour costs M + 3600 rate u, 1,000 requests cost 1000 (M / (3600 rate) + u).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circinus.pipelines.model.endpoints import Usage
from circinus.pipelines.model.latency import Work
from circinus.pipelines.model.plan import Plan
from circinus.pipelines.model.profile import FloatArray
from circinus.pipelines.model.query import PlanningContext

_SECONDS_PER_HOUR, _THOUSAND = 3600.0, 1000.0
_USD = Usage._fields.index("usd")

SHORTEST_S = 1e-6
"""What a request takes at least where they come one after the other: no rate is infinite."""


class Costs(NamedTuple):
    """US dollars, of one plan or of each of many."""

    per_hour: FloatArray
    per_1000: FloatArray | None  # None: nothing in the query depends on it


def usd_of_inputs(work: Work) -> FloatArray:  # (n,)
    """Return the US dollars of the calls of every input."""
    if work.used is None:
        return np.zeros(len(work.input_bytes))
    return np.asarray(work.used[:, _USD].sum(axis=0))


def costs(
    machines_usd_per_hour: FloatArray,  # M, (A,)
    usd: float,  # u
    requests_per_s: FloatArray | float,  # rate, `> 0`, (A,) or the same for all
) -> Costs:
    """Return what plans cost by the hour and for 1,000 requests, (A,) each."""
    return Costs(
        per_hour=machines_usd_per_hour + _SECONDS_PER_HOUR * requests_per_s * usd,
        per_1000=_THOUSAND * (machines_usd_per_hour / (_SECONDS_PER_HOUR * requests_per_s) + usd),
    )


def one_by_one(mean_s: FloatArray) -> FloatArray:
    """Return requests per second that come one after the other, of their mean seconds."""
    return np.asarray(1 / np.maximum(mean_s, SHORTEST_S))


# deviates: cost-by-request
def ranked_by(context: PlanningContext, plan: Plan) -> float:
    """Return the cost by which a plan is cheaper than others: see `PlanningContext.by_request`."""
    return plan.cost_usd_per_1000_requests if context.by_request else plan.cost_usd_per_hour


def hourly(context: PlanningContext, plan: Plan) -> float:
    """Return that cost in US dollars per hour, at a rate that is the same for all plans.

    Where requests come one after the other it is that of requests as slow as the SLO allows.
    """
    if not context.by_request:
        return plan.cost_usd_per_hour
    rate = usual_rate(context)
    return plan.cost_usd_per_1000_requests * rate * _SECONDS_PER_HOUR / _THOUSAND


def usual_rate(context: PlanningContext) -> float:
    """Return the rate of `hourly`."""
    return context.requests_per_s or 1 / context.slo.latency_s
