"""From live queries to a scheduling problem, and from its schedule to what should run. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from api.documents import from_document
from api.store.records import QueryRecord, StoredPlan
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
        priority: Goes before any number of queries of lower priority.
        tenant: Whose it is; empty: nobody's.
        revision: Of its plans: another one, other plans.
    """

    id: str
    weight: float
    plans: tuple[Plan, ...]
    priority: int = 0
    tenant: str = ""
    revision: int = 0

    @classmethod
    def of(cls, record: QueryRecord, plans: Sequence[StoredPlan]) -> LiveQuery:
        """Give a stored query with its stored plans."""
        spec = record.spec
        return cls(
            id=record.id,
            weight=float(str(spec.get("weight", 1.0))),
            plans=tuple(from_document(Plan, entry.plan) for entry in plans),
            priority=int(str(spec.get("priority", 0))),
            tenant=str(spec.get("tenant", "")),
            revision=record.revision,
        )

    @property
    def candidate(self) -> Candidate:
        """The query as the scheduler sees it."""
        options = tuple(
            PlanOption(plan_id=p.id, demand=p.demand, cost_usd_per_hour=p.cost_usd_per_hour)
            for p in self.plans
        )
        return Candidate(
            query_id=self.id,
            plans=options,
            weight=self.weight,
            priority=self.priority,
            tenant=self.tenant,
        )

    def plan(self, plan_id: str) -> Plan:
        """Give the plan of that id, which must be one of the query's."""
        return next(plan for plan in self.plans if plan.id == plan_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should run.

    Attributes:
        plans: Admitted query -> its plan.
        waiting: Query without machines -> why.
    """

    plans: Mapping[str, Plan] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)


def problem_of(
    live: Sequence[LiveQuery],
    infrastructure: Infrastructure,
    running: Mapping[str, Assignment],
    quotas: Mapping[str, float],
) -> Problem:
    """Give the scheduling problem of the live queries, oldest first.

    Args:
        live: All of them.
        infrastructure: With the machines.
        running: Where queries run, kept where possible; those that are not live are left out.
        quotas: Of tenants.
    """
    ids = {query.id for query in live}
    return Problem(
        tiers=infrastructure.tiers,
        candidates=tuple(query.candidate for query in live),
        running={query_id: at for query_id, at in running.items() if query_id in ids},
        quotas=quotas,
    )


def target_of(live: Mapping[str, LiveQuery], schedule: Schedule) -> Target:
    """Give what should run under a schedule of live queries, by id."""
    return Target(
        plans={a.query_id: live[a.query_id].plan(a.plan_id) for a in schedule.assignments},
        waiting=schedule.waiting,
    )
