"""Plans ahead and takes back: only what starts now is final.

| symbol | meaning | shape |
| --- | --- | --- |
| m, n | waiting requests, instances | |
| left | seconds from now within which a request must be done to be in time | (m,) |
| L | predicted seconds | (m, n) |
| p | price of a second of an instance, from the throughput bound's duals | (n,) |
| start | seconds from now at which a request would start on an instance | |
| w | what waiting for an instance counts | |

At every arrival and completion with an idle instance the plan is made anew:

1. A request that no kind of instance can serve in time goes to the background.
2. The others are taken by arrival - `lead` x (seconds on the fastest instance): the large ones,
   which have the fewest places to go, first.
3. Each instance has a tentative list in the order of deadlines. Of the places where the request
   and everybody behind it stay in time, it takes the one of least p (L + w start).
4. If there is none, a planned request moves elsewhere where that makes room: the pair of moves
   that is cheapest in total.
5. If that does not help either, whoever frees the most priced time waits for the next round:
   the request itself, or a planned one that gives it room.
6. A background request that is old starts on an idle instance where everybody planned is in
   time all the same. Otherwise heads of lists start; an idle instance with nothing planned
   serves the background, the least priced time first.

Before all this, background requests beyond the age limit get instances, in the order of arrival:
each has the instance where it is done first, which is reserved for it until it starts. So nobody's
lateness is left to luck. With alike deadlines and right predictions, a request that reaches the
limit is done no later than by

    min_j (busy_j + seconds on j of those reserved at j before it + L_j)

from then on: nothing is put before it, and it only moves to where it is done earlier.

Ours; it beats Kairos' matching because a matching sees one request per instance, and because the
few requests that will be late anyway wait until they are in nobody's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.scheduler.dispatch.kernel import (
    Kernel,
    RuleInput,
    compiled,
    compiled_part,
    decided_by_rule,
)
from circinus.scheduler.dispatch.policy import BoolArray, FloatArray, IntArray

_NOWHERE = -1


class _Plan(NamedTuple):
    """Who is planned where; the lists change while the plan is made."""

    left: FloatArray  # (m,)
    predicted_s: FloatArray  # (m, n)
    busy_s: FloatArray  # (n,)
    price: FloatArray  # (n,)
    weight: float  # w
    queue: IntArray  # (n, m), of each instance, by deadline
    length: IntArray  # (n,)
    place: IntArray  # (m,), instance or _NOWHERE


@compiled_part
def _start_s(i: int, j: int, without: int, plan: _Plan) -> float:
    """Return when i would start on j if everybody there stays in time; infinite if they do not.

    `without`, a request of the list or _NOWHERE, is taken out of it.
    """
    left, predicted_s, queue, length = plan.left, plan.predicted_s, plan.queue, plan.length
    at = float(plan.busy_s[j])
    if predicted_s[i, j] == inf or at + predicted_s[i, j] > left[i]:
        return inf
    k = 0
    while k < length[j] and left[queue[j, k]] <= left[i]:
        if queue[j, k] != without:
            at += predicted_s[queue[j, k], j]
        k += 1
    start = at
    at += predicted_s[i, j]
    if at > left[i]:
        return inf
    while k < length[j]:
        r = queue[j, k]
        if r != without:
            at += predicted_s[r, j]
            if at > left[r]:
                return inf
        k += 1
    return start


@compiled_part
def _insert(i: int, j: int, plan: _Plan) -> None:
    queue = plan.queue
    k = plan.length[j]
    while k > 0 and plan.left[queue[j, k - 1]] > plan.left[i]:
        queue[j, k] = queue[j, k - 1]
        k -= 1
    queue[j, k] = i
    plan.length[j] += 1
    plan.place[i] = j


@compiled_part
def _remove(i: int, plan: _Plan) -> None:
    queue = plan.queue
    j = plan.place[i]
    k = 0
    while queue[j, k] != i:
        k += 1
    plan.length[j] -= 1
    while k < plan.length[j]:
        queue[j, k] = queue[j, k + 1]
        k += 1
    plan.place[i] = _NOWHERE


@compiled_part
def _cheapest(i: int, but: int, plan: _Plan) -> tuple[int, float]:
    """Return the cheapest instance but one where i fits, and its cost."""
    best, least = _NOWHERE, inf
    for j in range(len(plan.busy_s)):
        price, seconds = plan.price[j], plan.predicted_s[i, j]
        if j == but or price * (seconds + plan.weight * plan.busy_s[j]) >= least:
            continue
        cost = price * (seconds + plan.weight * _start_s(i, j, _NOWHERE, plan))
        if cost < least:
            best, least = j, cost
    return best, least


@compiled_part
def _make_room(i: int, plan: _Plan) -> None:  # noqa: C901 - steps 4 and 5 look at the same places
    """Plan i by moving one other request, or by letting one wait (steps 4 and 5)."""
    left, predicted_s, price = plan.left, plan.predicted_s, plan.price
    mover, mover_to, room_at, least = _NOWHERE, _NOWHERE, _NOWHERE, inf
    waiter, waits_at = i, _NOWHERE
    most = inf
    for j in range(len(price)):
        if predicted_s[i, j] <= left[i]:
            most = min(most, price[j] * predicted_s[i, j])
    for j in range(len(price)):
        if predicted_s[i, j] == inf or plan.busy_s[j] + predicted_s[i, j] > left[i]:
            continue
        for k in range(plan.length[j]):
            r = plan.queue[j, k]
            start = _start_s(i, j, r, plan)
            if start == inf:
                continue
            freed = price[j] * predicted_s[r, j]
            if freed > most:
                waiter, waits_at, most = r, j, freed
            here = price[j] * (predicted_s[i, j] + plan.weight * start) - freed
            if here >= least:
                continue
            to, cost = _cheapest(r, j, plan)
            if here + cost < least:
                mover, mover_to, room_at, least = r, to, j, here + cost
    if mover != _NOWHERE:
        _remove(mover, plan)
        _insert(mover, mover_to, plan)
        _insert(i, room_at, plan)
    elif waits_at != _NOWHERE:
        _remove(waiter, plan)
        _insert(i, waits_at, plan)


@compiled_part
def _serve_overdue(overdue: BoolArray, plan: _Plan, free: BoolArray, answer: IntArray) -> None:
    """Give every overdue request, oldest first, the instance where it is done first.

    If that is not free it is reserved for the request: what is planned there comes after it.
    """
    for i in range(len(overdue)):
        if not overdue[i]:
            continue
        at = np.argmin(plan.busy_s + plan.predicted_s[i])
        if plan.predicted_s[i, at] == inf:
            continue
        if free[at]:
            answer[i] = at
            free[at] = False
        plan.busy_s[at] += plan.predicted_s[i, at]


@compiled_part
def _stays_in_time(j: int, at: float, plan: _Plan) -> bool:
    """Return whether everybody planned on j is in time if the first of them starts then."""
    for k in range(plan.length[j]):
        r = plan.queue[j, k]
        at += plan.predicted_s[r, j]
        if at > plan.left[r]:
            return False
    return True


@compiled_part
def _let_old_ones_pass(old: BoolArray, plan: _Plan, free: BoolArray, answer: IntArray) -> None:
    """Start old background requests, oldest first, where nobody planned is late for it."""
    for i in range(len(old)):
        best, least = _NOWHERE, inf
        for j in range(len(free)):
            cost = plan.price[j] * plan.predicted_s[i, j]
            if not (old[i] and free[j] and cost < least):
                continue
            if _stays_in_time(j, plan.predicted_s[i, j], plan):
                best, least = j, cost
        if best != _NOWHERE:
            answer[i] = best
            free[best] = False


@compiled_part
def _serve_background(
    background: BoolArray, plan: _Plan, free: BoolArray, answer: IntArray
) -> None:
    """Start background requests on instances without work, the least priced time first."""
    while True:
        best_i, best_j, least = -1, -1, inf
        for i in range(len(background)):
            if not background[i]:
                continue
            for j in range(len(free)):
                cost = plan.price[j] * plan.predicted_s[i, j]
                if free[j] and cost < least:
                    best_i, best_j, least = i, j, cost
        if best_i < 0:
            return
        answer[best_i] = best_j
        background[best_i] = False
        free[best_j] = False


@compiled
def plan_ahead_rule(settings: FloatArray, inputs: RuleInput, answer: IntArray) -> None:
    """Make the plan; start what is first on an idle instance."""
    if not inputs.idle.any():
        return
    xi, lead, weight = settings[0], settings[1], settings[2]
    old_after, overdue_after = settings[3], settings[4]
    m, n = inputs.predicted_s.shape
    waited_s, predicted_s = inputs.waited_s, inputs.predicted_s
    left = xi * inputs.qos_s - waited_s
    fastest = np.empty(m)
    for i in range(m):
        fastest[i] = predicted_s[i].min()
    background = (fastest > left) | (fastest == inf)
    overdue = background & (waited_s > overdue_after * inputs.qos_s)
    free = inputs.idle.copy()
    queue, length = np.empty((n, m), dtype=np.int64), np.zeros(n, dtype=np.int64)
    place = np.full(m, _NOWHERE, dtype=np.int64)
    plan = _Plan(
        left, predicted_s, inputs.busy_s.copy(), inputs.price, weight, queue, length, place
    )
    _serve_overdue(overdue, plan, free, answer)
    for i in np.argsort(-waited_s - lead * fastest):
        if background[i]:
            continue
        j, _ = _cheapest(i, _NOWHERE, plan)
        if j != _NOWHERE:
            _insert(i, j, plan)
        else:
            _make_room(i, plan)
    background &= ~overdue
    _let_old_ones_pass(background & (waited_s > old_after * inputs.qos_s), plan, free, answer)
    for j in range(n):
        if free[j] and length[j] > 0:
            answer[queue[j, 0]] = j
            free[j] = False
    _serve_background(background & (answer < 0), plan, free, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAhead:
    """A `DispatchPolicy`: a tentative plan of everything that waits, made anew each time."""

    # part of a deadline that may be planned with, in (0, 1]. 1: predictions are to be handed in
    # as quantiles where service times are noisy
    xi: float = 1.0
    lead: float = 2.0  # weight of a request's fastest seconds in the order of planning, `>= 0`
    # w, `>= 0`: what a second of waiting for an instance counts in the choice of a place. 0.5:
    # measured 0.1 to 0.4 % more rate than 1, 1 % more than 0.1
    delay_weight: float = 0.5
    # after so many times its deadline a background request may go before planned ones that stay
    # in time all the same, `>= 1`
    old: float = 4.0
    # the age limit: after so many times its deadline a background request goes before everybody,
    # `>= old`. 24: costs at most 0.6 % of the rate, 8 costs 2 %. Bursts are over by then, mostly;
    # in one, whoever goes before everybody makes somebody else late
    overdue: float = 24.0
    rule: ClassVar[Kernel] = staticmethod(plan_ahead_rule)
    level: ClassVar[float | None] = 0.9  # deadlines are missed by the slow runs
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False
    sheds: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)
        checks.non_negative("lead", self.lead)
        checks.non_negative("delay_weight", self.delay_weight)
        checks.require(1 <= self.old < inf, "old", "must be finite and >= 1", self.old)
        rule = f"must be finite and >= old, which is {self.old:g}"
        checks.require(self.old <= self.overdue < inf, "overdue", rule, self.overdue)

    decide = decided_by_rule
