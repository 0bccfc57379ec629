"""How many of each deployment unit serve a demand for the least money (3.2).

    minimise    sum_i DU^r_i DU^c_i                                   (1)
    subject to  sum_i DU^r_i T_i >= T^d                               (2)
                DU^r_i <= DU^p_i                                      (3)

of the adaptive orchestration paper, over whole numbers, or over any for the bound that no choice
is below. Units that are slower than the route allows are left out, which the paper does by hand
(its eager mode on an L4).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

import pulp

from circinus.scheduler.routing.units import DeploymentUnit, EndpointRoute


def cheapest_counts(
    route: EndpointRoute, available: Mapping[str, int | None] | None = None
) -> dict[str, int] | None:
    """Return unit -> how many, for the least money; None: all that can be had are too few.

    `available` stands for what the units say.
    """
    found = _solved(route, available, whole=True)
    return None if found is None else {name: round(count) for name, count in found.items()}


def least_usd_per_hour(
    route: EndpointRoute, available: Mapping[str, int | None] | None = None
) -> float | None:
    """Return the price that no numbers are below, parts of units allowed; None: too few."""
    found = _solved(route, available, whole=False)
    if found is None:
        return None
    return sum(found[unit.name] * unit.price_usd_per_hour for unit in route.units)


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
    given = unit.available if available is None else available.get(unit.name, unit.available)
    enough = ceil(route.demand_per_s / unit.most_per_s)
    return enough if given is None else given
