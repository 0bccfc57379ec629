"""The bound of `scheduler.pool.throughput_bound`, of many pools at once.

| symbol | meaning | shape |
| --- | --- | --- |
| P | pools, of counts N | (P, K) |
| w | a column: busy seconds of each kind per arrival, for one way to serve | (K,) |
| y | price of a busy second of each kind, per request | (K,) |
| B | basis: K columns, or slack, of which a pool's instances are made up | (K, K) |

The other symbols are there. All ways to serve share g of the requests are a polytope W that knows
nothing of N, and the program is

    max sum_j r_j    over r >= 0 with sum_j r_j w_j <= N, w_j in W

of K rows. Its columns are made as they are needed: given y, the best one serves each size where
that is cheapest, and the cheapest share g of all sizes; its cost is phi(y) = min over W of w y.
Any y >= 0 bounds the rate of every pool by N y / phi(y). The simplex method makes this step for
all pools together, on arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray
from circinus.scheduler.pool.throughput_bound import check_bound_input, throughput_bound

_AT_ONCE = 2**22
"""Numbers of one array of the pricing step, 32 MiB: so many pools are looked at together."""

_STEPS = 400
_GAP = 1e-9  # relative; between the bound of the prices and what the basis serves
_SHIFT = (
    1e-10  # instances more of each kind: without them counts of 0 make steps that change nothing
)


def throughput_bounds(
    share: FloatArray,  # (B,), q
    latency_s: FloatArray,  # (B, K), L
    pools: IntArray,  # (P, K), N
    qos_s: float,  # T
    *,
    in_time: float = 1.0,  # g
) -> FloatArray:  # (P,)
    """Return `rate_rps` of `throughput_bound` for each pool, to 1e-6; InvalidInput as there."""
    check_bound_input(share, latency_s, pools, qos_s, in_time)
    found = np.zeros(len(pools))
    ways = _Ways.of(share, latency_s, qos_s, in_time)
    if ways is None:
        return found
    step = max(1, _AT_ONCE // ways.latency_s.size)
    for first in range(0, len(pools), step):
        found[first : first + step] = _bounds(ways, pools[first : first + step])
    for place in np.flatnonzero(np.isnan(found)):
        one = throughput_bound(share, latency_s, pools[place], qos_s, in_time=in_time)
        found[place] = one.rate_rps
    return found


class _Ways(NamedTuple):
    """The polytope W: sizes that some kind serves in time."""

    share: FloatArray  # (B,)
    latency_s: FloatArray  # (B, K); infinite where late
    in_time: float

    @classmethod
    def of(
        cls, share: FloatArray, latency_s: FloatArray, qos_s: float, in_time: float
    ) -> _Ways | None:
        """Return it; None if too few requests can be served in time."""
        able = (latency_s <= qos_s) & (share > 0)[:, None]
        some = able.any(axis=1)
        if share[some].sum() < in_time * (1 - 1e-9):
            return None
        return cls(share[some], np.where(able, latency_s, np.inf)[some], in_time)

    def cheapest(self, price: FloatArray) -> FloatArray:  # (P, K), both
        """Return the column of least cost at each pool's prices, `>= 0`."""
        # a kind that costs nothing is preferred by its seconds
        paid = np.maximum(price, 1e-12 * price.max(axis=1, keepdims=True) + 1e-300)
        cost = self.latency_s[None] * paid[:, None, :]  # (P, B, K)
        kind = cost.argmin(axis=2)  # (P, B)
        least = np.take_along_axis(cost, kind[:, :, None], axis=2)[:, :, 0]
        order = least.argsort(axis=1)
        mass = self.share[order]
        before = mass.cumsum(axis=1) - mass
        mass = np.clip(self.in_time - before, 0.0, mass)
        served = np.zeros_like(least)
        np.put_along_axis(served, order, mass, axis=1)
        seconds = served * self.latency_s[np.arange(kind.shape[1])[None], kind]
        pools, kinds = price.shape
        place = np.arange(pools)[:, None] * kinds + kind
        busy = np.bincount(place.ravel(), seconds.ravel(), pools * kinds)
        return np.asarray(busy, dtype=np.float64).reshape(pools, kinds)


def _bounds(ways: _Ways, pools: IntArray) -> FloatArray:  # (P,)
    """Return the bounds; NaN where so many steps were not enough."""
    count, kinds = pools.shape
    found = np.full(count, np.nan)
    spread = _SHIFT * (1.0 + np.arange(kinds) / kinds)
    left = np.arange(count)  # pools that are not done, and their tables
    inverse = np.broadcast_to(np.eye(kinds), (count, kinds, kinds)).copy()  # of the basis
    worth = np.zeros((count, kinds))  # of each column in it: 1, or 0 of slack
    amount = pools + spread  # r
    for _ in range(_STEPS):
        price = np.einsum("pj,pjk->pk", worth, inverse)  # y
        entering, gain = _entering(ways, price)
        cost = np.einsum("pk,pk->p", np.maximum(price, 0), entering)
        done = gain <= _GAP
        rates = np.einsum("pk,pk->p", np.maximum(price, 0), pools[left])
        found[left[done]] = (rates / np.minimum(cost, 1.0).clip(1e-9))[done]
        keep = ~done
        if not keep.any():
            break
        left, inverse, worth, amount = left[keep], inverse[keep], worth[keep], amount[keep]
        slack = (price[keep] < -_GAP).any(axis=1)
        _pivot(entering[keep], slack, inverse, worth, amount)
    return found


def _entering(ways: _Ways, price: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the column that enters each basis, (P, K), and what it gains, (P,).

    Slack of a kind whose price is negative goes before ways to serve.
    """
    worst = price.argmin(axis=1)
    gain = -price[np.arange(len(price)), worst]
    slack = gain > _GAP
    column = ways.cheapest(np.maximum(price, 0.0))
    column[slack] = np.eye(price.shape[1])[worst[slack]]
    ways_gain = 1.0 - np.einsum("pk,pk->p", np.maximum(price, 0.0), column)
    return column, np.where(slack, gain, ways_gain)


def _pivot(
    entering: FloatArray,  # (P, K)
    slack: BoolArray,  # (P,), whether it is slack
    inverse: FloatArray,  # (P, K, K)
    worth: FloatArray,  # (P, K)
    amount: FloatArray,  # (P, K)
) -> None:
    """Let a column into each basis in place of the one that it uses up first."""
    direction = np.einsum("pjk,pk->pj", inverse, entering)
    ratio = np.full_like(amount, np.inf)
    np.divide(amount, direction, out=ratio, where=direction > 1e-11)
    leaving = ratio.argmin(axis=1)
    rows = np.arange(len(entering))
    pivot = direction[rows, leaving]
    row = inverse[rows, leaving] / pivot[:, None]
    moved = amount[rows, leaving] / pivot
    inverse -= direction[:, :, None] * row[:, None, :]
    inverse[rows, leaving] = row
    amount -= direction * moved[:, None]
    amount[rows, leaving] = moved
    np.maximum(amount, 0.0, out=amount)
    worth[rows, leaving] = np.where(slack, 0.0, 1.0)
