"""From live queries to a scheduling problem, from its schedule to what should run, and what if."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock

from circinus.api.phases import LIVE
from circinus.api.schemas.schedule import ArrivalInput, PreviewBody
from circinus.api.store.documents import from_document, to_document
from circinus.api.store.records import DisplacedRecord, StoredPlan, StoredQuery
from circinus.api.store.schedules import ScheduleStore
from circinus.api.store.store import Store
from circinus.pipelines import checks
from circinus.pipelines.infrastructure import Infrastructure
from circinus.pipelines.plan import DemandItem, Plan
from circinus.scheduler.compiled.feasibility import Compiled, benefits
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.problem import Assignment, Candidate, PlanOption, Problem, Schedule
from circinus.scheduler.rolling.preemption import Preemption, preemptions
from circinus.scheduler.rolling.scheduler import Times, Upkeep

NOTHING = Schedule(assignments=(), waiting={}, utilisation={})


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """A query that competes for capacity.

    Attributes:
        candidate: As the scheduler sees it.
        plans: Plan id -> plan, cheapest first, at least one.
        revision: Of its plans: another one, other plans.
    """

    candidate: Candidate
    plans: Mapping[str, Plan]
    revision: int

    @classmethod
    def of(cls, record: StoredQuery, stored: Sequence[StoredPlan]) -> LiveQuery:
        """Give a stored query with its stored plans."""
        query, plans = record.query, [entry.plan for entry in stored]
        candidate = Candidate(
            query_id=record.id,
            plans=tuple(
                PlanOption(plan_id=p.id, demand=p.demand, cost_usd_per_hour=p.cost_usd_per_hour)
                for p in plans
            ),
            weight=query.weight,
            priority=query.priority,
            tenant=query.tenant,
        )
        return cls(candidate=candidate, plans={p.id: p for p in plans}, revision=record.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should run: admitted query -> its plan; and who waits: query -> why."""

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
    ids = {query.candidate.query_id for query in live}
    return Problem(
        tiers=infrastructure.tiers,
        candidates=tuple(query.candidate for query in live),
        running={query_id: at for query_id, at in running.items() if query_id in ids},
        quotas=quotas,
    )


def target_of(live: Mapping[str, LiveQuery], schedule: Schedule) -> Target:
    """Give what should run under a schedule of live queries, by id."""
    return Target(
        plans={a.query_id: live[a.query_id].plans[a.plan_id] for a in schedule.assignments},
        waiting=schedule.waiting,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A schedule and how it came about.

    Attributes:
        schedule: Who runs where, who waits and why.
        made_at: Seconds since the epoch; 0 before the first.
        machines: Tier -> how many machines there were.
        since: Live query -> seconds since the epoch at which it was served or put out last, or
            came.
        overdue: Queries served because they had waited too long, whose turn is not over.
    """

    schedule: Schedule = NOTHING
    made_at: float = 0.0
    machines: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()


@dataclass(slots=True)
class ScheduleInForce:
    """The stored schedule, read again only when it was replaced. Safe to share between threads."""

    store: ScheduleStore
    _known: tuple[int, InForce] = field(default=(0, InForce()), init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def read(self) -> tuple[int, InForce]:
        """Give its revision and itself; revision 0 and an empty one before the first."""
        revision = self.store.revision()
        with self._lock:
            if revision == self._known[0]:
                return self._known
        stored = self.store.schedule()
        found = (revision, InForce() if stored is None else from_document(InForce, stored))
        with self._lock:
            # Replaced between the two reads, the document is newer than its number: the next
            # look reads it once more, none shows an older one for a newer.
            self._known = found
        return found

    def replace(self, new: InForce, displaced: tuple[DisplacedRecord, ...] = ()) -> None:
        """Put another one in force, and note who was displaced by it."""
        self.store.set_schedule(to_document(new), at=new.made_at, displaced=displaced)


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
    displaced: tuple[Preemption, ...] = ()

    @property
    def gap(self) -> float:
        """Part of the bound that is not reached, in [0, 1]."""
        return max(0.0, 1 - self.goodput / self.bound) if self.bound > 0 else 0.0


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
        displaced=preemptions(problem, schedule),
    )


def preview(
    problem: Problem, in_force: InForce, upkeep: Upkeep, change: PreviewBody, *, now: float
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


def _changed(problem: Problem, change: PreviewBody) -> Problem:
    names = [tier.name for tier in problem.tiers]
    for tier in change.machines:
        checks.require(tier in names, "machines", f"must be among {', '.join(names)}", tier)
    live = {candidate.query_id for candidate in problem.candidates}
    for query in sorted(set(change.leaving)):
        checks.require(query in live, "leaving", "must be live queries", query)
    return replace(
        problem,
        tiers=tuple(
            replace(tier, machines=change.machines.get(tier.name, tier.machines))
            for tier in problem.tiers
        ),
        candidates=(
            *(c for c in problem.candidates if c.query_id not in change.leaving),
            *map(_candidate, change.arriving),
        ),
        running={q: a for q, a in problem.running.items() if q not in change.leaving},
        quotas={**problem.quotas, **change.quotas},
    )


def _candidate(arrival: ArrivalInput) -> Candidate:
    plans = tuple(
        PlanOption(
            plan_id=p.id,
            demand=tuple(DemandItem(item.tier, item.share) for item in p.demand),
            cost_usd_per_hour=p.cost_usd_per_hour,
        )
        for p in arrival.plans
    )
    return Candidate(
        query_id=arrival.id,
        plans=plans,
        weight=arrival.weight,
        priority=arrival.priority,
        tenant=arrival.tenant,
    )
