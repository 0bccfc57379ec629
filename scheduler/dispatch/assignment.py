"""Assignment of least total cost, exact, from wherever the one before it ended.

Jonker and Volgenant's method (Kairos' reference 51) for rectangular matrices. Between two
decisions few rows change, so it begins with the last dual variables and pairs: only agents that
have no object at them any more are placed again, each in O(a o).

| symbol | meaning | shape |
| --- | --- | --- |
| a, o | agents, each of whom gets an object; objects, `a <= o` | |
| c | cost of each pair, finite | (a, o) |
| u, v | dual variables of agents and objects | (a,), (o,) |

    maximise sum u + sum v  where  u_i + v_j <= c_ij,  v_j <= 0

Both sums are equal, and the assignment is one of least cost, where u_i + v_j = c_ij on each pair
and v_j = 0 for each object that nobody has. Any v is feasible with u_i = min_j (c_ij - v_j), so
what was changed since only costs time:

1. Pairs of the last assignment stay where they are still tight.
2. Agents without an object bid for the one that they want most (augmenting row reduction).
3. Those still without one are placed along shortest augmenting paths.
4. Objects that nobody has, and v_j < 0 from before, are released: v_j rises to 0, or along a
   shortest path another object, which can rise that far, is left instead.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

import numpy as np

from circinus.scheduler.dispatch.kernel import compiled_part
from circinus.scheduler.dispatch.policy import FloatArray, IntArray

NOBODY = -1
_TIGHT = 1e-12  # rounding: a pair this far from tight stays; far below the exactness of 1e-9
_ROUNDS = 3  # bids per agent at most: they are cheap, but may raise each other by next to nothing


class _Pairs(NamedTuple):
    """The assignment while it is made; everything but `cost` changes."""

    cost: FloatArray  # (a, o), c
    u: FloatArray  # (a,)
    v: FloatArray  # (o,)
    object_of: IntArray  # (a,), or NOBODY
    agent_of: IntArray  # (o,), or NOBODY


class _Search(NamedTuple):
    """Memory of searches for paths, which are begun anew by each."""

    least: FloatArray  # (o,), distance of each node
    previous: IntArray  # (o,), the node before it, of the other side
    nodes: IntArray  # (o,), those not reached first, then those reached


# deviates: own-assignment-solver
@compiled_part
def assign(cost: FloatArray, v: FloatArray, object_of: IntArray) -> FloatArray:  # (a,)
    """Complete `object_of`, shape (a,), and `v`, shape (o,), to an assignment of least cost.

    Both are changed in place: they enter as the last assignment left them, `v <= 0`, with NOBODY
    for agents that are new; zeros and NOBODY start afresh. Return u.
    """
    a, o = cost.shape
    pairs = _Pairs(cost, np.empty(a), v, object_of, np.full(o, NOBODY, dtype=np.int64))
    search = _Search(np.empty(o), np.empty(o, dtype=np.int64), np.empty(o, dtype=np.int64))
    _resume(pairs)
    _bid(pairs)
    for i in range(a):
        if object_of[i] == NOBODY:
            _place(i, pairs, search)
    for j in range(o):
        if pairs.agent_of[j] == NOBODY and v[j] < 0:
            _release(j, pairs, search)
    return pairs.u


@compiled_part
def _resume(pairs: _Pairs) -> None:
    """Set u to what v allows; keep the pairs that are tight."""
    cost, u, v, object_of, agent_of = pairs
    a, o = cost.shape
    for i in range(a):
        u[i] = inf
        for j in range(o):
            u[i] = min(u[i], cost[i, j] - v[j])
        j = object_of[i]
        if j == NOBODY or agent_of[j] != NOBODY or cost[i, j] - v[j] > u[i] + _TIGHT:
            object_of[i] = NOBODY
        else:
            agent_of[j] = i


@compiled_part
def _two_least(i: int, pairs: _Pairs) -> tuple[int, float, int, float]:
    """Return the two objects of least c_ij - v_j, with it; both are the same if there is one."""
    cost, v = pairs.cost, pairs.v
    first, second, least, next_least = 0, 0, inf, inf
    for j in range(cost.shape[1]):
        reduced = cost[i, j] - v[j]
        if reduced < least:
            first, second, least, next_least = j, first, reduced, least
        elif reduced < next_least:
            second, next_least = j, reduced
    return first, least, second, min(next_least, inf) if cost.shape[1] > 1 else least


@compiled_part
def _bid(pairs: _Pairs) -> None:
    """Let agents without an object take the one that they want most, at the least v that holds it.

    Whoever had it bids next, a bounded number of times.
    """
    _, u, v, object_of, agent_of = pairs
    bidders = np.flatnonzero(object_of == NOBODY)
    bids = _ROUNDS * len(bidders)
    for bidder in bidders:
        i = int(bidder)
        while bids > 0:
            bids -= 1
            j, least, other, next_least = _two_least(i, pairs)
            if next_least > least:
                v[j] -= next_least - least
            elif agent_of[j] != NOBODY:
                j = other
            u[i] = next_least
            loser = agent_of[j]
            object_of[i], agent_of[j] = j, i
            if loser == NOBODY:
                break
            object_of[loser] = NOBODY
            i = loser


@compiled_part
def _place(agent: int, pairs: _Pairs, search: _Search) -> None:
    """Find an object for an agent along the shortest path to one that nobody has."""
    cost, u, v, object_of, agent_of = pairs
    least, previous, nodes = search
    o = len(v)
    least[:] = inf
    nodes[:] = np.arange(o)
    i, distance, left, free = agent, 0.0, o, NOBODY
    while free == NOBODY:
        nearest, at = inf, 0
        base = distance - u[i]
        for k in range(left):
            j = nodes[k]
            through = base + cost[i, j] - v[j]
            if through < least[j]:
                least[j], previous[j] = through, i
            if least[j] < nearest or (least[j] == nearest and agent_of[j] == NOBODY):
                nearest, at = least[j], k
        left -= 1
        j = nodes[at]
        nodes[at], nodes[left] = nodes[left], j
        distance = nearest
        i = agent_of[j]
        if i == NOBODY:
            free = j
    u[agent] += distance
    for j in nodes[left + 1 :]:
        u[agent_of[j]] += distance - least[j]
        v[j] -= distance - least[j]
    j = free
    while True:
        i = previous[j]
        agent_of[j] = i
        object_of[i], j = j, object_of[i]
        if i == agent:
            return


@compiled_part
def _release(start: int, pairs: _Pairs, search: _Search) -> None:
    """Raise v of an object that nobody has to 0, or of the nearest one that can be left for it."""
    cost, u, v, object_of, agent_of = pairs
    least, previous, nodes = search
    a = len(u)
    least[:a] = inf
    nodes[:a] = np.arange(a)
    j, distance, left = start, 0.0, a
    end, rise = start, -v[start]
    while True:
        nearest, at = inf, 0
        base = distance - v[j]
        for k in range(left):
            i = nodes[k]
            through = base + cost[i, j] - u[i]
            if through < least[i]:
                least[i], previous[i] = through, j
            if least[i] < nearest:
                nearest, at = least[i], k
        if nearest >= rise:
            break
        left -= 1
        i = nodes[at]
        nodes[at], nodes[left] = nodes[left], i
        distance, j = nearest, object_of[i]
        if distance - v[j] < rise:
            end, rise = j, distance - v[j]
    v[start] = min(v[start] + rise, 0.0)
    for i in nodes[left:a]:
        u[i] -= rise - least[i]
        v[object_of[i]] = min(v[object_of[i]] + rise - least[i], 0.0)
    v[end] = 0.0
    i = agent_of[end]
    agent_of[end] = NOBODY
    while i != NOBODY:
        j = previous[i]
        object_of[i], agent_of[j], i = j, i, agent_of[j]
