"""Scheduling policies by name, and the published ones: greedy (Circinus 4.3) and its baselines.

Service and studies get policies by name here, so that what a study measures is what a service
runs.

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
order of arrival of queries.

The baselines look at each query on its own: only its cheapest plan is ever tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock
from circinus.scheduler.compiled.feasibility import Compiled
from circinus.scheduler.ilp import Ilp
from circinus.scheduler.policies.filling import keep_running
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import (
    Objective,
    PlanOption,
    Problem,
    Schedule,
    SchedulingPolicy,
)


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
    small_steps: ClassVar[bool] = False

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(problem)
        arrays = compiled.arrays
        money = arrays.cost_usd_per_hour
        # deviates: own-machines-free
        price = money if self.ranking is Ranking.MONEY else arrays.usage.sum(axis=1)
        benefit = arrays.benefit[arrays.owner]
        with np.errstate(divide="ignore", over="ignore"):
            ratio = np.where(price > 0, benefit / price, np.inf)
        # deviates: rank-ties
        # Among equals the order of the plans decides: queries by id, plans by cost, then id.
        ranked = np.lexsort((arrays.owner, money, -benefit, -ratio)).tolist()
        placement = compiled.placement()
        keep_running(compiled, placement, ranked)
        # deviates: packed-on-machines
        return compiled.filled_up(placement, ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class FcfsScheduling:
    """A `SchedulingPolicy`: first come, first served (Circinus 6.1, appendix F).

    In the order of the problem's candidates, as YARN admits applications; nobody is held up by a
    query before it that does not fit, which is the variant that is harder to beat. Linear in the
    number of queries.
    """

    small_steps: ClassVar[bool] = False

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(_cheapest_only(problem))
        turn = {query: q for q, query in enumerate(c.query_id for c in compiled.queries)}
        turns = [turn[c.query_id] for c in problem.candidates if c.query_id in turn]
        placement = compiled.placement()
        keep_running(compiled, placement, turns)  # one plan per query: plan q is query q's
        # deviates: fcfs-passes
        return compiled.filled_up(placement, turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBest:
    """A `SchedulingPolicy`: each query's locally best plan, then greedy (Circinus 2.3, 4.3).

    What planning every query on its own comes to: the choice among queries is as good as
    greedy's, the choice among plans ignores that others compete for the same tier.
    """

    ranking: Ranking = Ranking.DEMAND
    small_steps: ClassVar[bool] = False

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""
        return Greedy(ranking=self.ranking).schedule(_cheapest_only(problem))


def _cheapest_only(problem: Problem) -> Problem:
    """Return the problem with each query's locally best plan: the cheapest, then the first id."""

    def rank(plan: PlanOption) -> tuple[float, str]:
        return plan.cost_usd_per_hour, plan.plan_id

    narrowed = tuple(replace(c, plans=(min(c.plans, key=rank),)) for c in problem.candidates)
    return replace(problem, candidates=narrowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms on which policies are made."""

    # goodput of the machines there are, or cost of serving all
    objective: Objective = Objective.GOODPUT
    # leave to move what runs, for `priced`, and for `ilp`, whatever the price (the others never
    # do); None: none
    migration: Migration | None = None
    time_limit_s: float = 60.0  # of `ilp`, for one schedule, `> 0`
    clock: Clock = field(default_factory=SystemClock)  # of the time limits of the others


def scheduling_policy(name: str, terms: Terms) -> SchedulingPolicy:
    """Return the policy of a name; InvalidInput if there is none of that name."""
    checks.among("scheduling_policy", name, _MADE)
    return _MADE[name](terms)


def _ranking(terms: Terms) -> Ranking:
    return Ranking.MONEY if terms.objective is Objective.COST else Ranking.DEMAND


def _priced(terms: Terms) -> SchedulingPolicy:
    if terms.objective is Objective.COST:
        return Rental(migration=terms.migration, clock=terms.clock)
    return Priced(migration=terms.migration, clock=terms.clock)


_MADE: Mapping[str, Callable[[Terms], SchedulingPolicy]] = {
    "priced": _priced,
    "greedy": lambda terms: Greedy(ranking=_ranking(terms)),
    "ilp": lambda terms: Ilp(
        objective=terms.objective,
        time_limit_s=terms.time_limit_s,
        moves=terms.migration is not None,
    ),
    "fcfs": lambda terms: FcfsScheduling(),
    "local_best": lambda terms: LocalBest(ranking=_ranking(terms)),
}
