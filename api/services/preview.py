"""How good a schedule is, and what another one would be: nothing is changed by looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.documents import from_document
from api.phases import LIVE
from api.services.listing import all_in
from api.services.scheduling import LiveQuery, problem_of
from api.store.records import QueryRecord
from api.store.store import Store
from pipelines import checks
from pipelines.infrastructure import Infrastructure
from pipelines.plan import Plan
from scheduler.compiled import Compiled, benefits
from scheduler.displacement import displacements
from scheduler.policy import SchedulingPolicy
from scheduler.prices import dual_prices
from scheduler.problem import Candidate, Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How good a schedule is.

    Attributes:
        goodput: Sum of the weights of the live queries that it serves.
        bound: No schedule on these machines serves more (linear relaxation).
        displaced: Live queries that ran and are stopped or moved, and for whom, as sentences.
    """

    goodput: float
    bound: float
    displaced: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """Part of the bound that is not reached, in [0, 1]."""
        return max(0.0, 1 - self.goodput / self.bound) if self.bound > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A change to try.

    Attributes:
        machines: Tier -> number of machines instead of those there are.
        leaving: Live queries that would be gone.
        arriving: Queries that would come, with their plans.
    """

    machines: Mapping[str, int] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    arriving: tuple[Candidate, ...] = ()


def live_problem(store: Store, infrastructure: Infrastructure) -> Problem:
    """Give the scheduling problem as it stands, oldest query first."""
    stored = store.schedule()
    running = None if stored is None else from_document(Schedule, stored)
    records = reversed(list(all_in(store, LIVE)))
    return problem_of([_live(store, record) for record in records], infrastructure, running)


def _live(store: Store, record: QueryRecord) -> LiveQuery:
    plans = tuple(from_document(Plan, entry.plan) for entry in store.plans(record.id))
    weight = float(str(record.spec.get("weight", 1.0)))
    return LiveQuery(id=record.id, weight=weight, plans=plans)


def assess(problem: Problem, schedule: Schedule) -> Assessment:
    """Give how good a schedule is for a problem."""
    worth = benefits(problem.candidates)
    return Assessment(
        goodput=sum(worth.get(query, 0.0) for query in schedule.by_query),
        bound=dual_prices(Compiled.of(problem).arrays).bound,
        displaced=tuple(found.words for found in displacements(problem, schedule)),
    )


def preview(
    problem: Problem, policy: SchedulingPolicy, change: WhatIf
) -> tuple[Schedule, Assessment]:
    """Give the schedule that a change would lead to, and how good it is.

    Raises:
        InvalidInput: If a tier, a leaving query or a plan's tier is not there, or an arriving
            query has the id of a live one.
    """
    changed = _changed(problem, change)
    schedule = policy.schedule(changed)
    return schedule, assess(changed, schedule)


def _changed(problem: Problem, change: WhatIf) -> Problem:
    names = [tier.name for tier in problem.tiers]
    for tier in change.machines:
        checks.require(tier in names, "machines", f"must be among {', '.join(names)}", tier)
    live = {candidate.query_id for candidate in problem.candidates}
    for query in sorted(change.leaving):
        checks.require(query in live, "leaving", "must be live queries", query)
    return replace(
        problem,
        tiers=tuple(
            replace(tier, machines=change.machines.get(tier.name, tier.machines))
            for tier in problem.tiers
        ),
        candidates=(
            *(c for c in problem.candidates if c.query_id not in change.leaving),
            *change.arriving,
        ),
    )
