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
that has waited longest is taken (the paper leaves it to the solver, and then a request
may starve); a request never starts on an instance that cannot serve it at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy.optimize import linear_sum_assignment

from pipelines import checks
from scheduler.dispatch.policy import (
    FloatArray,
    InstanceState,
    Start,
    WaitingRequest,
    check_predictions,
)

_LATE = 10.0  # eq. 8: a late pair counts as ten times the deadline
_TIE_S = 1e-9  # per place in the queue: far below any latency, far above float noise


@dataclass(frozen=True, slots=True, kw_only=True)
class MinCostMatching:
    """A `DispatchPolicy`: the matching that leaves the instances the most time.

    Attributes:
        xi: Part of a deadline that may be planned with, in (0, 1]. 0.98 is the paper's: a
            prediction within 2 % of the deadline counts as late.
    """

    xi: float = 0.98

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)

    def assign(
        self,
        waiting: Sequence[WaitingRequest],
        instances: Sequence[InstanceState],
        predicted_s: FloatArray,  # (m, n)
    ) -> tuple[Start, ...]:
        """Give what starts now, see `DispatchPolicy`."""
        check_predictions(waiting, instances, predicted_s)
        if not waiting or not any(instance.idle for instance in instances):
            return ()
        cost = self.cost(waiting, instances, predicted_s)
        able = np.isfinite(cost)
        rows, columns = linear_sum_assignment(_finite(cost) + _by_age(waiting))
        return tuple(
            Start(waiting[i].id, instances[j].id)
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
            if instances[j].idle and able[i, j]
        )

    def cost(
        self,
        waiting: Sequence[WaitingRequest],
        instances: Sequence[InstanceState],
        predicted_s: FloatArray,  # (m, n)
    ) -> FloatArray:  # (m, n)
        """Give the cost of every pair; infinite where the instance cannot serve the request."""
        busy = np.array([instance.busy_s for instance in instances])
        coefficient = np.array([instance.coefficient for instance in instances])
        waited = np.array([request.waited_s for request in waiting])
        qos = np.array([inf if r.qos_s is None else r.qos_s for r in waiting])
        done = busy + predicted_s
        late = waited[:, None] + done > self.xi * qos[:, None]
        used = np.where(late & np.isfinite(done), _LATE * qos[:, None], done)
        return np.asarray(coefficient * used)


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


def _finite(cost: FloatArray) -> FloatArray:
    """Give the costs with pairs that cannot be at a price that is avoided wherever possible."""
    able = np.isfinite(cost)
    if able.all():
        return cost
    price = (cost[able].max(initial=0.0) + 1.0) * (min(cost.shape) + 1)
    return np.where(able, cost, price)


def _by_age(waiting: Sequence[WaitingRequest]) -> FloatArray:  # (m, 1)
    """Give a tiny price that rises from the request that has waited longest to the newest."""
    order = sorted(range(len(waiting)), key=lambda i: -waiting[i].waited_s)
    place = np.empty(len(waiting))
    place[order] = np.arange(len(waiting))
    return place[:, None] * _TIE_S
