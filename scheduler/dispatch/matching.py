"""Kairos' dispatch (5.1): waiting requests are matched to instances at the least cost.

| symbol | meaning | shape |
| --- | --- | --- |
| m, n | waiting requests, instances | |
| W | seconds that a request has waited | (m,) |
| T | seconds within which it should be answered (T_qos); infinite when it has no deadline | (m,) |
| b | seconds that an instance is still busy | (n,) |
| L | seconds until a request would be done: b + its latency | (m, n) |
| C | heterogeneity coefficient of an instance | (n,) |
| xi | part of T that may be planned with | |
| v | dual variable of an instance, see `scheduler.dispatch.assignment` | (n,) |

    cost = C L          where W + L <= xi T           (eq. 4)
         = C 10 T       where the request would be late (eq. 8)

min(m, n) pairs of least total cost are matched (eq. 6, 7); a pair on a busy instance
only reserves: the request waits and is matched anew next time.

A decision begins where the one before it ended: with the pairs that it reserved
(`DispatchState.planned`) and with v. Time that passes makes all pairs of a busy instance cheaper
alike, so v - C b is handed on, which it leaves as it is (`DispatchState.dual`).

Beyond `part` requests and instances, both are divided into equal parts, each of which is matched
alone: the paper's way to extremely large systems (section 6), POP (its reference 64). Instances
are dealt like cards, so that each part has all types; a request stays in the part that reserved
an instance for it, and newcomers go to the part that has the fewest. So the total cost is no less
than that of one matching; docs/studies/dispatch.md states by how much more it is.

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
from circinus.scheduler.dispatch.assignment import NOBODY, assign
from circinus.scheduler.dispatch.kernel import (
    PLANNED,
    Kernel,
    RuleInput,
    compiled,
    compiled_part,
    decided_by_rule,
    rule_input,
)
from circinus.scheduler.dispatch.policy import BoolArray, DispatchState, FloatArray, IntArray

_LATE = 10.0  # eq. 8: a late pair counts as ten times the deadline
# deviates: oldest-first-ties
_TIE_S = 1e-9  # per place in the queue or the fleet: far below any latency, far above float noise


@compiled_part
def matching_cost(
    xi: float, inputs: RuleInput, requests: IntArray, instances: IntArray
) -> FloatArray:  # (len(requests), len(instances))
    """Return the cost of pairs; infinite where the instance cannot serve the request."""
    cost = np.empty((len(requests), len(instances)))
    for k in range(len(requests)):
        i = requests[k]
        qos_s = inputs.qos_s[i]
        latest = xi * qos_s - inputs.waited_s[i]
        for h in range(len(instances)):
            j = instances[h]
            done = inputs.busy_s[j] + inputs.predicted_s[i, j]
            if done > latest and done < inf:
                done = _LATE * qos_s
            cost[k, h] = inputs.coefficient[j] * done
    return cost


# deviates: never-where-impossible
@compiled_part
def _solvable(
    cost: FloatArray, requests: IntArray, instances: IntArray, idle: BoolArray
) -> FloatArray:  # (m, n)
    """Return finite costs that break ties by order; pairs that cannot be are avoided if possible.

    Of alike requests the oldest are matched, and those of them start, on the first of alike
    instances, whatever the last decision was.
    """
    m, n = cost.shape
    dearest = 0.0
    for k in range(m):
        for h in range(n):
            if cost[k, h] < inf:
                dearest = max(dearest, cost[k, h])
    never = (dearest + 1.0) * (min(m, n) + 1)
    ordered = np.empty((m, n))
    for k in range(m):
        for h in range(n):
            places = requests[k] * (1 + idle[instances[h]]) + instances[h]
            ordered[k, h] = min(cost[k, h], never) + places * _TIE_S
    return ordered


@compiled_part
def _matched(cost: FloatArray, dual: FloatArray, reserved: IntArray) -> IntArray:  # (m,)
    """Return the column of each row in a matching of min(m, n) pairs, or NOBODY.

    `dual`, shape (n,), enters as v of the last matching and leaves as v of this one; `reserved`,
    shape (m,), are the last one's columns.
    """
    m, n = cost.shape
    if m <= n:
        for h in range(n):
            dual[h] = min(dual[h], 0.0)
        assign(cost, dual, reserved)
        return reserved
    row_dual, row_of = np.zeros(m), np.full(n, NOBODY, dtype=np.int64)
    for k in range(m):
        for h in range(n):
            row_dual[k] = min(row_dual[k], cost[k, h] - dual[h])
        if reserved[k] != NOBODY:
            row_of[reserved[k]] = k
    dual[:] = assign(np.ascontiguousarray(cost.T), row_dual, row_of)
    reserved[:] = NOBODY
    for h in range(n):
        reserved[row_of[h]] = h
    return reserved


@compiled_part
def _match(
    xi: float, inputs: RuleInput, requests: IntArray, instances: IntArray, answer: IntArray
) -> None:
    """Start the matched pairs whose instance is idle, and reserve the others."""
    place = np.full(len(inputs.idle), NOBODY, dtype=np.int64)
    place[instances] = np.arange(len(instances))
    reserved = np.full(len(requests), NOBODY, dtype=np.int64)
    for k in range(len(requests)):
        j = inputs.planned[requests[k]]
        if 0 <= j < len(place):
            reserved[k] = place[j]
    cost = matching_cost(xi, inputs, requests, instances)
    busy = inputs.coefficient[instances] * inputs.busy_s[instances]
    dual = inputs.dual[instances] + busy
    solvable = _solvable(cost, requests, instances, inputs.idle)
    columns = _matched(solvable, dual, reserved)
    for h in range(len(instances)):
        inputs.dual[instances[h]] = dual[h] - busy[h]
    for k in range(len(requests)):
        h = columns[k]
        # deviates: busy-pairs-wait
        if h != NOBODY and cost[k, h] < inf:
            j = instances[h]
            answer[requests[k]] = j if inputs.idle[j] else PLANNED - j


@compiled_part
def _parts_of(inputs: RuleInput, parts: int) -> IntArray:  # (m,)
    """Return the part of each request; instance j is in part j modulo `parts`."""
    m, n = inputs.predicted_s.shape
    part_of = np.full(m, NOBODY, dtype=np.int64)
    count = np.zeros(parts, dtype=np.int64)
    for i in range(m):
        if 0 <= inputs.planned[i] < n:
            part_of[i] = inputs.planned[i] % parts
            count[part_of[i]] += 1
    for i in range(m):
        if part_of[i] != NOBODY:
            continue
        fewest = 0
        for p in np.argsort(count, kind="mergesort"):
            if inputs.predicted_s[i, p::parts].min() < inf:
                fewest = p
                break
        part_of[i] = fewest
        count[fewest] += 1
    return part_of


@compiled
def matching_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Match everything, or each part alone."""
    xi, part = settings[0], settings[1]
    m, n = inputs.predicted_s.shape
    if not inputs.idle.any():
        return
    parts = int(np.ceil(min(m, n) / part))
    if parts == 1:
        _match(xi, inputs, np.arange(m), np.arange(n), answer)
        return
    part_of = _parts_of(inputs, parts)
    for p in range(parts):
        requests = np.flatnonzero(part_of == p)
        if len(requests) > 0:
            _match(xi, inputs, requests, np.arange(p, n, parts), answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class MinCostMatching:
    """A `DispatchPolicy`: the matching that leaves the instances the most time."""

    # part of a deadline that may be planned with, in (0, 1]. 0.98 is the paper's: a prediction
    # within 2 % of the deadline counts as late
    xi: float = 0.98
    # deviates: parts-of-a-matching
    # requests and instances, of whichever there are fewer, that are matched at once, `>= 1`.
    # 256: about a millisecond, which the paper takes for hundreds
    part: int = 256
    rule: ClassVar[Kernel] = staticmethod(matching_rule)
    level: ClassVar[float | None] = None
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    sheds: ClassVar[bool] = False  # as published

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)
        checks.at_least("part", self.part, 1)

    decide = decided_by_rule

    def cost(self, state: DispatchState) -> FloatArray:  # (m, n)
        """Return the cost of every pair; infinite where the instance cannot serve the request."""
        m, n = state.predicted_s.shape
        return matching_cost(self.xi, rule_input(state), np.arange(m), np.arange(n))
