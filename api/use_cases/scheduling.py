"""From live queries to a scheduling problem, from its schedule to what should run, and what if."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from math import inf

from circinus.api.schemas.schedule import ArrivalInput, PreviewBody
from circinus.api.settings import require_rented
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.records import InForce
from circinus.api.store.store import Store
from circinus.api.use_cases.capacity import (
    demand_on_limits,
    limits_in_words,
    on_machines,
    require_tiers,
    shared_tiers,
    with_limits,
)
from circinus.api.use_cases.objectives import borne_per_s
from circinus.api.use_cases.parts import ServiceParts
from circinus.deploy.runtime.instances import ExtraReplica
from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.pipelines.model.plan import DemandItem, Plan
from circinus.pipelines.model.slo import Slo
from circinus.pipelines.model.tiers import Tier
from circinus.planner.deployment.prediction import HIGHEST_UTILISATION
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Objective,
    PlanOption,
    Problem,
    Schedule,
    Slice,
)
from circinus.scheduler.rolling.assessment import Assessment, assess
from circinus.scheduler.rolling.live import numbering, renumbered
from circinus.scheduler.rolling.pooling import NO_POOL, ChosenPool, Slices, bound
from circinus.scheduler.rolling.scheduler import Times


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledTier:
    """The tier whose replicas a number of replicas of a query counts: that with most of them."""

    tier: str
    own: int  # replicas that the plan itself has there, `>= 1`

    @classmethod
    def of(cls, plan: Plan, infrastructure: Infrastructure) -> ScaledTier | None:
        """Return it; None: all tiers of the plan are its query's own, or have no machines."""
        own = Counter(item.tier for item in plan.demand)
        shared = [tier for tier in own if not infrastructure.tier(tier).dedicated]
        if not shared:
            return None
        tier = max(shared, key=lambda name: own[name])  # the first of several
        return cls(tier=tier, own=own[tier])


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What serving an admitted query takes."""

    plan: Plan
    slo: Slo
    # of the machine of each item of the plan's demand; None: its tier has no types, or a pool
    machine_types: tuple[str | None, ...] = ()
    extras: tuple[ExtraReplica, ...] = ()  # beyond the plan's demand, while there is room
    pool: tuple[ExtraReplica, ...] = ()  # in place of its items on the tiers of the query's pool
    rate_per_s: float | None = None  # requests a second that its plan is for; None: any

    def machines_usd_per_hour(self, infrastructure: Infrastructure) -> float:
        """Return what the machines cost that it holds, extra replicas and its pool too."""
        pooled, slices = {each.tier for each in self.pool}, self.plan.demand_of
        types = self.machine_types or (None,) * len(self.plan.demand)
        own = zip(self.plan.demand, types, strict=True)
        held = [(item, kind) for item, kind in own if item.tier not in pooled]
        more = [(slices[e.slice or e.tier], e.machine_type) for e in (*self.extras, *self.pool)]
        return sum(
            item.share * infrastructure.tier(item.tier).typed(kind).price_usd_per_hour
            for item, kind in [*held, *more]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveQuery:
    """A query that competes for capacity."""

    candidate: Candidate  # of the scheduler
    plans: Mapping[str, Plan]  # plan id -> plan, cheapest first, at least one
    slo: Slo
    revision: int  # of its plans: another one, other plans
    timed: bool  # whether it is served for some time only
    rate_per_s: float | None  # that its plans are for; None: one request at a time

    @classmethod
    def of(cls, store: Store, query_id: str, infrastructure: Infrastructure) -> LiveQuery:
        """Return a stored query with those of its plans that the infrastructure can still run.

        NotFound if there is no query of that id, InvalidInput if none of its plans can run: it
        names what the first of them lacks.
        """
        record = store.query(query_id)
        query, stored = record.query, {entry.id: entry.plan for entry in store.plans(query_id)}
        options, lacking = _options(stored, infrastructure, query.slo)
        if lacking and not options:
            raise lacking[0]
        plans = {option.plan_id: stored[option.plan_id] for option in options}
        candidate = Candidate(
            query_id=query_id,
            plans=options,
            weight=query.weight,
            priority=query.priority,
            tenant=query.tenant,
        )
        timed = query.duration_s is not None
        return cls(
            candidate=candidate,
            plans=plans,
            slo=query.slo,
            revision=record.revision,
            timed=timed,
            rate_per_s=query.request_rate_per_s,
        )

    def planned_per_s(self, plan_id: str) -> float | None:
        """Return how many requests a second one of its plans is for; None: any."""
        plan = self.plans[plan_id]
        return borne_per_s(plan, self.slo, self.rate_per_s, HIGHEST_UTILISATION)

    def most_usd_per_hour(self, plan_id: str) -> float:
        """Return the cost allowed beyond one of its plans; infinite without an objective."""
        if self.slo.cost_usd_per_hour is None:
            return inf
        return self.slo.cost_usd_per_hour - self.plans[plan_id].cost_usd_per_hour

    def pool(self, slices: Slices) -> ChosenPool:
        """Return a pool of it, which costs no more than its objective allows."""
        usd = self.slo.cost_usd_per_hour
        return ChosenPool(slices=slices, most_usd_per_hour=inf if usd is None else usd)

    def served(
        self,
        at: Assignment,
        infrastructure: Infrastructure,
        extras: Sequence[Slice] = (),
        pool: ChosenPool = NO_POOL,  # that it has
    ) -> Served:
        """Return what serving it takes by one of its plans, on machines of an infrastructure."""
        plan, pooled = self.plans[at.plan_id], pool.slices.keys()
        own = iter(machine_types([s for s in at.machines if s.tier not in pooled], infrastructure))
        return Served(
            plan=plan,
            slo=self.slo,
            machine_types=tuple(None if i.tier in pooled else next(own) for i in plan.demand),
            extras=_replicas(plan, extras, infrastructure),
            pool=_replicas(plan, [s for s in at.machines if s.tier in pooled], infrastructure),
            rate_per_s=self.planned_per_s(at.plan_id),
        )


def _options(
    plans: Mapping[str, Plan], infrastructure: Infrastructure, slo: Slo
) -> tuple[tuple[PlanOption, ...], list[InvalidInput]]:
    """Return the plans that can run on the infrastructure, and what each of the others lacks."""
    options, lacking = list[PlanOption](), list[InvalidInput]()
    for name, plan in plans.items():
        try:
            require_tiers(plan, infrastructure)
            limits = demand_on_limits(plan, infrastructure, slo)
        except InvalidInput as error:
            lacking.append(error)
            continue
        options.append(PlanOption.of(name, plan, limits))
    return tuple(options), lacking


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should run: admitted query -> what serves it; and who waits: query -> why."""

    served: Mapping[str, Served] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        live: Mapping[str, LiveQuery],
        schedule: Schedule,
        infrastructure: Infrastructure,
        extras: Mapping[str, Assignment] | None = None,
        pools: Mapping[str, ChosenPool] | None = None,
    ) -> Target:
        """Return what should run under a schedule of live queries, by id, on its machines.

        `extras` are slices of further replicas, `pools` those that queries have; None: there are
        none.
        """
        more = {query: extra.machines for query, extra in (extras or {}).items()}
        mixes = pools or {}
        return cls(
            served={
                a.query_id: live[a.query_id].served(
                    a, infrastructure, more.get(a.query_id, ()), mixes.get(a.query_id, NO_POOL)
                )
                for a in schedule.assignments
            },
            waiting=schedule.waiting,
        )


def _replicas(
    plan: Plan, slices: Sequence[Slice], infrastructure: Infrastructure
) -> tuple[ExtraReplica, ...]:
    """Return copies on slices of machines: of those of a plan's that are as large, in turn."""
    copies, own = list[ExtraReplica](), plan.demand_of.items()
    turns = {item: cycle([name for name, other in own if other == item]) for _, item in own}
    for (tier, _, share), kind in zip(slices, machine_types(slices, infrastructure), strict=True):
        name = next(turns.get(DemandItem(tier, share), iter([tier])))
        copies.append(ExtraReplica(tier, kind, None if name == tier else name))
    return tuple(copies)


def machine_types(
    slices: Sequence[Slice], infrastructure: Infrastructure
) -> tuple[str | None, ...]:
    """Return the type of the machine of every slice; None: its tier has no types."""
    return tuple(infrastructure.machine_type(each.tier, each.machine) for each in slices)


def problem_of(
    live: Sequence[LiveQuery],
    infrastructure: Infrastructure,
    running: Mapping[str, Assignment],
    quotas: Mapping[str, float],
    most_usd_per_hour: float = inf,  # of rented machines and calls
) -> Problem:
    """Return the scheduling problem of the live queries, oldest first, on what they run on now."""
    ids = {query.candidate.query_id for query in live}
    problem = Problem(
        tiers=shared_tiers(infrastructure),
        candidates=tuple(query.candidate for query in live),
        quotas=quotas,
        limits=limits_in_words(infrastructure),
        most_usd_per_hour=most_usd_per_hour,
    )
    retained = {query_id: at for query_id, at in running.items() if query_id in ids}
    return replace(problem, running=dict(with_limits(retained, problem)))


def live_queries(
    store: Store, query_ids: Iterable[str], infrastructure: Infrastructure
) -> tuple[dict[str, LiveQuery], dict[str, str]]:
    """Return the queries that compete for capacity, by id, and why the others cannot.

    All were accepted once, perhaps by a version with other rules; a query that is invalid by now
    blocks no other.
    """
    live: dict[str, LiveQuery] = {}
    aside: dict[str, str] = {}
    for query_id in query_ids:
        try:
            live[query_id] = LiveQuery.of(store, query_id, infrastructure)
        except DatabaseFailed:
            raise
        except Exception as error:  # noqa: BLE001 - see above
            aside[query_id] = str(error) or type(error).__name__
    return live, aside


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveProblem:
    """The scheduling problem as it stands, without queries that cannot compete."""

    plain: Problem  # as if no query had a pool
    pools: Mapping[str, ChosenPool]  # that queries should have

    @classmethod
    def of(cls, parts: ServiceParts) -> LiveProblem:
        """Return what is stored."""
        store = parts.store
        live, _ = live_queries(store, store.live(), parts.infrastructure)
        infrastructure = parts.capacity.now()
        running = running_on(infrastructure, store.schedules.read()[1])
        terms = parts.quotas, parts.most_usd_per_hour
        problem = problem_of(tuple(live.values()), infrastructure, running, *terms)
        return cls(plain=problem, pools=pools_of(store.pools(), live))


def pools_of(stored: Mapping[str, Slices], live: Mapping[str, LiveQuery]) -> dict[str, ChosenPool]:
    """Return the pools of live queries, by id."""
    return {q: live[q].pool(slices) for q, slices in stored.items() if q in live}


def live_problem(parts: ServiceParts) -> Problem:
    """Return it with those bound to their pools who run on them."""
    now = LiveProblem.of(parts)
    return bound(now.plain, now.pools)[0]


def running_on(infrastructure: Infrastructure, in_force: InForce) -> dict[str, Assignment]:
    """Return what runs under a schedule in force, by the numbers that the machines have now."""
    now = numbering(infrastructure.tiers)
    return renumbered(in_force.schedule.by_query, in_force.types, now)


def preview(parts: ServiceParts, change: PreviewBody) -> tuple[Schedule, Assessment]:
    """Return the schedule that a change would lead to, and how good it is.

    InvalidInput if a tier or a leaving query is not there, an arriving one has a live one's id, or
    dollars are limited where no machine is rented.
    """
    now = LiveProblem.of(parts)
    objective = change.objective or parts.objective
    require_rented(objective, change.most_usd_per_hour)
    changed, held = bound(_changed(now.plain, change), now.pools)
    _, in_force = parts.store.schedules.read()
    times = Times(since=in_force.since, overdue=frozenset(in_force.overdue))
    queries = [candidate.query_id for candidate in changed.candidates]
    standings = times.standings(queries, parts.clock.timestamp())
    upkeep = parts.upkeep
    if objective is not parts.objective:
        upkeep = replace(upkeep, policy=parts.policies[objective])
    schedule = upkeep.whole(changed, standings, held)
    return on_machines(schedule, changed.limits), assess(changed, schedule, objective)


def _changed(problem: Problem, change: PreviewBody) -> Problem:
    machines = (tier for tier in problem.tiers if tier.name not in problem.limits)
    names = [name for tier in machines for name in tier.pools]
    for tier in change.machines:
        checks.require(tier in names, "machines", f"must be among {', '.join(names)}", tier)
    live = {candidate.query_id for candidate in problem.candidates}
    for query in sorted(set(change.leaving)):
        checks.require(query in live, "leaving", "must be live queries", query)

    def resized(name: str, pool: Tier) -> Tier:
        return replace(pool, machines=change.machines.get(name, pool.machines))

    tiers = tuple(tier.changed(resized) for tier in problem.tiers)
    running = renumbered(problem.running, numbering(problem.tiers), numbering(tiers))
    return replace(
        problem,
        tiers=tiers,
        candidates=(
            *(c for c in problem.candidates if c.query_id not in change.leaving),
            *map(_candidate, change.arriving),
        ),
        running={q: a for q, a in running.items() if q not in change.leaving},
        quotas={**problem.quotas, **change.quotas},
        most_usd_per_hour=_most_usd_per_hour(problem, change),
    )


def _most_usd_per_hour(problem: Problem, change: PreviewBody) -> float:
    if change.objective is Objective.GOODPUT:
        return inf
    stated = change.most_usd_per_hour
    return problem.most_usd_per_hour if stated is None else stated


def _candidate(arrival: ArrivalInput) -> Candidate:
    return Candidate(
        query_id=arrival.id,
        plans=tuple(
            PlanOption(
                plan_id=plan.id,
                demand=tuple(DemandItem(item.tier, item.share) for item in plan.demand),
                cost_usd_per_hour=plan.cost_usd_per_hour,
            )
            for plan in arrival.plans
        ),
        weight=arrival.weight,
        priority=arrival.priority,
        tenant=arrival.tenant,
    )
