"""A scheduling problem as arrays: plans of all queries in one row after another.

| symbol | meaning |
| --- | --- |
| N, L, T, I | queries, plans of all queries, shared tiers, items of all plans |

Only what competes is here: items on dedicated tiers are left out (a query has those
machines to itself), and so are plans that could never be placed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from circinus.scheduler.problem import PARTS

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanArrays:
    """What every plan of every query asks of the shared tiers."""

    benefit: FloatArray  # (N,); of serving a query, `> 0`
    first: IntArray  # (N + 1,); plans of query q are `first[q]` up to `first[q + 1]`; at least one
    cost_usd_per_hour: FloatArray  # (L,); of a plan
    # items of plan p are `item_first[p]` up to `item_first[p + 1]`; may be none
    item_first: IntArray  # (L + 1,)
    item_tier: IntArray  # (I,); index of a shared tier
    # parts of one machine, in `[1, PARTS]`; within a plan the largest come first
    item_parts: IntArray  # (I,)
    machines: IntArray  # (T,); of each shared tier
    usage: FloatArray = field(init=False)  # (L, T) machines
    owner: IntArray = field(init=False)  # (L,) query of a plan

    def __post_init__(self) -> None:
        plans, tiers = len(self.cost_usd_per_hour), len(self.machines)
        plan_of = np.repeat(np.arange(plans), np.diff(self.item_first))
        parts = np.bincount(
            plan_of * tiers + self.item_tier, weights=self.item_parts, minlength=plans * tiers
        )
        usage = (parts / PARTS).reshape(plans, tiers) if tiers else np.zeros((plans, 0))
        object.__setattr__(self, "usage", usage)
        object.__setattr__(
            self, "owner", np.repeat(np.arange(len(self.benefit)), np.diff(self.first))
        )

    def least(
        self,
        value: FloatArray,  # (L,)
    ) -> tuple[FloatArray, IntArray]:  # (N,), (N,)
        """Give the least value among each query's plans, and the first plan that has it."""
        queries, plans = len(self.benefit), len(value)
        if queries == 0:
            return np.zeros(0), np.zeros(0, np.int64)
        if plans == queries * (plans // queries) and np.all(
            np.diff(self.first) * queries == plans
        ):
            rows = value.reshape(queries, -1)
            best = rows.argmin(axis=1)
            return rows[np.arange(queries), best], self.first[:-1] + best
        least = np.minimum.reduceat(value, self.first[:-1])
        hits = np.flatnonzero(value == least[self.owner])[::-1]
        plan = np.zeros(queries, np.int64)
        plan[self.owner[hits]] = hits  # the last write wins: the first plan
        return least, plan

    def items(self, plan: int) -> tuple[tuple[int, int], ...]:
        """Give the items (tier, parts) of a plan, the largest first."""
        span = slice(self.item_first[plan], self.item_first[plan + 1])
        return tuple(
            zip(self.item_tier[span].tolist(), self.item_parts[span].tolist(), strict=True)
        )

    def hardest(self) -> IntArray:
        """Give the parts of each plan's largest item on each tier; 0 without one.  # (L, T)."""
        plans, tiers = self.usage.shape
        largest = np.zeros(plans * tiers, np.int64)
        plan_of = np.repeat(np.arange(plans), np.diff(self.item_first))
        # Items come largest first, so writing them backwards leaves the largest.
        largest[(plan_of * tiers + self.item_tier)[::-1]] = self.item_parts[::-1]
        return largest.reshape(plans, tiers)
