"""Min-cost matching of waiting requests to instances, as published (Kairos 5.1).

| symbol | meaning | shape |
| --- | --- | --- |
| m, n | waiting requests, instances | |
| W | seconds that a request has waited | (m,) |
| T | seconds within which it should be answered (T_qos); infinite when it has no deadline | (m,) |
| L | seconds until it would be done: what the instance is still busy + its latency | (m, n) |
| C | heterogeneity coefficient of an instance | (n,) |
| xi | part of T that may be planned with | |

    cost = C L          where W + L <= xi T           (eq. 4)
         = C 10 T       where the request would be late (eq. 8)

min(m, n) pairs of least total cost are matched (eq. 6, 7); a pair on a busy instance
only reserves: the request waits and is matched anew next time.

Deviations: T is each request's own, or none; among requests that cost the same the one
that began to wait first is taken (the paper leaves it to the solver, and then a request
may starve); a request never starts on an instance that cannot serve it at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import (
    Kernel,
    RuleInput,
    compiled,
    compiled_part,
    decided_by_rule,
    seen_in,
)
from circinus.scheduler.dispatch.policy import DispatchState, FloatArray, IntArray

_LATE = 10.0  # eq. 8: a late pair counts as ten times the deadline
_TIE_S = 1e-9  # per place in the queue: far below any latency, far above float noise


@compiled_part
def matching_cost(xi: float, seen: RuleInput) -> FloatArray:  # (m, n)
    """Return the cost of every pair; infinite where the instance cannot serve the request."""
    m, n = seen.predicted_s.shape
    cost = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            done = seen.busy_s[j] + seen.predicted_s[i, j]
            if seen.waited_s[i] + done > xi * seen.qos_s[i] and done < inf:
                done = _LATE * seen.qos_s[i]
            cost[i, j] = seen.coefficient[j] * done
    return cost


@compiled_part
def _solvable(cost: FloatArray) -> FloatArray:  # (m, n)
    """Return finite costs that break ties by age; pairs that cannot be are avoided if possible."""
    m, n = cost.shape
    never = (np.where(cost < inf, cost, 0.0).max() + 1.0) * (min(m, n) + 1)
    aged: FloatArray = np.where(cost < inf, cost, never) + np.arange(m).reshape(m, 1) * _TIE_S
    return aged


@compiled_part
def assigned_columns(  # noqa: C901 - three nested loops are the method
    cost: FloatArray,  # (m, n), c, finite, m <= n
) -> IntArray:  # (m,)
    """Return the column of each row in an assignment of all rows of least total cost.

    The Hungarian method in the form of Jonker and Volgenant (Kairos' reference 51): a row after
    the other is matched along a path of least reduced cost, O(m^2 n). u and v are the dual
    potentials: c_ij - u_i - v_j >= 0, = 0 on matched pairs.
    """
    m, n = cost.shape
    u = np.zeros(m + 1)
    v = np.zeros(n + 1)
    row_of = np.zeros(n + 1, dtype=np.int64)  # 1-based; row_of[0] is the row being placed
    came_from = np.zeros(n + 1, dtype=np.int64)
    least = np.empty(n + 1)
    seen = np.empty(n + 1, dtype=np.bool_)
    for row in range(1, m + 1):
        row_of[0] = row
        at = 0
        least[:] = inf
        seen[:] = False
        while row_of[at] != 0:
            seen[at] = True
            i = row_of[at]
            delta = inf
            step_to = 0
            for j in range(1, n + 1):
                if seen[j]:
                    continue
                reduced = cost[i - 1, j - 1] - u[i] - v[j]
                if reduced < least[j]:
                    least[j] = reduced
                    came_from[j] = at
                if least[j] < delta:
                    delta = least[j]
                    step_to = j
            for j in range(n + 1):
                if seen[j]:
                    u[row_of[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            at = step_to
        while at != 0:
            row_of[at] = row_of[came_from[at]]
            at = came_from[at]
    columns = np.empty(m, dtype=np.int64)
    for j in range(1, n + 1):
        if row_of[j] > 0:
            columns[row_of[j] - 1] = j - 1
    return columns


@compiled
def matching_rule(settings: FloatArray, seen: RuleInput, answer: IntArray) -> None:
    """Start the matched pairs whose instance is idle."""
    xi, idle = settings[0], seen.idle
    if not idle.any():
        return
    cost = matching_cost(xi, seen)
    solvable = _solvable(cost)
    if cost.shape[0] <= cost.shape[1]:
        columns = assigned_columns(solvable)
        for i in range(len(columns)):
            if idle[columns[i]] and cost[i, columns[i]] < inf:
                answer[i] = columns[i]
    else:
        rows = assigned_columns(np.ascontiguousarray(solvable.T))
        for j in range(len(rows)):
            if idle[j] and cost[rows[j], j] < inf:
                answer[rows[j]] = j


@dataclass(frozen=True, slots=True, kw_only=True)
class MinCostMatching:
    """A `DispatchPolicy`: the matching that leaves the instances the most time."""

    # part of a deadline that may be planned with, in (0, 1]. 0.98 is the paper's: a prediction
    # within 2 % of the deadline counts as late
    xi: float = 0.98
    rule: ClassVar[Kernel] = staticmethod(matching_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    sheds: ClassVar[bool] = False  # as published

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    decide = decided_by_rule

    def cost(self, state: DispatchState) -> FloatArray:  # (m, n)
        """Return the cost of every pair; infinite where the instance cannot serve the request."""
        return matching_cost(self.xi, seen_in(state))


def heterogeneity(largest_request_s: FloatArray) -> FloatArray:  # (n,), both
    """Return the coefficient C of each kind of instance, in (0, 1] (Kairos, definition 1).

    Seconds of the largest request on the fastest kind, over those on each. InvalidInput if an
    entry is not finite and `> 0`.
    """
    good = bool(((largest_request_s > 0) & np.isfinite(largest_request_s)).all())
    checks.require(good, "largest_request_s", "must be finite and > 0", largest_request_s)
    return np.asarray(largest_request_s.min(initial=inf) / largest_request_s)
