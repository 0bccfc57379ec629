"""Greedy choice over all live queries, as published (Circinus 4.3), and its baselines.

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

The baselines look at each query on its own: only its cheapest plan is ever tried.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.policies.filling import keep_running
from circinus.scheduler.problem import PlanOption, Problem, Schedule


class Ranking(StrEnum):
    """What the benefit of a plan is divided by."""

    DEMAND = "demand"
    """Machines are limited: as much weight as fits."""
    MONEY = "money"
    """Machines can be rented: all queries, at little cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """A `SchedulingPolicy`: the best ratio of benefit to demand, or to money, first."""

    ranking: Ranking = Ranking.DEMAND  # what the benefit is divided by

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        arrays = compiled.arrays
        money = arrays.cost_usd_per_hour
        price = money if self.ranking is Ranking.MONEY else arrays.usage.sum(axis=1)
        benefit = arrays.benefit[arrays.owner]
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.where(price > 0, benefit / price, np.inf)
        # Among equals the order of the plans decides: queries by id, plans by cost, then id.
        ranked = np.lexsort((arrays.owner, money, -benefit, -ratio)).tolist()
        placement = compiled.placement()
        keep_running(compiled, placement, ranked)
        return compiled.filled_up(placement, ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class FcfsScheduling:
    """A `SchedulingPolicy`: first come, first served (Circinus 6.1, appendix F).

    In the order of the problem's candidates, as YARN admits applications; nobody is held up by a
    query before it that does not fit, which is the variant that is harder to beat. Linear in the
    number of queries.
    """

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(_cheapest_only(problem))
        turn = {query: q for q, query in enumerate(c.query_id for c in compiled.queries)}
        turns = [turn[c.query_id] for c in problem.candidates if c.query_id in turn]
        placement = compiled.placement()
        keep_running(compiled, placement, turns)  # one plan per query: plan q is query q's
        return compiled.filled_up(placement, turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBest:
    """A `SchedulingPolicy`: each query's locally best plan, then greedy (Circinus 2.3, 4.3).

    What planning every query on its own comes to: the choice among queries is as good as
    greedy's, the choice among plans ignores that others compete for the same tier.
    """

    ranking: Ranking = Ranking.DEMAND

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        return Greedy(ranking=self.ranking).schedule(_cheapest_only(problem))


def _cheapest_only(problem: Problem) -> Problem:
    """Return the problem with each query's locally best plan: the cheapest, then the first id."""

    def rank(plan: PlanOption) -> tuple[float, str]:
        return plan.cost_usd_per_hour, plan.plan_id

    narrowed = tuple(replace(c, plans=(min(c.plans, key=rank),)) for c in problem.candidates)
    return replace(problem, candidates=narrowed)
