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

from pipelines import checks
from scheduler.dispatch.assignment import assigned_columns
from scheduler.dispatch.kernel import Kernel, compiled, compiled_part, decide
from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchState,
    FloatArray,
    IntArray,
)

_LATE = 10.0  # eq. 8: a late pair counts as ten times the deadline
_TIE_S = 1e-9  # per place in the queue: far below any latency, far above float noise


@compiled_part
def matching_cost(
    xi: float,
    waited_s: FloatArray,
    qos_s: FloatArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    coefficient: FloatArray,
) -> FloatArray:  # (m, n)
    """Give the cost of every pair; infinite where the instance cannot serve the request."""
    m, n = predicted_s.shape
    cost = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            done = busy_s[j] + predicted_s[i, j]
            if waited_s[i] + done > xi * qos_s[i] and done < inf:
                done = _LATE * qos_s[i]
            cost[i, j] = coefficient[j] * done
    return cost


@compiled_part
def _solvable(cost: FloatArray) -> FloatArray:  # (m, n)
    """Give finite costs that break ties by age.

    A pair that cannot be gets a price that is avoided wherever possible.
    """
    m, n = cost.shape
    highest = 0.0
    for i in range(m):
        for j in range(n):
            if cost[i, j] < inf:
                highest = max(highest, cost[i, j])
    never = (highest + 1.0) * (min(m, n) + 1)
    solvable = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            solvable[i, j] = (cost[i, j] if cost[i, j] < inf else never) + i * _TIE_S
    return solvable


@compiled
def matching_rule(
    settings: FloatArray,
    waited_s: FloatArray,
    qos_s: FloatArray,
    size: FloatArray,
    planned: IntArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    idle: BoolArray,
    kind: IntArray,
    coefficient: FloatArray,
    price: FloatArray,
    answer: IntArray,
) -> None:
    """Start the matched pairs whose instance is idle."""
    if not idle.any():
        return
    cost = matching_cost(settings[0], waited_s, qos_s, predicted_s, busy_s, coefficient)
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
    """A `DispatchPolicy`: the matching that leaves the instances the most time.

    Attributes:
        xi: Part of a deadline that may be planned with, in (0, 1]. 0.98 is the paper's: a
            prediction within 2 % of the deadline counts as late.
        plans_ahead: See `DispatchPolicy`.
        rejects: See `DispatchPolicy`.
    """

    xi: float = 0.98
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    @property
    def rule(self) -> Kernel:
        """Give the compiled rule."""
        return matching_rule

    @property
    def settings(self) -> FloatArray:
        """Give xi."""
        return np.array([self.xi], dtype=np.float64)

    def decide(self, state: DispatchState) -> Decision:
        """Give what starts now, see `DispatchPolicy`."""
        return decide(matching_rule, self.settings, state)

    def cost(self, state: DispatchState) -> FloatArray:  # (m, n)
        """Give the cost of every pair; infinite where the instance cannot serve the request."""
        return matching_cost(
            self.xi,
            state.waited_s,
            state.qos_s,
            state.predicted_s,
            state.busy_s,
            state.fleet.coefficient,
        )


def heterogeneity(largest_request_s: FloatArray) -> FloatArray:
    """Give the coefficient C of each kind of instance, in (0, 1] (Kairos, definition 1).

    Args:
        largest_request_s: Seconds of the largest request on each kind, `> 0`, shape (n,).

    Returns:
        Seconds on the fastest kind over seconds on each, shape (n,).

    Raises:
        InvalidInput: If an entry is not finite and `> 0`.
    """
    good = bool(((largest_request_s > 0) & np.isfinite(largest_request_s)).all())
    checks.require(good, "largest_request_s", "must be finite and > 0", largest_request_s)
    return np.asarray(largest_request_s.min(initial=inf) / largest_request_s)
