"""Which part of the requests each deployment unit gets: traffic weights, as published and ours.

As published (3.3, 5.4.2; the paper numbers two equations 5 and two 6, so sections are named):

    cost       w_i = (1 / DU^c_i) / sum_j 1 / DU^c_j    over all units
    capacity   w_i = 1 / n                              over the n units that can be had
    adjusted   T^adj_i = min(T^target, T^max_i)         (7, 8); T^target = mean T^max, T_i in eq. 8

Where the paper contradicts itself, and what is done here:

- *Cost weights*: "determined by the cost-to-latency ratio", says the text. The equation has no
  latency, and by that ratio units that are slow for their price would get the most. The equation
  counts.
- *Supply*: sum DU^r_i T_i in eq. 2, and sum w_i T_i DU^r_i in the last equation of 3.3, which is
  at most the largest term of the first. The first counts: it is what units can do.
- *Average latency* (eq. 4) is a sum. `mean_latency_s` weighs by traffic.

Ours: each unit gets what it can do, w_i = n_i T^max_i / sum_j n_j T^max_j, with the numbers n of
the cheapest that serve the demand (`unit_counts`) in cost mode, and else of as many of each as its
part of all that can be had takes. So all are equally busy, and cost mode costs what the program
says; by the inverse of the price dear units that nobody needs get a part as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import ceil

import numpy as np

from circinus.pipelines.model.profile import FloatArray
from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute

_ROUNDING = 1e-9  # of a number of units that is a whole one


class RouteMethod(StrEnum):
    """How traffic weights are made, see above."""

    CARRIED = "carried"
    """By what the units of each kind can do."""
    PUBLISHED = "published"
    """By the inverse of the price; in capacity mode equal ones."""


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


def supply_per_s(units: Sequence[DeploymentUnit], numbers: Mapping[str, int]) -> float:
    """Return the requests per second that so many units can take (eq. 2)."""
    return sum(numbers.get(unit.name, 0) * unit.most_per_s for unit in units)


def mean_latency_s(units: Sequence[DeploymentUnit], weights: Mapping[str, float]) -> float:
    """Return the mean seconds of a request under traffic weights that sum to 1."""
    return sum(weights.get(unit.name, 0.0) * unit.latency_s for unit in units)


def _normal(units: Sequence[DeploymentUnit], parts: FloatArray) -> dict[str, float]:
    total = float(parts.sum())
    if total == 0:
        return {}
    return {unit.name: float(w) for unit, w in zip(units, parts / total, strict=True) if w > 0}
