"""Queries that are served by a chosen mix of machine types, in place of their plans' own replicas.

A pool states how many slices of which machine types of a tier a query gets, each as large as its
plan's there. Policies know nothing of types and pools. They get a query with its pool as one
whose only plan asks for these slices, and that runs on them (`bound`); `unmoved` puts it back
should a policy move it. The one rule: a query has all of its pool or none of it. Without it, it is
served as any other, and the reason reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple, TypeAlias

from circinus.pipelines import checks
from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.tiers import Tier
from circinus.pipelines.ranges import Range
from circinus.scheduler.compiled.feasibility import same_place
from circinus.scheduler.pool.search import MOST_OF_TYPE
from circinus.scheduler.problem import (
    CENT,
    PARTS,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    held_by_tenants,
    parts_of,
    quota_parts,
)
from circinus.scheduler.rolling.live import LiveSchedule

Slices: TypeAlias = Mapping[str, Mapping[str, int]]
"""Tier -> machine type -> how many slices of its machines."""
SLICES = Range(0, 1000)
"""Of one machine type in a pool. More would take the scheduler longer than a look may take."""


# deviates: held-pools
@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPool:
    """Which machine types serve a query, in place of its plan's own replicas there."""

    # shared tier with types -> type -> slices, in `SLICES`, at least one of each tier
    slices: Slices = field(default_factory=dict)
    # what the query may cost on its machines, at their types' prices, `>= 0`; infinite: any
    most_usd_per_hour: float = inf

    def __post_init__(self) -> None:
        for tier, counts in self.slices.items():
            for kind, count in counts.items():
                SLICES.check(f"pool.{tier}/{kind}", count)
            rule = "must have at least one slice"
            checks.require(any(counts.values()), f"pool.{tier}", rule, dict(counts))
        usd = self.most_usd_per_hour
        checks.require(usd >= 0, "pool.most_usd_per_hour", "must be >= 0", usd)

    def words(self) -> str:
        """Return it in words: `edge/small=3 edge/large=1`."""
        counts = ((f"{t}/{k}", n) for t, kinds in self.slices.items() for k, n in kinds.items())
        return " ".join(f"{name}={count}" for name, count in counts if count)


NO_POOL = ChosenPool()
"""What a query has whose plan's own replicas serve it."""


def require_pool(pool: ChosenPool, tiers: Iterable[Tier]) -> None:
    """Raise InvalidInput unless a pool names types of shared tiers, at least one tier."""
    by_name = {tier.name: tier for tier in tiers}
    checks.require(bool(pool.slices), "pool", "must name at least one TIER/TYPE", "none")
    for name, counts in pool.slices.items():
        checks.among("pool.tier", name, by_name)
        tier = by_name[name]
        rule = "must be shared: on a dedicated tier every query has machines of its own"
        checks.require(not tier.dedicated, "pool.tier", rule, name)
        checks.require(bool(tier.types), "pool.tier", "must have machine types", name)
        for kind in counts:
            checks.among(f"pool.{name}", kind, [each.name for each in tier.types])


class InvalidPool(NamedTuple):
    """A pool that the plan of its query can never have."""

    why: str


class NoRoom(NamedTuple):
    """A pool that does not fit now."""

    why: str  # what is missing, in words


class _Want(NamedTuple):
    """Slices of one kind that a query should have."""

    tier: str
    kind: str | None  # type of their machines; None: any
    share: float


def bound(problem: Problem, pools: Mapping[str, ChosenPool]) -> tuple[Problem, frozenset[str]]:
    """Return the problem with those bound to their pools who run on them, and who they are."""
    on_pools = {}
    for candidate in problem.candidates:
        at = problem.running.get(candidate.query_id)
        pool = pools.get(candidate.query_id)
        if at is not None and pool is not None and has_pool(problem.tiers, candidate, at, pool):
            on_pools[candidate.query_id] = with_slices(candidate, at)
    candidates = tuple(on_pools.get(c.query_id, c) for c in problem.candidates)
    return replace(problem, candidates=candidates), frozenset(on_pools)


def with_slices(candidate: Candidate, at: Assignment) -> Candidate:
    """Return a query as one that asks for the slices that it has, and nothing else."""
    plan = candidate.plan(at.plan_id)
    demand = tuple(DemandItem(each.tier, each.share) for each in at.machines)
    cost, calls = (0.0, 0.0) if plan is None else (plan.cost_usd_per_hour, plan.calls_usd_per_hour)
    only = PlanOption(
        plan_id=at.plan_id, demand=demand, cost_usd_per_hour=cost, calls_usd_per_hour=calls
    )
    return replace(candidate, plans=(only,))


def has_pool(
    tiers: Sequence[Tier], candidate: Candidate, at: Assignment, pool: ChosenPool
) -> bool:
    """Return whether an assignment of a query, as it was before it got a pool, is that pool."""
    plan = candidate.plan(at.plan_id)
    by_name = {tier.name: tier for tier in tiers}
    if plan is None or _invalid(by_name, plan, pool) is not None:
        return False
    there: Counter[_Want] = Counter()
    for name, machine, share in at.machines:
        tier = by_name.get(name)
        if tier is None or not 0 <= machine < tier.machines:
            return False
        kind = _kind(tier, machine) if name in pool.slices else None
        there[_Want(name, kind, parts_of(share))] += 1
    wanted = Counter(w._replace(share=parts_of(w.share)) for w in _wanted(plan, pool))
    return there == wanted


def pooled(
    problem: Problem,
    assignments: Sequence[Assignment],  # valid ones; that of the query is among them
    candidate: Candidate,  # the query, as it was before it got a pool
    pool: ChosenPool,
) -> Assignment | NoRoom | InvalidPool:
    """Return where a query gets its pool, on what others leave; its own slices stay if they can.

    Nobody makes way for it. With `NO_POOL`, where its plan's own replicas go.
    """
    at = next(a for a in assignments if a.query_id == candidate.query_id)
    others = [a for a in assignments if a is not at]
    plan, tiers = candidate.plan(at.plan_id), {tier.name: tier for tier in problem.tiers}
    if plan is None:
        return InvalidPool(f"plan {at.plan_id} is not offered any more")
    if (invalid := _invalid(tiers, plan, pool)) is not None:
        return invalid
    wanted = _wanted(plan, pool)
    if why := _beyond(problem, others, candidate, wanted) or _too_dear(tiers, plan, wanted, pool):
        return NoRoom(why)
    slices, missing = _placed(tiers, _left(tiers, others), wanted, at.machines)
    if missing:
        return NoRoom(_missing(wanted, missing))
    return replace(at, machines=tuple(slices))


def room_for(problem: Problem, query_id: str, tier: str) -> dict[str, int]:
    """Return how many slices of each type of a tier would fit beside others, the query's own gone.

    Slices are as large as its plan's there; at most as many as a choice looks at.
    """
    at, by_name = problem.running[query_id], {t.name: t for t in problem.tiers}
    candidate = next(c for c in problem.candidates if c.query_id == query_id)
    plan = candidate.plan(at.plan_id)
    shares = [i.share for i in plan.demand if i.tier == tier] if plan is not None else []
    left = _left(by_name, [a for a in problem.running.values() if a.query_id != query_id])

    def room(kind: str) -> int:
        machines = _machines(by_name[tier], kind)
        return sum(max(left[tier, m], 0) // parts_of(shares[0]) for m in machines)

    return {
        each.name: min(room(each.name), MOST_OF_TYPE) if shares else 0
        for each in by_name[tier].types
    }


def unmoved(problem: Problem, schedule: Schedule, held: Collection[str]) -> Schedule:
    """Return a schedule with held queries where they run, whatever a policy did with them.

    Others stay where it has them if that is free, else go where there is room, else wait. A held
    one waits, too, if its own place is not free of other held ones, or is beyond a quota.
    """
    now, held = schedule.by_query, [q for q in held if q in problem.running]
    if all(q in now and same_place(now[q], problem.running[q]) for q in held):
        return schedule
    first = {q: problem.running[q] for q in held}
    placed = tuple({**first, **{q: a for q, a in now.items() if q not in first}}.values())
    live = LiveSchedule(problem, replace(schedule, assignments=placed))
    live.fill()
    return live.schedule()


def _invalid(tiers: Mapping[str, Tier], plan: PlanOption, pool: ChosenPool) -> InvalidPool | None:
    used = {item.tier for item in plan.demand}
    for name, counts in pool.slices.items():
        if name not in used or name not in tiers:
            return InvalidPool(f"plan {plan.plan_id} does not use tier {name}")
        if name in plan.divided:  # a pool is copies of one slice
            return InvalidPool(f"plan {plan.plan_id} has several slices of tier {name}")
        known = {kind.name for kind in tiers[name].types}
        if gone := sorted(kind for kind in counts if kind not in known):
            return InvalidPool(f"tier {name} has no machine type {gone[0]}")
    return None


def _wanted(plan: PlanOption, pool: ChosenPool) -> list[_Want]:
    """Return what a plan needs with a pool; its items on a tier of the pool are alike."""
    own = [_Want(tier, None, share) for tier, share in plan.demand if tier not in pool.slices]
    share = {item.tier: item.share for item in plan.demand}
    return own + [
        _Want(tier, kind, share[tier])
        for tier, counts in pool.slices.items()
        for kind, count in counts.items()
        for _ in range(count)
    ]


def _beyond(
    problem: Problem, others: Sequence[Assignment], candidate: Candidate, wanted: Sequence[_Want]
) -> str | None:
    """Return what is above the tenant's quota, in words; None when nothing is."""
    tenant, needs = candidate.tenant, Counter[str]()
    if tenant not in problem.quotas:
        return None
    for want in wanted:
        needs[want.tier] += parts_of(want.share)
    held = held_by_tenants(problem, others)
    for tier in problem.tiers:
        most = quota_parts(problem, tenant, tier)
        holds = held[tenant, tier.name] + needs[tier.name]
        if needs[tier.name] and holds > most and not tier.dedicated:
            return (
                f"tenant {tenant} may hold {most / PARTS:g} machines of {tier.name}, "
                f"and would hold {holds / PARTS:g}"
            )
    return None


def _too_dear(
    tiers: Mapping[str, Tier], plan: PlanOption, wanted: Sequence[_Want], pool: ChosenPool
) -> str | None:
    """Return by how much it is above what the query may cost, in words; None: it is not.

    Slices on any type count what the dearest costs, calls what they cost anyway.
    """
    usd = plan.calls_usd_per_hour
    usd += sum(w.share * tiers[w.tier].typed(w.kind).price_usd_per_hour for w in wanted)
    if usd <= pool.most_usd_per_hour + CENT:
        return None
    return f"it costs {usd:g} USD/h, and the query may cost {pool.most_usd_per_hour:g}"


def _left(tiers: Mapping[str, Tier], others: Sequence[Assignment]) -> dict[tuple[str, int], int]:
    """Return the parts that others leave of each machine, by tier and number."""
    left = {(t.name, machine): PARTS for t in tiers.values() for machine in range(t.machines)}
    for name, machine, share in (s for a in others for s in a.machines):
        if (name, machine) in left and not tiers[name].dedicated:  # else it is gone
            left[name, machine] -= parts_of(share)
    return left


def _placed(
    tiers: Mapping[str, Tier],
    left: dict[tuple[str, int], int],  # as `_left` gives it; changes
    wanted: Sequence[_Want],
    there: Sequence[Slice],  # what the query has now
) -> tuple[list[Slice], list[_Want]]:
    """Return the slices, in the order of what is wanted, and what finds no room.

    Best fit, after those that stay: as all slices on a tier are alike, it finds room where any is.
    """
    slices: dict[int, Slice] = {}
    rest = list(there)
    for i, (name, kind, share) in enumerate(wanted):
        machines = _machines(tiers[name], kind)
        same = (s for s in rest if s.tier == name and s.share == share and s.machine in machines)
        if (stays := next(same, None)) is not None:
            rest.remove(stays)
            left[name, stays.machine] -= parts_of(share)
            slices[i] = stays
    missing = []
    for i, want in enumerate(wanted):
        if i in slices:
            continue
        parts = parts_of(want.share)
        rooms = [(left[want.tier, m], m) for m in _machines(tiers[want.tier], want.kind)]
        room = min((room for room in rooms if room[0] >= parts), default=None)
        if room is None:
            missing.append(want)
            continue
        left[want.tier, room[1]] -= parts
        slices[i] = Slice(want.tier, room[1], want.share)
    return [slices[i] for i in sorted(slices)], missing


def _machines(tier: Tier, kind: str | None) -> range:
    """Return the numbers of a type's machines; None: of all."""
    if kind is None:
        return range(tier.machines)
    first = 0
    for each in tier.types:
        if each.name == kind:
            return range(first, first + each.machines)
        first += each.machines
    return range(0)


def _kind(tier: Tier, machine: int) -> str | None:
    machine_type = tier.type_of(machine)
    return None if machine_type is None else machine_type.name


def _missing(wanted: Sequence[_Want], missing: Sequence[_Want]) -> str:
    all_, without = Counter(wanted), Counter(missing)
    return " and ".join(
        f"{count} of {all_[want]} slices of {want.share:g} find no room on "
        f"{want.tier}{f'/{want.kind}' if want.kind else ''}"
        for want, count in without.items()
    )
