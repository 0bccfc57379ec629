r"""What a machine is worth: dual prices of the linear relaxation.

| symbol | meaning |
| --- | --- |
| w_q | benefit of query q |
| u_p | machines of each shared tier that plan p uses (a vector over tiers) |
| M | machines there are (a vector over tiers) |
| x_qp | part of query q that is served with plan p |
| lambda | price of one machine of each tier, in benefit |

The relaxation of "limited resources" (Circinus, appendix B.2) forgets that items sit
on single machines and are whole:

    maximise   sum_qp w_q x_qp
    subject to sum_p x_qp <= 1 for each q,   sum_qp u_p x_qp <= M,   x >= 0

Its dual has one variable per tier only:

    minimise over lambda >= 0   f(lambda) = lambda.M + sum_q max(0, w_q - min_p lambda.u_p)

f is convex and piecewise linear. Kelley's cutting planes (1960): each evaluation gives a
tangent; the next prices minimise the highest tangent. Any f(lambda) bounds every
schedule's goodput from above, so the search may stop anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog

from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.scheduler.compiled.feasibility import PlanArrays

ROUNDS = 60
"""Tangents at most. With up to three tiers the search ends after 10 to 30."""
PRECISION = 1e-4
"""Of the bound, relative: prices this near the optimum rank plans no differently."""
_GOLDEN = 0.6180339887498949
_SAMPLE = 4000
"""Queries whose prices start the search for all: tangents at remote prices cost as much."""


class Tangent(NamedTuple):
    """What f is at some prices, and the purchase that makes it so."""

    value: float  # f there
    height: float  # of the tangent at prices of 0
    slope: FloatArray  # machines that the purchase leaves.  # (T,)
    plan: IntArray  # least charged plan of each query.  # (N,)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """Prices of machines and what they prove."""

    per_machine: FloatArray  # (T,); lambda, in benefit
    bound: float  # no schedule serves more benefit
    # plan of each query in the solution of the relaxation, split plans rounded
    favourite: IntArray  # (N,)


def dual_prices(arrays: PlanArrays, precision: float = PRECISION) -> Prices:
    """Return prices whose bound is within `precision` of the linear relaxation's value."""
    queries, start = len(arrays.benefit), np.zeros(len(arrays.machines))
    if not queries or not len(start):
        everything = float(arrays.benefit.sum())
        return Prices(per_machine=start, bound=everything, favourite=arrays.first[:-1])
    if queries > 4 * _SAMPLE:
        start = _kelley(_every(arrays, queries // _SAMPLE), start, precision).per_machine
    return _kelley(arrays, start, precision)


def _every(arrays: PlanArrays, step: int) -> PlanArrays:
    """Return every `step`-th query, with as much less capacity."""
    queries = np.arange(0, len(arrays.benefit), step)
    selected = np.zeros(len(arrays.benefit), bool)
    selected[queries] = True
    plans = selected[arrays.owner]
    per_plan = np.diff(arrays.item_first)
    items = np.repeat(plans, per_plan)
    counts = np.diff(arrays.first)[queries]
    return PlanArrays(
        benefit=arrays.benefit[queries] * step,
        first=np.concatenate(([0], np.cumsum(counts))),
        cost_usd_per_hour=arrays.cost_usd_per_hour[plans],
        calls_usd_per_hour=arrays.calls_usd_per_hour[plans],
        item_first=np.concatenate(([0], np.cumsum(per_plan[plans]))),
        item_tier=arrays.item_tier[items],
        # a part of the capacity would not be whole machines: each plan is taken `step` times.
        item_parts=arrays.item_parts[items] * step,
        machines=arrays.machines,
    )


def _kelley(arrays: PlanArrays, at: FloatArray, precision: float) -> Prices:
    capacity = arrays.machines.astype(np.float64)
    highest = _highest(arrays)
    best, best_at = np.inf, at
    tangents: list[Tangent] = []
    parts = np.ones(1)
    for _ in range(ROUNDS):
        tangent = _tangent(arrays, at, capacity)
        tangents.append(tangent)
        if tangent.value < best:
            best, best_at = tangent.value, at
        lowest = _lowest(tangents, highest)
        if lowest is None:
            break
        at, low, parts = lowest
        if best - low <= precision * max(abs(best), 1e-300):
            break
    return Prices(per_machine=best_at, bound=float(best), favourite=_favourite(tangents, parts))


def _favourite(tangents: Sequence[Tangent], parts: FloatArray) -> IntArray:
    """Assign each query the plan of one tangent, so that each tangent has its part of queries.

    The relaxation is solved by a mixture of the tangents' purchases; its parts are the duals of
    the last search for prices. Taken alone, every purchase runs one of the tiers over.
    """
    queries = len(tangents[0].plan)
    # Multiples of the golden ratio: any run of queries has nearly the parts of them all.
    drawn = np.searchsorted(np.cumsum(parts), np.arange(queries) * _GOLDEN % 1.0)
    drawn = np.minimum(drawn, len(tangents) - 1)
    favourite = np.empty(queries, np.int64)
    for i in np.unique(drawn).tolist():
        favourite[drawn == i] = tangents[i].plan[drawn == i]
    return favourite


def _highest(arrays: PlanArrays) -> FloatArray:
    """Return prices that no optimum exceeds: above them nobody would use the tier."""
    used = arrays.usage > 0
    ratio = np.where(
        used, arrays.benefit[arrays.owner][:, None] / np.where(used, arrays.usage, 1.0), 0.0
    )
    return np.asarray(ratio.max(axis=0, initial=0.0) + 1.0)


def _tangent(arrays: PlanArrays, price: FloatArray, capacity: FloatArray) -> Tangent:
    charge, plan = arrays.least(arrays.usage @ price)
    worth = arrays.benefit - charge
    bought = worth > 0
    slope = capacity - arrays.usage[plan[bought]].sum(axis=0)
    value = float(price @ capacity + worth[bought].sum())
    return Tangent(value, value - float(slope @ price), slope, plan)


def _lowest(
    tangents: Sequence[Tangent], highest: FloatArray
) -> tuple[FloatArray, float, FloatArray] | None:
    """Return the prices where the highest tangent is lowest, its value there, and who holds it up.

    The last is the parts of the tangents in the solution of the relaxation. None: numbers differ
    so much in size that the solver fails; the best prices so far are as good as any then.
    """
    tiers = len(highest)
    scale = max(abs(t.height) for t in tangents) or 1.0
    # Prices in units of the highest, values in units of the largest: well scaled rows.
    slopes = np.array([t.slope for t in tangents]) * highest / scale
    solution = linprog(
        np.append(np.zeros(tiers), 1.0),
        A_ub=np.column_stack((slopes, -np.ones(len(tangents)))),
        b_ub=-np.array([t.height for t in tangents]) / scale,
        bounds=[(0.0, 1.0)] * tiers + [(None, None)],
        method="highs",
    )
    if solution.x is None or solution.fun is None:
        return None
    parts = np.maximum(-np.asarray(solution.ineqlin.marginals), 0.0)
    return solution.x[:tiers] * highest, float(solution.fun) * scale, parts / (parts.sum() or 1.0)
