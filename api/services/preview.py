"""How good a schedule is, and what another one would be: nothing is changed by looking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from api.phases import LIVE
from api.services.in_force import InForce
from api.services.scheduling import LiveQuery, problem_of
from api.store.store import Store
from pipelines import checks
from pipelines.infrastructure import Infrastructure
from scheduler.compiled import Compiled, benefits
from scheduler.displacement import Displacement, displacements
from scheduler.prices import dual_prices
from scheduler.problem import Candidate, Problem, Schedule
from scheduler.rolling import Times, Upkeep


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """How good a schedule is.

    Attributes:
        goodput: Sum of the benefits of the live queries that it serves: their weights, where all
            have the same priority.
        bound: No schedule on these machines serves more (linear relaxation).
        displaced: Live queries that ran and are stopped or moved, and for whom.
    """

    goodput: float
    bound: float
    displaced: tuple[Displacement, ...] = ()

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
        quotas: Tenant -> part of each shared tier, instead of the tenant's quota.
    """

    machines: Mapping[str, int] = field(default_factory=dict)
    leaving: frozenset[str] = frozenset()
    arriving: tuple[Candidate, ...] = ()
    quotas: Mapping[str, float] = field(default_factory=dict)


def live_problem(
    store: Store, in_force: InForce, infrastructure: Infrastructure, quotas: Mapping[str, float]
) -> Problem:
    """Give the scheduling problem as it stands, oldest query first."""
    live = [LiveQuery.of(store.query(q), store.plans(q)) for q in store.ids(LIVE)]
    return problem_of(live, infrastructure, in_force.schedule.by_query, quotas)


def assess(problem: Problem, schedule: Schedule) -> Assessment:
    """Give how good a schedule is for a problem."""
    worth = benefits(problem.candidates)
    return Assessment(
        goodput=sum(worth.get(query, 0.0) for query in schedule.by_query),
        bound=dual_prices(Compiled.of(problem).arrays).bound,
        displaced=displacements(problem, schedule),
    )


def preview(
    problem: Problem, in_force: InForce, upkeep: Upkeep, change: WhatIf, *, now: float
) -> tuple[Schedule, Assessment]:
    """Give the schedule that a change would lead to, and how good it is.

    Raises:
        InvalidInput: If a tier, a leaving query or a plan's tier is not there, or an arriving
            query has the id of a live one.
    """
    changed = _changed(problem, change)
    times = Times(since=in_force.since, overdue=frozenset(in_force.overdue))
    queries = [candidate.query_id for candidate in changed.candidates]
    schedule = upkeep.whole(changed, times.standings(queries, now))
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
        running={q: a for q, a in problem.running.items() if q not in change.leaving},
        quotas={**problem.quotas, **change.quotas},
    )
