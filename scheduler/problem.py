"""A scheduling policy's problem, its schedule, and whether the schedule holds.

A share of a machine is counted in whole millionths, so that twenty slices of 0.05
fill a machine exactly and nothing drifts. An item of a demand sits on one machine
and is never split. On a dedicated tier every query has machines of its own.

What an endpoint lets through in a minute is shared as a machine is: a limit is a tier of one
machine, and a plan's part of it an item (`Problem.limits` names these tiers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from math import floor, inf, isclose
from typing import ClassVar, NamedTuple, Protocol

from circinus.pipelines import checks
from circinus.pipelines.model.plan import DemandItem, Plan
from circinus.pipelines.model.query import HIGHEST_PRIORITY
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import Range

CENT = 1e-9
"""Of a limit and of a dollar: sums of prices are not exact."""
PARTS = 1_000_000
"""Parts of one machine. Shares come in steps of 0.05; finer ones are rounded to a part."""

WEIGHT = Range(1e-9, 1e9)
"""Whatever is within, nothing overflows in any policy. What comes in has a narrower range: this
leaves room for what waiting adds."""
PRIORITY = Range(0, HIGHEST_PRIORITY + 1)
"""The highest is for those who waited too long."""
SHARE = Range(1e-12, 1e6)
COST_USD_PER_HOUR = Range(0, 1e12)

_ROUNDING = 1e-6
"""Of a part: 0.1 * 3 machines are 300,000 parts, not 299,999. Of a limit of dollars, too."""


class Objective(StrEnum):
    """What is sought (Circinus 4.3)."""

    GOODPUT = "goodput"
    """Machines are limited: the largest weight that can be served."""
    COST = "cost"
    """Machines can be rented, up to those of the tier: all queries, for the least money."""


def parts_of(share: float) -> int:
    """Return a share in parts of one machine, at least one."""
    return max(1, round(share * PARTS))


def aggregate_parts(items: Iterable[DemandItem | Slice], tiers: Container[str]) -> int:
    """Return the sum of a demand's or an assignment's shares on some tiers, in parts."""
    return sum(parts_of(item.share) for item in items if item.tier in tiers)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOption:
    """A plan as the scheduler sees it."""

    plan_id: str  # unique within its query
    # items (tier, share of one machine), each share in `SHARE`; one above 1 fits no machine
    demand: tuple[DemandItem, ...]
    cost_usd_per_hour: float  # in `COST_USD_PER_HOUR`
    # of it, that of calls, `>= 0`: whatever machines it is on, it is paid
    calls_usd_per_hour: float = 0.0
    # tiers on which it has further slices, which may be as large as the tier's own
    divided: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        where = f"plan {self.plan_id}"
        COST_USD_PER_HOUR.check(f"{where}.cost_usd_per_hour", self.cost_usd_per_hour)
        COST_USD_PER_HOUR.check(f"{where}.calls_usd_per_hour", self.calls_usd_per_hour)
        for tier, share in self.demand:
            SHARE.check(f"{where}.demand on {tier}", share)

    @classmethod
    def of(cls, plan_id: str, plan: Plan, limits: tuple[DemandItem, ...] = ()) -> PlanOption:
        """Return a plan as an option; `limits`: what it needs of limits of endpoints."""
        return cls(
            plan_id=plan_id,
            demand=(*plan.demand, *limits),
            cost_usd_per_hour=plan.cost_usd_per_hour,
            calls_usd_per_hour=plan.calls_usd_per_hour,
            divided=frozenset(plan.deployment.further.values()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A live query with the plans it could run."""

    query_id: str  # unique within a problem
    plans: tuple[PlanOption, ...]  # at least one; any of them meets the query's SLOs
    weight: float = 1.0  # benefit of serving the query, in `WEIGHT`
    # in `PRIORITY`: a query is worth more than all queries of lower priority together
    priority: int = 0
    tenant: str = ""  # whose it is; what quotas count by. Empty: nobody's, without a quota

    def __post_init__(self) -> None:
        where = f"query {self.query_id}"
        WEIGHT.check(f"{where}.weight", self.weight)
        PRIORITY.check(f"{where}.priority", self.priority)
        checks.require(len(self.plans) > 0, f"{where}.plans", "must have at least one plan", [])
        checks.unique(f"{where}.plans", [plan.plan_id for plan in self.plans])

    def plan(self, plan_id: str) -> PlanOption | None:
        """Return the plan of that id; None when it is not offered."""
        return next((plan for plan in self.plans if plan.plan_id == plan_id), None)


class Slice(NamedTuple):
    """A share of one machine. On a dedicated tier `machine` counts the query's own."""

    tier: str
    machine: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A query that is served."""

    query_id: str
    plan_id: str  # with which of its plans
    machines: tuple[Slice, ...]  # a slice for every item of the plan's demand, in its order


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """All live queries and the machines there are."""

    tiers: tuple[Tier, ...]  # with their machines; names are unique
    candidates: tuple[Candidate, ...]
    # what each query runs on now. An entry binds nobody: it stays where possible, and means
    # nothing when its query is no candidate any more
    running: Mapping[str, Assignment] = field(default_factory=dict)
    # tenant -> the largest part of each shared tier that its queries may hold together, in [0,
    # 1]. A tenant that is not named may hold everything
    quotas: Mapping[str, float] = field(default_factory=dict)
    # tier -> what it stands for, of those that are a limit of an endpoint, in words. Quotas do not
    # count there: they are of machines
    limits: Mapping[str, str] = field(default_factory=dict)
    # the most that machines which hold anything and calls may cost together, `>= 0`; infinite: any
    # deviates: cost-within-limits
    most_usd_per_hour: float = inf

    def __post_init__(self) -> None:
        usd = self.most_usd_per_hour
        checks.require(usd >= 0, "most_usd_per_hour", "must be >= 0", usd)
        for tenant, part in self.quotas.items():
            checks.probability(f"quota of {tenant}", part)
        checks.unique("tiers", [tier.name for tier in self.tiers])
        checks.unique("queries", [candidate.query_id for candidate in self.candidates])
        known = dict.fromkeys(sorted(tier.name for tier in self.tiers))
        for tier in self.limits:
            checks.among("limits", tier, known)
        for candidate in self.candidates:
            for plan in candidate.plans:
                for item in plan.demand:
                    if item.tier not in known:  # asked at every change: no words before
                        checks.among(f"plan {plan.plan_id}.demand", item.tier, known)

    def without(self, queries: Collection[str]) -> Problem:
        """Return the problem without some of its queries."""
        left = tuple(c for c in self.candidates if c.query_id not in queries)
        return self if len(left) == len(self.candidates) else replace(self, candidates=left)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Which queries are served, with which plan, on which machines."""

    # at most one per query, in the order of the problem's candidates
    assignments: tuple[Assignment, ...]
    # for every other candidate, why it waits and what would let it in, in words
    waiting: Mapping[str, str]
    # tier -> part of its machines in use, in [0, 1]. The machines of a dedicated tier are those
    # of the queries served
    utilisation: Mapping[str, float]
    # waiting queries that were left out of the problem: a schedule with them cannot be made
    aside: tuple[str, ...] = ()

    @property
    def by_query(self) -> dict[str, Assignment]:
        """The assignments by query: what is `running` next time."""
        return {assignment.query_id: assignment for assignment in self.assignments}

    def beside(self, aside: Mapping[str, str]) -> Schedule:
        """Return the schedule with queries that are set aside, and why."""
        reasons = {q: f"It is set aside, so that others are served: {aside[q]}" for q in aside}
        return replace(self, waiting={**self.waiting, **reasons}, aside=(*self.aside, *aside))


SCHEDULING_POLICIES = ("priced", "greedy", "ilp", "fcfs", "local_best")
"""What settings and studies call them, the default first; see `scheduler.policies.registry`."""


class SchedulingPolicy(Protocol):
    """Chooses which queries are served, with which of their plans, on which machines.

    A pure function of the problem: equal problems get equal schedules, whatever the history.
    Every schedule passes `validate`; a problem without any fitting plan gets
    a schedule in which everybody waits, not an error. Safe to share between threads.
    """

    small_steps: ClassVar[bool]
    """Whether small steps by the prices of machines may stand in for it between two of its
    schedules (`scheduler.rolling.live`); else it is asked whole at every change."""

    def schedule(self, problem: Problem) -> Schedule:
        """Return a valid schedule that mentions every candidate once."""


def utilisation(problem: Problem, assignments: Sequence[Assignment]) -> dict[str, float]:
    """Return the part of each tier's machines in use; 0 for a tier without machines."""
    used: Counter[str] = Counter()
    for assignment in assignments:
        for tier, _, share in assignment.machines:
            used[tier] += parts_of(share)
    served = len(assignments)
    there = {t.name: t.machines * (served if t.dedicated else 1) for t in problem.tiers}
    return {name: used[name] / (PARTS * n) if n else 0.0 for name, n in there.items()}


def rented_usd_per_hour(tiers: Iterable[Tier], assignments: Iterable[Assignment]) -> float:
    """Return what all shared machines cost that hold anything, as whole machines (Circinus B.1).

    Each costs what its type does, where its tier has types.
    """
    shared = {tier.name: tier for tier in tiers if not tier.dedicated}
    used = {(s.tier, s.machine) for a in assignments for s in a.machines if s.tier in shared}
    return sum(shared[tier].price_of(machine) for tier, machine in sorted(used))


def called_usd_per_hour(problem: Problem, assignments: Iterable[Assignment]) -> float:
    """Return what all costs that served queries call."""
    served = {a.query_id: a.plan_id for a in assignments}
    return sum(
        plan.calls_usd_per_hour
        for candidate in problem.candidates
        if candidate.query_id in served
        for plan in candidate.plans
        if plan.plan_id == served[candidate.query_id]
    )


def spent_usd_per_hour(problem: Problem, assignments: Sequence[Assignment]) -> float:
    """Return what rented machines and calls cost together: what the limit is of."""
    rent = rented_usd_per_hour(problem.tiers, assignments)
    return rent + called_usd_per_hour(problem, assignments)


def validate(problem: Problem, schedule: Schedule) -> tuple[str, ...]:
    """Return everything that is wrong with a schedule, in words; empty when it holds.

    Checked: only known queries, each once, either assigned or waiting with a reason; only offered
    plans; a slice for every item of the plan; only machines that exist, none above its capacity;
    no tenant above its quota; machines and calls within the limit of dollars; the stated
    utilisation is the true one.
    """
    return (
        *_wrong_queries(problem, schedule),
        *_wrong_plans(problem, schedule),
        *_wrong_machines(problem, schedule),
        *_wrong_quotas(problem, schedule),
        *_wrong_money(problem, schedule),
        *_wrong_utilisation(problem, schedule),
    )


def _wrong_queries(problem: Problem, schedule: Schedule) -> Iterator[str]:
    known = {candidate.query_id for candidate in problem.candidates}
    assigned = Counter(assignment.query_id for assignment in schedule.assignments)
    for query in sorted((set(assigned) | set(schedule.waiting)) - known):
        yield f"query {query} is not in the problem."
    for query, times in assigned.items():
        if times > 1:
            yield f"query {query} must be assigned at most once, is {times} times."
        if query in schedule.waiting:
            yield f"query {query} is assigned and waiting at once."
    for query in sorted(known - set(assigned)):
        if not schedule.waiting.get(query):
            yield f"query {query} is neither assigned nor waiting with a reason."


def _wrong_plans(problem: Problem, schedule: Schedule) -> Iterator[str]:
    candidates = {candidate.query_id: candidate for candidate in problem.candidates}
    for assignment in schedule.assignments:
        candidate = candidates.get(assignment.query_id)
        if candidate is None:
            continue
        plan = candidate.plan(assignment.plan_id)
        if plan is None:
            yield f"query {assignment.query_id} was not offered plan {assignment.plan_id}."
        elif not covers(assignment, plan):
            yield (
                f"query {assignment.query_id} must get the items of plan {plan.plan_id}, "
                f"{list(map(tuple, plan.demand))}, has {list(map(tuple, assignment.machines))}."
            )


def covers(assignment: Assignment, plan: PlanOption) -> bool:
    """Return whether an assignment has a slice for every item of a plan, and no other."""
    slices = Counter((tier, parts_of(share)) for tier, _, share in assignment.machines)
    return slices == Counter((tier, parts_of(share)) for tier, share in plan.demand)


def _wrong_machines(problem: Problem, schedule: Schedule) -> Iterator[str]:
    tiers = {tier.name: tier for tier in problem.tiers}
    load: Counter[tuple[str, str, int]] = Counter()
    for assignment in schedule.assignments:
        for name, machine, share in assignment.machines:
            tier = tiers.get(name)
            if tier is None or not 0 <= machine < tier.machines:
                yield f"query {assignment.query_id} is on {name} machine {machine}: there is none."
                continue
            owner = f" of query {assignment.query_id}" if tier.dedicated else ""
            load[name, owner, machine] += parts_of(share)
    for (name, owner, machine), used in load.items():
        if used > PARTS:
            yield f"{name} machine {machine}{owner} must hold at most 1, holds {used / PARTS}."


def _wrong_quotas(problem: Problem, schedule: Schedule) -> Iterator[str]:
    used = held_by_tenants(problem, schedule.assignments)
    shared = [tier for tier in problem.tiers if not tier.dedicated]
    for tenant, tier in product(problem.quotas, shared):
        holds, most = used[tenant, tier.name], quota_parts(problem, tenant, tier)
        if holds > most:
            yield (
                f"tenant {tenant} must hold at most {most / PARTS:g} machines of {tier.name}, "
                f"holds {holds / PARTS:g}."
            )


def held_by_tenants(
    problem: Problem, assignments: Iterable[Assignment]
) -> Counter[tuple[str, str]]:
    """Return the parts of each tier that each tenant holds, by (tenant, tier)."""
    tenants = {candidate.query_id: candidate.tenant for candidate in problem.candidates}
    held: Counter[tuple[str, str]] = Counter()
    for assignment in assignments:
        for tier, _, share in assignment.machines:
            held[tenants.get(assignment.query_id, ""), tier] += parts_of(share)
    return held


# deviates: quotas
def quota_parts(problem: Problem, tenant: str, tier: Tier) -> int:
    """Return the parts of a shared tier that a tenant with a quota may hold; all of a limit."""
    if tier.name in problem.limits:
        return tier.machines * PARTS
    return floor(problem.quotas[tenant] * tier.machines * PARTS + _ROUNDING)


def _wrong_money(problem: Problem, schedule: Schedule) -> Iterator[str]:
    spent, most = spent_usd_per_hour(problem, schedule.assignments), problem.most_usd_per_hour
    if spent > most * (1 + _ROUNDING) + _ROUNDING:
        yield f"machines and calls must cost at most {most:g} $/h, cost {spent:g}."


def _wrong_utilisation(problem: Problem, schedule: Schedule) -> Iterator[str]:
    true = utilisation(problem, schedule.assignments)
    if set(true) != set(schedule.utilisation):
        stated = sorted(schedule.utilisation)
        yield f"utilisation must name the tiers {sorted(true)}, got {stated}."
    for tier, part in schedule.utilisation.items():
        if tier in true and not isclose(part, true[tier], abs_tol=1e-9):
            yield f"utilisation of {tier} must be {true[tier]:g}, got {part:g}."
