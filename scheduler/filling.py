"""Fills machines with queries in the order of their benefit per charge, from arrays.

Fast for many queries: whoever cannot find room any more is dropped by array operations,
so the loop over single queries is about as long as the number of those that are placed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.arrays import FloatArray, IntArray, PlanArrays
from scheduler.placement import Placement

_CHUNK = 1024


def charges(arrays: PlanArrays, per_machine: FloatArray) -> FloatArray:
    """Give what each plan costs at prices of machines.

    A machine without a price is charged a little, and money a little less, so that among plans
    that cost the same the smaller and then the cheaper one comes first.

    Args:
        arrays: The plans.
        per_machine: lambda, `>= 0`.  # (T,)

    Returns:
        `>= 0`; 0 for a plan that needs no shared machine and no money.  # (L,)
    """
    top = float(per_machine.max(initial=0.0)) or float(arrays.benefit.max(initial=1.0))
    price = np.maximum(per_machine, 1e-3 * top)
    money = arrays.cost_usd_per_hour
    dearest = float(money.max(initial=0.0))
    tie = money * (1e-6 * top / dearest) if dearest > 0 else 0.0
    return np.asarray(arrays.usage @ price + tie)


def fill(
    arrays: PlanArrays, placement: Placement, charge: FloatArray, favourite: IntArray | None = None
) -> None:
    """Place queries by benefit per charge, each with its least charged plan that fits.

    Afterwards no plan of a query that is not placed finds room.

    Args:
        arrays: All plans.
        placement: Changed.
        charge: Of each plan.  # (L,)
        favourite: Plan that each query tries first; plans charged above the query's benefit
            then wait until all others have been tried.  # (N,)
    """
    if favourite is not None:
        ordered = charge.copy()
        ordered[favourite] = -1.0
        _fill(arrays, placement, charge, ordered, charge <= arrays.benefit[arrays.owner])
    _fill(arrays, placement, charge, charge, np.ones(len(charge), bool))


def _fill(
    arrays: PlanArrays,
    placement: Placement,
    charge: FloatArray,
    ordered: FloatArray,
    allowed: NDArray[np.bool_],
) -> None:
    waiting = np.ones(len(arrays.benefit), bool)
    waiting[list(placement.at)] = False
    _place_free(arrays, placement, charge, waiting)
    least, _ = arrays.least(charge)
    with np.errstate(divide="ignore"):
        rate = arrays.benefit / least
    order = np.lexsort((-arrays.benefit, -rate))
    hardest = arrays.hardest()
    refused = ~allowed  # and whatever did not fit: nothing is given back meanwhile
    while True:
        fits = _fits(hardest, placement) & waiting[arrays.owner] & ~refused
        hopeful = np.zeros(len(waiting), bool)
        hopeful[arrays.owner[fits]] = True
        chunk = order[hopeful[order]][:_CHUNK]
        if not len(chunk):
            return
        for query in chunk.tolist():
            waiting[query] = not _place(arrays, placement, ordered, fits, refused, query)


def _place_free(
    arrays: PlanArrays, placement: Placement, charge: FloatArray, waiting: NDArray[np.bool_]
) -> None:
    """Place all queries that have a plan without any shared item."""
    free = np.diff(arrays.item_first) == 0
    least, plan = arrays.least(np.where(free, charge, np.inf))
    for query in np.flatnonzero(waiting & np.isfinite(least)).tolist():
        placement.place(query, int(plan[query]), ())
        waiting[query] = False


def _fits(hardest: IntArray, placement: Placement) -> NDArray[np.bool_]:
    fits = np.ones(len(hardest), bool)
    for tier, free in enumerate(placement.free):
        fits &= hardest[:, tier] <= free.largest
    return fits


def _place(
    arrays: PlanArrays,
    placement: Placement,
    ordered: FloatArray,
    fits: NDArray[np.bool_],
    refused: NDArray[np.bool_],
    query: int,
) -> bool:
    start, end = int(arrays.first[query]), int(arrays.first[query + 1])
    plans = start + np.flatnonzero(fits[start:end])
    for plan in plans[np.argsort(ordered[plans], kind="stable")].tolist():
        if placement.place(query, plan, arrays.items(plan)):
            return True
        refused[plan] = True
    return False
