"""Published dispatch rules: Kairos and the ones it compares itself with (section 7).

First come, first served and Clockwork come in two forms: as published, and rejecting what cannot
be served in time. With that overload is survived, so it is the harder one to beat; and Clockwork
itself does it, which the CLKWRK of the Kairos paper does not. Kairos (5.1) matches
waiting requests to instances at the least cost:

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
    PLANNED,
    REJECT,
    Kernel,
    RuleInput,
    compiled,
    compiled_part,
    decided_by_rule,
    rule_input,
)
from circinus.scheduler.dispatch.policy import DispatchState, FloatArray, IntArray


@compiled
def fcfs_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Start each request, oldest first, on the first idle instance that can serve it."""
    rejects = settings[0] > 0
    free = inputs.idle.copy()
    left = free.sum()
    for i in range(len(inputs.waited_s)):
        # Whatever any instance, idle or not, would take:
        if rejects and inputs.waited_s[i] + inputs.predicted_s[i].min() > inputs.qos_s[i]:
            answer[i] = REJECT
            continue
        if left == 0:
            if rejects:
                continue
            return
        for j in range(len(free)):
            # deviates: fcfs-lets-pass
            if free[j] and inputs.predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class FcfsDispatch:
    """A `DispatchPolicy`: whoever has waited longest takes the first idle instance of the list.

    The list begins with the base type, as with Ribbon. Only a request that the idle instances
    cannot serve at all lets others pass.
    """

    # whether a request that no instance could serve in time, were it idle, is turned away; else
    # deadlines are not looked at
    rejects: bool = False
    sheds: ClassVar[bool] = False
    rule: ClassVar[Kernel] = staticmethod(fcfs_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False

    decide = decided_by_rule


@compiled
def threshold_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Start each request, oldest first, on the first idle instance of its side."""
    largest_small = settings[0]
    free = inputs.idle.copy()
    left = free.sum()
    for i in range(len(inputs.waited_s)):
        if left == 0:
            return
        on_base = inputs.size[i] > largest_small
        if not (((inputs.kind == 0) == on_base) & (inputs.predicted_s[i] < inf)).any():
            # deviates: threshold-other-side
            on_base = not on_base
        for j in range(len(free)):
            if free[j] and (inputs.kind[j] == 0) == on_base and inputs.predicted_s[i, j] < inf:
                answer[i] = j
                free[j] = False
                left -= 1
                break


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeThreshold:
    """A `DispatchPolicy`: DeepRecSys' large requests to the base type, small ones to the others.

    First come, first served on either side. Deviation: where one side has no instances that can
    serve a request, it goes to the other, since it would never be served.
    """

    # requests up to this size go to the auxiliary types, `>= 0`. The study finds the best by a
    # sweep
    largest_small: float
    rule: ClassVar[Kernel] = staticmethod(threshold_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    sheds: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.non_negative("largest_small", self.largest_small)

    decide = decided_by_rule


@compiled
def clockwork_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Put each request without a queue into one; start the heads of queues."""
    rejects, xi = settings[0] > 0, settings[1]
    free_s = inputs.busy_s.copy()
    free = inputs.idle.copy()
    for i in range(len(inputs.waited_s)):
        j = inputs.planned[i]
        if j < 0 or j >= len(free) or inputs.predicted_s[i, j] == inf:
            # deviates: clockwork-done-first
            j = np.argmin(free_s + inputs.predicted_s[i])
            done = inputs.waited_s[i] + free_s[j] + inputs.predicted_s[i, j]
            if done == inf:
                continue
            if rejects and done > xi * inputs.qos_s[i]:
                answer[i] = REJECT
                continue
        answer[i] = j if free[j] else PLANNED - j
        free[j] = False
        free_s[j] += inputs.predicted_s[i, j]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clockwork:
    """A `DispatchPolicy`: a queue per instance; each request joins the one where it is done first.

    It is put into a queue once, when it arrives, and stays there: `Decision.planned` carries the
    queues from one decision to the next.
    """

    # deviates: rejecting-variants
    # whether a request that would be late everywhere is turned away on arrival
    rejects: bool = False
    sheds: ClassVar[bool] = False
    xi: float = 1.0  # part of a deadline that may be planned with when rejecting, in (0, 1]
    rule: ClassVar[Kernel] = staticmethod(clockwork_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    decide = decided_by_rule


_LATE = 10.0  # eq. 8: a late pair counts as ten times the deadline
# deviates: oldest-first-ties
_TIE_S = 1e-9  # per place in the queue: far below any latency, far above float noise


@compiled_part
def matching_cost(xi: float, inputs: RuleInput) -> FloatArray:  # (m, n)
    """Return the cost of every pair; infinite where the instance cannot serve the request."""
    m, n = inputs.predicted_s.shape
    cost = np.empty((m, n))
    for i in range(m):
        for j in range(n):
            done = inputs.busy_s[j] + inputs.predicted_s[i, j]
            if inputs.waited_s[i] + done > xi * inputs.qos_s[i] and done < inf:
                done = _LATE * inputs.qos_s[i]
            cost[i, j] = inputs.coefficient[j] * done
    return cost


# deviates: never-where-impossible
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
    previous = np.zeros(n + 1, dtype=np.int64)
    least = np.empty(n + 1)
    visited = np.empty(n + 1, dtype=np.bool_)
    for row in range(1, m + 1):
        row_of[0] = row
        at = 0
        least[:] = inf
        visited[:] = False
        while row_of[at] != 0:
            visited[at] = True
            i = row_of[at]
            delta = inf
            step_to = 0
            for j in range(1, n + 1):
                if visited[j]:
                    continue
                reduced = cost[i - 1, j - 1] - u[i] - v[j]
                if reduced < least[j]:
                    least[j] = reduced
                    previous[j] = at
                if least[j] < delta:
                    delta = least[j]
                    step_to = j
            for j in range(n + 1):
                if visited[j]:
                    u[row_of[j]] += delta
                    v[j] -= delta
                else:
                    least[j] -= delta
            at = step_to
        while at != 0:
            row_of[at] = row_of[previous[at]]
            at = previous[at]
    columns = np.empty(m, dtype=np.int64)
    for j in range(1, n + 1):
        if row_of[j] > 0:
            columns[row_of[j] - 1] = j - 1
    return columns


@compiled
def matching_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Start the matched pairs whose instance is idle."""
    xi, idle = settings[0], inputs.idle
    if not idle.any():
        return
    cost = matching_cost(xi, inputs)
    solvable = _solvable(cost)
    if cost.shape[0] <= cost.shape[1]:
        columns = assigned_columns(solvable)
        for i in range(len(columns)):
            # deviates: busy-pairs-wait
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
        return matching_cost(self.xi, rule_input(state))


def heterogeneity(largest_request_s: FloatArray) -> FloatArray:  # (n,), both
    """Return the coefficient C of each kind of instance, in (0, 1] (Kairos, definition 1).

    Seconds of the largest request on the fastest kind, over those on each. InvalidInput if an
    entry is not finite and `> 0`.
    """
    good = bool(((largest_request_s > 0) & np.isfinite(largest_request_s)).all())
    checks.require(good, "largest_request_s", "must be finite and > 0", largest_request_s)
    # deviates: coefficient-by-the-example
    return np.asarray(largest_request_s.min(initial=inf) / largest_request_s)
