"""From live queries to a scheduling problem, and from its schedule to what should run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from scheduler.problem import Assignment, Candidate, PlanOption, Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """A query that competes for capacity.

    Attributes:
        id: Of the query.
        weight: Benefit of serving it.
        plans: Its Pareto set, cheapest first, at least one.
    """

    id: str
    weight: float
    plans: tuple[Plan, ...]

    def plan(self, plan_id: str) -> Plan:
        """Give the plan of that id, which must be one of the query's."""
        return next(plan for plan in self.plans if plan.id == plan_id)


def problem_of(
    live: Sequence[LiveQuery], infrastructure: Infrastructure, running: Schedule | None
) -> Problem:
    """Give the scheduling problem of the live queries, oldest first.

    Args:
        live: All of them.
        infrastructure: With the machines.
        running: The schedule in force, kept where possible; None: nothing runs.
    """
    ids = {query.id for query in live}
    kept: Mapping[str, Assignment] = {} if running is None else running.by_query
    return Problem(
        tiers=infrastructure.tiers,
        candidates=tuple(map(_candidate, live)),
        running={query_id: kept[query_id] for query_id in kept if query_id in ids},
    )


def _candidate(query: LiveQuery) -> Candidate:
    options = tuple(
        PlanOption(plan_id=p.id, demand=p.demand, cost_usd_per_hour=p.cost_usd_per_hour)
        for p in query.plans
    )
    return Candidate(query_id=query.id, plans=options, weight=query.weight)


def chosen_plans(live: Sequence[LiveQuery], schedule: Schedule) -> dict[str, Plan]:
    """Give the plan that each admitted query should run."""
    by_id = {query.id: query for query in live}
    return {a.query_id: by_id[a.query_id].plan(a.plan_id) for a in schedule.assignments}
