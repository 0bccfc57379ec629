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

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from scheduler.packing import Packing
from scheduler.problem import (
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    aggregate_parts,
    covers,
    utilisation,
)
from scheduler.waiting import why_waiting


class Ranking(StrEnum):
    """What the benefit of a plan is divided by."""

    DEMAND = "demand"
    """Machines are limited: as much weight as fits."""
    MONEY = "money"
    """Machines can be rented: all queries, at little cost."""


Ranked = tuple[Candidate, PlanOption]


@dataclass(frozen=True, slots=True, kw_only=True)
class Greedy:
    """A `SchedulingPolicy`: the best ratio of benefit to demand, or to money, first.

    Attributes:
        ranking: What the benefit is divided by.
    """

    ranking: Ranking = Ranking.DEMAND

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        ranked = self._ranked(problem)
        packing = Packing(problem.tiers)
        placed = _keep_running(problem, ranked, packing)
        while _admit(ranked, placed, packing):
            pass  # with unlike items on a tier, best fit may succeed on the second look
        return _schedule(problem, placed, packing)

    def _ranked(self, problem: Problem) -> list[Ranked]:
        shared = frozenset(tier.name for tier in problem.tiers if not tier.dedicated)

        def rank(entry: Ranked) -> tuple[float, float, float, str, str]:
            candidate, plan = entry
            money = plan.cost_usd_per_hour
            price = (
                money if self.ranking is Ranking.MONEY else aggregate_parts(plan.demand, shared)
            )
            ratio = candidate.weight / price if price else inf
            return -ratio, -candidate.weight, money, candidate.query_id, plan.plan_id

        plans = [(candidate, plan) for candidate in problem.candidates for plan in candidate.plans]
        return sorted(plans, key=rank)


def _keep_running(
    problem: Problem, ranked: Sequence[Ranked], packing: Packing
) -> dict[str, Assignment]:
    """Place what runs, in rank order: on its machines, else its plan on others, else not."""
    held: dict[str, Assignment] = {}
    homeless: list[Ranked] = []
    for candidate, plan in ranked:
        before = problem.running.get(candidate.query_id)
        if before is None or before.plan_id != plan.plan_id:
            continue
        if covers(before, plan) and packing.occupy(before.machines):
            held[candidate.query_id] = before
        else:
            homeless.append((candidate, plan))
    _admit(homeless, held, packing)
    return held


def _admit(ranked: Sequence[Ranked], placed: dict[str, Assignment], packing: Packing) -> bool:
    """Place what fits into `placed`, in order; give whether anything did."""
    before = len(placed)
    for candidate, plan in ranked:
        if candidate.query_id in placed:
            continue
        slices = packing.place(plan.demand)
        if slices is not None:
            placed[candidate.query_id] = Assignment(
                query_id=candidate.query_id, plan_id=plan.plan_id, machines=slices
            )
    return len(placed) > before


def _schedule(problem: Problem, placed: dict[str, Assignment], packing: Packing) -> Schedule:
    candidates = problem.candidates
    assignments = tuple(placed[c.query_id] for c in candidates if c.query_id in placed)
    waiting = {
        c.query_id: _why(problem, c, packing) for c in candidates if c.query_id not in placed
    }
    return Schedule(
        assignments=assignments,
        waiting=waiting,
        utilisation=utilisation(problem, assignments),
    )


def _why(problem: Problem, candidate: Candidate, packing: Packing) -> str:
    why = why_waiting(candidate, packing, problem.tiers)
    before = problem.running.get(candidate.query_id)
    return why if before is None else f"Its plan {before.plan_id} lost its machines. {why}"
