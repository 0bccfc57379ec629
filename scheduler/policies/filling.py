"""Fills machines with queries: in a given order, or in that of their benefit per charge.

The latter is fast for many queries: whoever cannot find room any more is dropped by array
operations, so the loop over single queries is about as long as the number of those that are
placed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.compiled.feasibility import Compiled, PlanArrays
from circinus.scheduler.compiled.placement import Placement

_CHUNK = 1024


# deviates: policy-asked-on-what-runs
def keep_running(compiled: Compiled, placement: Placement[int], ranked: Sequence[int]) -> None:
    """Place what runs, in rank order: on its machines, else its plan on others, else not."""
    running = compiled.running()
    owner = compiled.arrays.owner
    homeless = []
    for plan in ranked:
        query = int(owner[plan])
        if query in running and running[query].plan == plan:
            if not placement.occupy(query, running[query]):
                homeless.append(plan)
        elif compiled.runs_with(query, plan):
            homeless.append(plan)
    compiled.admit(placement, homeless)


def charges(
    arrays: PlanArrays,
    per_machine: FloatArray,  # (T,), lambda, `>= 0`
) -> FloatArray:  # (L,), `>= 0`
    """Return what each plan costs at prices of machines.

    A machine without a price is charged a little, and money a little less, so that among plans
    that cost the same the smaller and then the cheaper one comes first. 0 for a plan that needs no
    shared machine and no money.
    """
    top = float(per_machine.max(initial=0.0)) or float(arrays.benefit.max(initial=1.0))
    price = np.maximum(per_machine, 1e-3 * top)
    money = arrays.cost_usd_per_hour
    dearest = float(money.max(initial=0.0))
    tie = money / dearest * (1e-6 * top) if dearest > 0 else 0.0
    return np.asarray(arrays.usage @ price + tie)


def by_rate(arrays: PlanArrays, charge: FloatArray) -> IntArray:  # (N,)
    """Return the queries by benefit per least charge, the best first."""
    least, _ = arrays.least(charge)
    with np.errstate(divide="ignore", over="ignore"):
        rate = arrays.benefit / least
    return np.lexsort((-arrays.benefit, -rate))


def fill(
    arrays: PlanArrays,
    placement: Placement[int],
    charge: FloatArray,  # (L,)
    favourite: IntArray | None = None,  # (N,)
) -> None:
    """Place queries by benefit per charge, each with its least charged plan that fits.

    Afterwards no plan of a query that is not placed finds room. A query tries its favourite
    first; plans charged above its benefit then wait until all others have been tried.
    """
    if favourite is not None:
        ordered = charge.copy()
        ordered[favourite] = -1.0
        _fill(arrays, placement, charge, ordered, charge <= arrays.benefit[arrays.owner])
    _fill(arrays, placement, charge, charge, np.ones(len(charge), bool))


def _fill(
    arrays: PlanArrays,
    placement: Placement[int],
    charge: FloatArray,
    ordered: FloatArray,
    allowed: NDArray[np.bool_],
) -> None:
    waiting = np.ones(len(arrays.benefit), bool)
    waiting[list(placement.at)] = False
    _place_free(arrays, placement, charge, waiting)
    order = by_rate(arrays, charge)
    hardest = arrays.hardest()
    refused = ~allowed  # and whatever did not fit: nothing is returned meanwhile
    while True:
        largest = [free.largest for free in placement.free]
        fits = (hardest <= largest).all(axis=1) & waiting[arrays.owner] & ~refused
        hopeful = np.zeros(len(waiting), bool)
        hopeful[arrays.owner[fits]] = True
        chunk = order[hopeful[order]][:_CHUNK]
        if not len(chunk):
            return
        for query in chunk.tolist():
            waiting[query] = not _place(arrays, placement, ordered, fits, refused, query)


def _place_free(
    arrays: PlanArrays, placement: Placement[int], charge: FloatArray, waiting: NDArray[np.bool_]
) -> None:
    """Place all queries that have a plan without any shared item."""
    free = np.diff(arrays.item_first) == 0
    least, plan = arrays.least(np.where(free, charge, np.inf))
    for query in np.flatnonzero(waiting & np.isfinite(least)).tolist():
        placement.place(query, int(plan[query]), ())
        waiting[query] = False


def _place(
    arrays: PlanArrays,
    placement: Placement[int],
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
