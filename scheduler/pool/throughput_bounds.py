"""Upper bounds on the rates of pools: a linear program, solved for one pool or for many at once.

| symbol | meaning | shape |
| --- | --- | --- |
| B, K | sizes of request, kinds of instance | |
| q | share of each size among the requests | (B,) |
| L | seconds of each size on each kind | (B, K) |
| N | instances of each kind | (K,) |
| T | seconds within which a request should be answered | |
| g | share of the requests that must be in time | |
| R | rate of arrivals, per second | |
| x | rate of each size that each kind serves in time | (B, K) |
| p | dual prices of the busy time, relative to the base kind | (K,) |

    max R    x >= 0, x_bk = 0 where L_bk > T
    s.t.     sum_k x_bk <= q_b R           for every size b
             sum_bk x_bk >= g R
             sum_b L_bk x_bk <= N_k        for every kind k (busy seconds per second)

With g = 1 the first two mean that every request is served. No dispatcher serves more in the long
run, whatever it knows of the future: an instance can be busy no longer than all the time,
and a request that is in time ran where L <= T. (A finite run may exceed the bound a little,
since requests are still served after the last arrival.) The closed form of Kairos 5.2, eq. 15,
is no bound: a good dispatcher exceeds it.

Many pools, `throughput_bounds`:

| symbol | meaning | shape |
| --- | --- | --- |
| P | pools, of counts N | (P, K) |
| w | a column: busy seconds of each kind per arrival, for one way to serve | (K,) |
| y | price of a busy second of each kind, per request | (K,) |
| B | basis: K columns, or slack, of which a pool's instances are made up | (K, K) |

All ways to serve share g of the requests are a polytope W that knows
nothing of N, and the program is

    max sum_j r_j    over r >= 0 with sum_j r_j w_j <= N, w_j in W

of K rows. Its columns are made as they are needed: given y, the best one serves each size where
that is cheapest, and the cheapest share g of all sizes; its cost is phi(y) = min over W of w y.
Any y >= 0 bounds the rate of every pool by N y / phi(y). The simplex method makes this step for
all pools together, on arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, hstack, vstack

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray

_LEAST_PRICE = 1e-3
"""Of a kind whose time is worth nothing at the optimum: still not to be wasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputBound:
    """The optimum of the linear program."""

    rate_rps: float  # R; 0 if the requests cannot be served in time
    # p, `> 0`; kind 0 has 1 unless its time is worth less than a thousandth of the dearest
    # kind's. Kinds of which there is no instance get the price of a first one
    price: FloatArray  # (K,)


def throughput_bound(
    share: FloatArray,  # (B,), q, adds up to 1
    latency_s: FloatArray,  # (B, K), L, `> 0`; infinite where a kind cannot serve a size
    counts: IntArray,  # (K,), N, `>= 0`
    qos_s: float,  # T, `> 0`
    *,
    in_time: float = 1.0,  # g, in (0, 1]
) -> ThroughputBound:
    """Return bound and prices; InvalidInput if a number is out of its range or shapes differ."""
    check_bound_input(share, latency_s, counts, qos_s, in_time)
    able = latency_s <= qos_s
    sizes, kinds = np.nonzero(able)
    variables = len(sizes)
    places = np.arange(variables)
    ones = np.ones(variables)
    by_size = csr_array((ones, (sizes, places)), shape=(len(share), variables))
    busy = csr_array((latency_s[able], (kinds, places)), shape=(latency_s.shape[1], variables))
    served = csr_array(-ones[None, :])
    rate = np.concatenate([-share, [in_time], np.zeros(len(counts))])[:, None]
    left = hstack([vstack([by_size, served, busy]), csr_array(rate)], format="csr")
    right = np.concatenate([np.zeros(len(share) + 1), counts.astype(np.float64)])
    objective = np.zeros(variables + 1)
    objective[-1] = -1.0
    solved = linprog(objective, A_ub=left, b_ub=right, method="highs")
    dual = -np.asarray(solved.ineqlin.marginals)[len(share) + 1 :]
    highest = float(dual.max(initial=0.0))
    price = np.maximum(dual, _LEAST_PRICE * highest) if highest > 0 else np.ones(len(dual))
    # x = 0 is feasible and R is bounded by the instances: there always is an optimum.
    return ThroughputBound(rate_rps=-float(solved.fun or 0.0), price=price / price[:1])


def check_bound_input(
    share: FloatArray, latency_s: FloatArray, counts: IntArray, qos_s: float, in_time: float
) -> None:
    """Raise InvalidInput where a number is out of its range, or the kinds of `counts` differ."""
    shape, actual = (len(share), counts.shape[-1]), latency_s.shape
    checks.require(actual == shape, "latency_s", f"must have shape {shape}", actual)
    checks.require(bool((latency_s > 0).all()), "latency_s", "must be > 0", latency_s.min())
    good = bool((share >= 0).all()) and abs(float(share.sum()) - 1.0) < 1e-6
    checks.require(good, "share", "must be >= 0 and add up to 1", share.sum())
    checks.require(bool((counts >= 0).all()), "counts", "must be >= 0", counts)
    checks.positive("qos_s", qos_s)
    checks.share("in_time", in_time)


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
    rates_rps = np.zeros(len(pools))
    ways = _Ways.of(share, latency_s, qos_s, in_time)
    if ways is None:
        return rates_rps
    step = max(1, _AT_ONCE // ways.latency_s.size)
    for first in range(0, len(pools), step):
        rates_rps[first : first + step] = _bounds(ways, pools[first : first + step])
    for place in np.flatnonzero(np.isnan(rates_rps)):
        one = throughput_bound(share, latency_s, pools[place], qos_s, in_time=in_time)
        rates_rps[place] = one.rate_rps
    return rates_rps


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
    bounds = np.full(count, np.nan)
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
        bounds[left[done]] = (rates / np.minimum(cost, 1.0).clip(1e-9))[done]
        keep = ~done
        if not keep.any():
            break
        left, inverse, worth, amount = left[keep], inverse[keep], worth[keep], amount[keep]
        slack = (price[keep] < -_GAP).any(axis=1)
        _pivot(entering[keep], slack, inverse, worth, amount)
    return bounds


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
