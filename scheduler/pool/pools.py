"""Pools of instances: which there are to choose from, what they cost, and what was tried.

| symbol | meaning | shape |
| --- | --- | --- |
| K | types of instance; type 0 is the base type where one is needed | |
| P | pools | |
| p | price of an instance of each type, USD per hour | (K,) |
| m | most instances of each type | (K,) |
| x | counts of each type in each pool | (P, K) |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.profile import BoolArray, FloatArray, IntArray

Pool = tuple[int, ...]
"""How many instances of each type, in the order of the types."""

MOST_OF_TYPE = 100
"""Instances of a type in a pool that is chosen, unless somebody says otherwise."""
MOST_POOLS = 1_000_000
"""That a space may have: all are held at once."""

_CENT = 1e-9  # a price that is above a budget by less is within it: sums of prices are not exact


@dataclass(frozen=True, kw_only=True)
class PoolSpace:
    """The pools with at most so many instances of each type, but for the empty one."""

    types: tuple[str, ...]  # names, unique
    prices: tuple[float, ...]  # p, `>= 0`
    most: Pool  # m, `>= 0`, not all 0

    def __post_init__(self) -> None:
        checks.require(len(self.types) > 0, "types", "must not be empty", self.types)
        checks.unique("types", self.types)
        count = len(self.types)
        for name, values in (("prices", self.prices), ("most", self.most)):
            checks.require(len(values) == count, name, f"must have {count} values", values)
            for kind, value in zip(self.types, values, strict=True):
                checks.non_negative(f"{name} of {kind}", value)
        checks.require(any(self.most), "most", "must not be 0 for every type", self.most)
        size = prod(most + 1 for most in self.most)
        rule = f"must give at most {MOST_POOLS} pools"
        checks.require(size <= MOST_POOLS, "most", rule, f"{size} pools")

    @classmethod
    def within_budget(
        cls,
        types: Sequence[str],
        prices: Sequence[float],
        budget_usd_per_hour: float,
        most: int | Sequence[int],
    ) -> PoolSpace:
        """Return the space of what a budget can pay of each type alone, at most `most` of each.

        InvalidInput if it cannot pay a single instance.
        """
        checks.non_negative("budget", budget_usd_per_hour)
        cheapest = min(prices, default=0.0)
        rule = f"must pay an instance, of which the cheapest costs {cheapest:g} USD/h"
        checks.require(
            budget_usd_per_hour + _CENT >= cheapest, "budget", rule, budget_usd_per_hour
        )
        limits = [most] * len(prices) if isinstance(most, int) else most
        counts = [
            limit if price == 0 else min(limit, int((budget_usd_per_hour + _CENT) / price))
            for price, limit in zip(prices, limits, strict=True)
        ]
        return cls(types=tuple(types), prices=tuple(prices), most=tuple(counts))

    @cached_property
    def pools(self) -> IntArray:  # (P, K)
        """All of them, the last type's count the fastest to change."""
        grids = np.indices([most + 1 for most in self.most]).reshape(len(self.most), -1)
        return np.ascontiguousarray(grids.T[1:], dtype=np.int64)

    @cached_property
    def costs(self) -> FloatArray:  # (P,)
        """What an hour of each costs, in USD."""
        return np.asarray(self.pools @ np.array(self.prices))

    @cached_property
    def dearest(self) -> float:
        """The price of as many as there may be of each type."""
        return float(np.dot(self.most, self.prices))

    def cost(self, pool: Pool) -> float:
        """Return what an hour of a pool costs, in USD."""
        return float(np.dot(pool, self.prices))

    def place(self, pool: Pool) -> int:
        """Return the place of a pool among `pools`; InvalidInput if it is none of them."""
        inside = len(pool) == len(self.most) and all(
            0 <= count <= most for count, most in zip(pool, self.most, strict=True)
        )
        rule = f"must have at most {self.most} of {', '.join(self.types)}, and one at least"
        checks.require(inside and any(pool), "pool", rule, pool)
        return int(np.ravel_multi_index(pool, [most + 1 for most in self.most])) - 1

    def within(self, budget_usd_per_hour: float) -> BoolArray:  # (P,)
        """Return which pools cost at most a budget."""
        return np.asarray(self.costs <= budget_usd_per_hour + _CENT)

    def full(self, budget_usd_per_hour: float) -> BoolArray:  # (P,)
        """Return which pools a budget pays with no other instance of any type beside them."""
        left = budget_usd_per_hour + _CENT - self.costs
        more = (self.pools < np.array(self.most)) & (np.array(self.prices) <= left[:, None])
        return np.asarray((left >= 0) & ~more.any(axis=1))


class PoolTrial(NamedTuple):
    """A pool that was tried, and what was measured of it."""

    pool: Pool
    # what the trial was for: the share of the requests that were in time at a rate, or the
    # largest rate at which enough were, per second
    value: float
    ended_early: bool = False  # it was clear that it violates; `value` is then of a part


def contained(pools: IntArray, largest: Pool) -> BoolArray:  # (P,)
    """Return which pools have at most as many of each type as another."""
    return np.asarray((pools <= np.array(largest)).all(axis=1))
