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
6. Heads of lists start on idle instances. An idle instance with nothing planned serves the
   background, those first that are late beyond the age limit.

Ours; it beats Kairos' matching because a matching sees one request per instance, and because the
few requests that will be late anyway wait until they are in nobody's way.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from pipelines import checks
from scheduler.dispatch.kernel import Kernel, compiled, compiled_part, decide
from scheduler.dispatch.policy import (
    BoolArray,
    Decision,
    DispatchState,
    FloatArray,
    IntArray,
)

_NOWHERE = -1


@compiled_part
def _start_s(
    i: int,
    j: int,
    without: int,
    left: FloatArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    queue: IntArray,
    length: IntArray,
) -> float:
    """Give when i would start on j if everybody there stays in time; infinite if they do not.

    `without`, a request of the list or _NOWHERE, is taken out of it.
    """
    at = float(busy_s[j])
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
def _insert(
    i: int, j: int, left: FloatArray, queue: IntArray, length: IntArray, place: IntArray
) -> None:
    k = length[j]
    while k > 0 and left[queue[j, k - 1]] > left[i]:
        queue[j, k] = queue[j, k - 1]
        k -= 1
    queue[j, k] = i
    length[j] += 1
    place[i] = j


@compiled_part
def _remove(i: int, queue: IntArray, length: IntArray, place: IntArray) -> None:
    j = place[i]
    k = 0
    while queue[j, k] != i:
        k += 1
    length[j] -= 1
    while k < length[j]:
        queue[j, k] = queue[j, k + 1]
        k += 1
    place[i] = _NOWHERE


@compiled_part
def _cheapest(
    i: int,
    but: int,
    left: FloatArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    price: FloatArray,
    queue: IntArray,
    length: IntArray,
    weight: float,
) -> tuple[int, float]:
    """Give the cheapest instance but one where i fits, and its cost."""
    best, least = _NOWHERE, inf
    for j in range(len(busy_s)):
        if j == but or price[j] * (predicted_s[i, j] + weight * busy_s[j]) >= least:
            continue
        start = _start_s(i, j, _NOWHERE, left, predicted_s, busy_s, queue, length)
        cost = price[j] * (predicted_s[i, j] + weight * start)
        if cost < least:
            best, least = j, cost
    return best, least


@compiled_part
def _make_room(  # noqa: C901 - steps 4 and 5 look at the same places
    i: int,
    left: FloatArray,
    predicted_s: FloatArray,
    busy_s: FloatArray,
    price: FloatArray,
    queue: IntArray,
    length: IntArray,
    place: IntArray,
    weight: float,
) -> None:
    """Plan i by moving one other request, or by letting one wait (steps 4 and 5)."""
    mover, mover_to, room_at, least = _NOWHERE, _NOWHERE, _NOWHERE, inf
    waiter, waits_at = i, _NOWHERE
    most = inf
    for j in range(len(busy_s)):
        if predicted_s[i, j] <= left[i]:
            most = min(most, price[j] * predicted_s[i, j])
    for j in range(len(busy_s)):
        if predicted_s[i, j] == inf or busy_s[j] + predicted_s[i, j] > left[i]:
            continue
        for k in range(length[j]):
            r = queue[j, k]
            start = _start_s(i, j, r, left, predicted_s, busy_s, queue, length)
            if start == inf:
                continue
            freed = price[j] * predicted_s[r, j]
            if freed > most:
                waiter, waits_at, most = r, j, freed
            here = price[j] * (predicted_s[i, j] + weight * start) - freed
            if here >= least:
                continue
            to, cost = _cheapest(r, j, left, predicted_s, busy_s, price, queue, length, weight)
            if here + cost < least:
                mover, mover_to, room_at, least = r, to, j, here + cost
    if mover != _NOWHERE:
        _remove(mover, queue, length, place)
        _insert(mover, mover_to, left, queue, length, place)
        _insert(i, room_at, left, queue, length, place)
    elif waits_at != _NOWHERE:
        _remove(waiter, queue, length, place)
        _insert(i, waits_at, left, queue, length, place)


@compiled_part
def _serve_background(
    background: BoolArray,
    waited_s: FloatArray,
    oldest_s: FloatArray,
    predicted_s: FloatArray,
    price: FloatArray,
    free: BoolArray,
    answer: IntArray,
) -> None:
    """Start background requests on instances without work, the least priced time first."""
    while True:
        best_i, best_j, least, best_aged = -1, -1, inf, False
        for i in range(len(background)):
            if not background[i]:
                continue
            aged = waited_s[i] > oldest_s[i]
            if best_aged and not aged:
                continue
            for j in range(len(free)):
                cost = price[j] * predicted_s[i, j]
                if free[j] and (cost < least or (aged and not best_aged and cost < inf)):
                    best_i, best_j, least, best_aged = i, j, cost, aged
        if best_i < 0:
            return
        answer[best_i] = best_j
        background[best_i] = False
        free[best_j] = False


@compiled
def plan_ahead_rule(
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
    """Make the plan; start what is first on an idle instance."""
    if not idle.any():
        return
    m, n = predicted_s.shape
    xi, lead, age, weight = settings[0], settings[1], settings[2], settings[3]
    left = xi * qos_s - waited_s
    fastest = np.empty(m)
    background = np.zeros(m, dtype=np.bool_)
    for i in range(m):
        fastest[i] = predicted_s[i].min()
        background[i] = fastest[i] > left[i] or fastest[i] == inf
    queue = np.empty((n, m), dtype=np.int64)
    length = np.zeros(n, dtype=np.int64)
    place = np.full(m, _NOWHERE, dtype=np.int64)
    for i in np.argsort(-waited_s - lead * fastest):
        if background[i]:
            continue
        j, _ = _cheapest(i, _NOWHERE, left, predicted_s, busy_s, price, queue, length, weight)
        if j != _NOWHERE:
            _insert(i, j, left, queue, length, place)
        else:
            _make_room(i, left, predicted_s, busy_s, price, queue, length, place, weight)
    free = np.zeros(n, dtype=np.bool_)
    for j in range(n):
        if idle[j]:
            if length[j] > 0:
                answer[queue[j, 0]] = j
            else:
                free[j] = True
    _serve_background(background, waited_s, age * qos_s, predicted_s, price, free, answer)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAhead:
    """A `DispatchPolicy`: a tentative plan of everything that waits, made anew each time.

    Attributes:
        xi: Part of a deadline that may be planned with, in (0, 1]. 1: predictions are to be
            handed in as quantiles where service times are noisy.
        lead: Weight of a request's fastest seconds in the order of planning, `>= 0`.
        oldest: After so many times its deadline a background request goes before younger
            ones, `>= 1`.
        delay_weight: w, `>= 0`: what a second of waiting for an instance counts in the choice
            of a place. 0.5: measured 0.1 to 0.4 % more rate than 1, 1 % more than 0.1.
    """

    xi: float = 1.0
    lead: float = 2.0
    oldest: float = 3.0
    delay_weight: float = 0.5
    plans_ahead: ClassVar[bool] = False
    rejects: ClassVar[bool] = False

    def __post_init__(self) -> None:
        checks.share("xi", self.xi)
        checks.non_negative("lead", self.lead)
        checks.require(1 <= self.oldest < inf, "oldest", "must be finite and >= 1", self.oldest)
        checks.non_negative("delay_weight", self.delay_weight)

    @property
    def rule(self) -> Kernel:
        """Give the compiled rule."""
        return plan_ahead_rule

    @property
    def settings(self) -> FloatArray:
        """Give what the rule takes."""
        values = [self.xi, self.lead, self.oldest, self.delay_weight]
        return np.array(values, dtype=np.float64)

    def decide(self, state: DispatchState) -> Decision:
        """Give what starts now, see `DispatchPolicy`."""
        return decide(plan_ahead_rule, self.settings, state)
