"""How many of each unit a regime wants, and their traffic weights: published and ours by name.

Traffic weights as published (3.3, 5.4.2; the paper numbers two equations 5 and two 6, so sections
are named):

    cost       w_i = (1 / DU^c_i) / sum_j 1 / DU^c_j    over all units
    capacity   w_i = 1 / n                              over the n units that can be had
    adjusted   T^adj_i = min(T^target, T^max_i)         (7, 8); T^target = mean T^max, T_i in eq. 8

Where the paper contradicts itself, and what is done here:

- *Cost weights*: "determined by the cost-to-latency ratio" (text). The equation has no
  latency, and by that ratio units that are slow for their price would get the most. The equation
  counts.
- *Supply*: sum DU^r_i T_i in eq. 2, and sum w_i T_i DU^r_i in the last equation of 3.3, which is
  at most the largest term of the first. The first counts: it is what units can do.
- *Average latency* (eq. 4) is a sum. `mean_latency_s` weighs by traffic.
- *Capacity weights*: "reduces the weight" of units that lack capacity "and normalizes the
  distribution weight" of the others (3.3) leaves dear units less than cheap ones; equation 6 and
  5.4.2 ("equal share") give all the same. Equation 6 counts. That quick units "handle a higher
  volume" (5.4.2) contradicts both.
- *Switch*: "based on Equation 2" (text), by equation 3 (its formula), which counts.
- *Share of inf2*: 40 % in cost mode (5.4.1); the equation gives it 25 %, its inverse cost of an
  inference (table 1) 30 %. The equation counts.

Ours: each unit gets what it can do, w_i = n_i T^max_i / sum_j n_j T^max_j, with the numbers n of
the cheapest that serve the demand (`cheapest_counts`) in cost mode, and else of as many of each
as its part of all that can be had takes. So all are equally busy, and cost mode costs the
program's optimum; by the inverse of the price dear units that nobody needs get a part as well.

Numbers of units that serve a demand for the least money (3.2):

    minimise    sum_i DU^r_i DU^c_i                                   (1)
    subject to  sum_i DU^r_i T_i >= T^d                               (2)
                DU^r_i <= DU^p_i                                      (3)

of the adaptive orchestration paper, over whole numbers, or over any for the bound that no choice
is below. Units that are slower than the route allows are left out, which the paper does by hand
(its eager mode on an L4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil

import numpy as np
import pulp

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.regimes import Regime
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute


def cheapest_counts(
    route: EndpointRoute, available: Mapping[str, int | None] | None = None
) -> dict[str, int] | None:
    """Return unit -> how many, for the least money; None: all that can be had are too few.

    `available` replaces the limits of the units.
    """
    counts = _solved(route, available, whole=True)
    return None if counts is None else {name: round(count) for name, count in counts.items()}


def least_usd_per_hour(
    route: EndpointRoute, available: Mapping[str, int | None] | None = None
) -> float | None:
    """Return the price that no numbers are below, parts of units allowed; None: too few."""
    counts = _solved(route, available, whole=False)
    if counts is None:
        return None
    return sum(counts[unit.name] * unit.price_usd_per_hour for unit in route.units)


def all_counts(
    route: EndpointRoute, available: Mapping[str, int | None] | None = None
) -> dict[str, int]:
    """Return what there is of units that are quick enough; of those without end, what would do."""
    return {unit.name: _most(route, unit, available) for unit in route.units}


def _solved(
    route: EndpointRoute, available: Mapping[str, int | None] | None, *, whole: bool
) -> dict[str, float] | None:
    model = pulp.LpProblem("units", pulp.LpMinimize)
    kind = pulp.LpInteger if whole else pulp.LpContinuous
    counts = {
        unit.name: model.add_variable(f"n{i}", 0, _most(route, unit, available), kind)
        for i, unit in enumerate(route.units)
    }
    model += pulp.lpSum(counts[unit.name] * unit.price_usd_per_hour for unit in route.units)
    supply = pulp.lpSum(counts[unit.name] * unit.most_per_s for unit in route.units)
    model += supply >= route.demand_per_s
    model.solve(pulp.HiGHS(msg=False, gapRel=0.0, threads=1))
    if model.sol_status != pulp.LpSolutionOptimal:
        return None
    return {name: float(count.value() or 0.0) for name, count in counts.items()}


def _most(
    route: EndpointRoute, unit: DeploymentUnit, available: Mapping[str, int | None] | None
) -> int:
    if not route.allows(unit):
        return 0
    limit = unit.available if available is None else available.get(unit.name, unit.available)
    enough = ceil(route.demand_per_s / unit.most_per_s)
    return enough if limit is None else limit


_ROUNDING = 1e-9  # of a number of units that is a whole one


class RouteMethod(StrEnum):
    """How traffic weights are made, see above."""

    CARRIED = "carried"
    """By what the units of each kind can do."""
    PUBLISHED = "published"
    """By the inverse of the price; in capacity mode equal ones."""


# deviates: cost-weights-by-price
# deviates: route-contradictions
def cost_weights(units: Sequence[DeploymentUnit]) -> dict[str, float]:
    """Return the published weights of cost mode, which sum to 1 (3.3)."""
    return _normal(units, np.array([1 / unit.price_usd_per_hour for unit in units]))


def capacity_weights(
    units: Sequence[DeploymentUnit], available: Mapping[str, int]
) -> dict[str, float]:
    """Return the published weights of capacity mode (3.3): 1 / n each; empty: none can be had."""
    return _normal(units, np.array([float(available[unit.name] > 0) for unit in units]))


def carried_weights(
    units: Sequence[DeploymentUnit], numbers: Mapping[str, int]
) -> dict[str, float]:
    """Return weights by what so many of each unit can do; empty: there are none."""
    parts = [numbers.get(unit.name, 0) * unit.most_per_s for unit in units]
    return _normal(units, np.array(parts))


def adjusted_per_s(units: Sequence[DeploymentUnit]) -> dict[str, float]:
    """Return requests per second that autoscaling aims at in capacity mode (5.4.2, table 2)."""
    target = float(np.mean([unit.most_per_s for unit in units]))
    return {unit.name: min(target, unit.most_per_s) for unit in units}


def counts_for(
    route: EndpointRoute, weights: Mapping[str, float], per_s: Mapping[str, float]
) -> dict[str, int]:
    """Return unit -> copies that serve its part of the demand, at these requests/s each."""
    demand = {name: weights.get(name, 0.0) * route.demand_per_s for name in per_s}
    return {name: ceil(demand[name] / most - _ROUNDING) for name, most in per_s.items()}


# deviates: supply-without-weights
def supply_per_s(units: Sequence[DeploymentUnit], numbers: Mapping[str, int]) -> float:
    """Return the requests per second that so many units can take (eq. 2)."""
    return sum(numbers.get(unit.name, 0) * unit.most_per_s for unit in units)


# deviates: mean-by-traffic
def mean_latency_s(units: Sequence[DeploymentUnit], weights: Mapping[str, float]) -> float:
    """Return the mean seconds of a request under traffic weights that sum to 1."""
    return sum(weights.get(unit.name, 0.0) * unit.latency_s for unit in units)


def _normal(units: Sequence[DeploymentUnit], parts: FloatArray) -> dict[str, float]:
    total = float(parts.sum())
    if total == 0:
        return {}
    return {unit.name: float(w) for unit, w in zip(units, parts / total, strict=True) if w > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTraffic:
    """What a regime makes of a route."""

    regime: Regime
    numbers: Mapping[str, int]  # unit -> how many are wanted; others none
    weights: Mapping[
        str, float
    ]  # unit -> its part of the requests; others none. Empty: no traffic
    why: str = ""  # the regime is this one; empty: it never changes
    # whether weights hold while units start, too, as published: among what runs, normalised (3.3)
    fixed: bool = False


def cheapest_traffic(route: EndpointRoute, method: RouteMethod) -> RouteTraffic:
    """Return cost mode: what it would be were there units without end."""
    endless = replace(route, units=tuple(replace(u, available=None) for u in route.units))
    if method is RouteMethod.PUBLISHED:
        weights = cost_weights(endless.quick)
        # deviates: numbers-from-weights
        numbers = counts_for(endless, weights, {u.name: u.most_per_s for u in endless.units})
    else:
        numbers = cheapest_counts(endless) or {}  # none: no unit is quick enough
        weights = carried_weights(endless.quick, numbers)
    fixed = method is RouteMethod.PUBLISHED
    return RouteTraffic(regime=Regime.COST, numbers=numbers, weights=weights, fixed=fixed)


def spread_traffic(
    route: EndpointRoute, method: RouteMethod, there: Mapping[str, int]
) -> RouteTraffic:
    """Return capacity mode with so many of each unit (`all_counts`)."""
    per_s = {unit.name: unit.most_per_s for unit in route.units}
    if method is RouteMethod.PUBLISHED:
        weights, per_s = capacity_weights(route.quick, there), adjusted_per_s(route.units)
    else:
        weights = carried_weights(route.quick, there)
    wanted = counts_for(route, weights, per_s)
    numbers = {name: min(count, there.get(name, 0)) for name, count in wanted.items()}
    if method is RouteMethod.CARRIED:
        weights = carried_weights(route.quick, numbers)
    fixed = method is RouteMethod.PUBLISHED
    return RouteTraffic(regime=Regime.CAPACITY, numbers=numbers, weights=weights, fixed=fixed)
