"""Greedy choice over all live queries, as published (Circinus 4.3).

| symbol | meaning |
| --- | --- |
| w | weight of a query: the benefit of serving it |
| cr | aggregate demand of a plan: the sum of its shares over the shared tiers |
| money | dollars per hour of a plan |

All plans of all queries are ranked by w / cr (or w / money when machines can be
rented and all queries are to be served); in that order a plan is admitted when its
query is not placed yet and all its items find room.

Deviations: the machines that a query has to itself do not count in cr, since nobody
else could use them; items are packed on single machines (best fit) where the paper's
text speaks of a tier's total; queries that already run stay on their machines; equal
ranks are ordered by weight, cost, then ids, so the outcome does not depend on the
order in which queries came.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from scheduler.admission import admit, keep_running
from scheduler.compiled import Compiled
from scheduler.problem import Problem, Schedule


class Ranking(StrEnum):
    """What the benefit of a plan is divided by."""

    DEMAND = "demand"
    """Machines are limited: as much weight as fits."""
    MONEY = "money"
    """Machines can be rented: all queries, at little cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """A `SchedulingPolicy`: the best ratio of benefit to demand, or to money, first.

    Attributes:
        ranking: What the benefit is divided by.
    """

    ranking: Ranking = Ranking.DEMAND

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        ranked = self._ranked(compiled)
        placement = compiled.placement()
        keep_running(compiled, placement, ranked)
        while admit(compiled, placement, ranked):
            pass  # with unlike items on a tier, best fit may succeed on the second look
        return compiled.schedule(placement)

    def _ranked(self, compiled: Compiled) -> list[int]:
        """Give the plans of all queries, the best first."""
        arrays = compiled.arrays
        money = arrays.cost_usd_per_hour
        price = money if self.ranking is Ranking.MONEY else arrays.usage.sum(axis=1)
        benefit = arrays.benefit[arrays.owner]
        with np.errstate(divide="ignore"):
            ratio = np.where(price > 0, benefit / price, np.inf)
        # Among equals the order of the plans decides: queries by id, plans by cost, then id.
        ranked: list[int] = np.lexsort((arrays.owner, money, -benefit, -ratio)).tolist()
        return ranked
