"""Which instance types are worth a place among the pools to choose from.

| symbol | meaning | shape |
| --- | --- | --- |
| q, L, T | as in `scheduler.pool.throughput_bounds` | |
| p | price of an instance of each type | (K,) |

If instances could be rented in parts, each size would be served where L p is least among the types
in time: a request then costs sum_b q_b min_k L_bk p_k, which no pool undercuts.
"""

from __future__ import annotations

import numpy as np

from circinus.pipelines.model.profile import FloatArray


def least_cost(
    share: FloatArray,  # (B,), q
    latency_s: FloatArray,  # (B, K), L
    prices: FloatArray,  # (K,), p
    qos_s: float,
    *,
    in_time: float,  # g
) -> float:
    """Return what a rate of 1 costs at least, in the unit of prices; infinite: none can be."""
    cheapest = _costs(latency_s, prices, qos_s).min(axis=1)
    order = np.argsort(cheapest)
    mass = share[order]
    mass = np.clip(in_time - (mass.cumsum() - mass), 0.0, mass)
    used = mass > 1e-12
    return float(mass[used] @ cheapest[order][used])


def dearness(
    share: FloatArray,  # (B,), q
    latency_s: FloatArray,  # (B, K), L
    prices: FloatArray,  # (K,), p
    qos_s: float,
) -> FloatArray:  # (K,)
    """Return how many times the least cost each type takes for the size that suits it best.

    1: it is the cheapest for some size. Infinite: it is in time with no size that occurs, or is
    paid where another that is free serves as well.
    """
    costs = _costs(latency_s, prices, qos_s)[share > 0]
    least = costs.min(axis=1, keepdims=True)
    same = (costs == least) & (costs < np.inf)
    ratio = np.full_like(costs, np.inf)
    np.divide(costs, least, out=ratio, where=(least > 0) & (costs < np.inf))
    return np.asarray(np.where(same, 1.0, ratio).min(axis=0))


def worthwhile(dear: FloatArray, choices: FloatArray, most: int, keep: int | None) -> list[int]:
    """Return places of the types to choose from: the least dear ones, in their order.

    `choices`, (K,): how many counts each may have, 1 where it cannot be paid; their product stays
    within `most`, except that one type is always there. `keep`: a type that stays whatever it
    costs; None: none does.
    """
    order = sorted(range(len(dear)), key=lambda k: (k != keep, dear[k], k))
    taken: list[int] = []
    size = 1.0
    for k in order:
        useful = k == keep or (dear[k] < np.inf and choices[k] > 1)
        if not taken or (useful and size * choices[k] <= most):
            taken.append(k)
            size *= choices[k]
    return sorted(taken)


def _costs(latency_s: FloatArray, prices: FloatArray, qos_s: float) -> FloatArray:  # (B, K)
    seconds = np.where(latency_s <= qos_s, latency_s, np.inf)
    free = np.where(np.isfinite(seconds), 0.0, np.inf)
    return np.where(prices > 0, seconds * np.where(prices > 0, prices, 1.0), free)
