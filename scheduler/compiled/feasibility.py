"""Between a scheduling problem, which has names, and its arrays, which have indices.

| symbol | meaning |
| --- | --- |
| N, L, T, I | queries, plans of all queries, shared tiers, items of all plans |

Only what competes is in the arrays: items on dedicated tiers are left out (a query has those
machines to itself), and so are plans that could never be placed. Plans of all queries are in one
row after another.

The one rule: equal problems give equal arrays, whatever the order of queries and plans.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import inf

import numpy as np

from circinus.pipelines.model.plan import DemandItem
from circinus.pipelines.model.profile import FloatArray, IntArray
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.placement import (
    DollarLimit,
    FreeShares,
    Items,
    Placed,
    Placement,
    Q,
    Room,
    fit,
)
from circinus.scheduler.compiled.waiting import reasons
from circinus.scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    covers,
    parts_of,
    quota_parts,
    utilisation,
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlanArrays:
    """What every plan of every query asks of the shared tiers."""

    benefit: FloatArray  # (N,); of serving a query, `> 0`
    first: IntArray  # (N + 1,); plans of query q are `first[q]` up to `first[q + 1]`; at least one
    cost_usd_per_hour: FloatArray  # (L,); of a plan
    calls_usd_per_hour: FloatArray  # (L,); of it, that of calls
    # items of plan p are `item_first[p]` up to `item_first[p + 1]`; may be none
    item_first: IntArray  # (L + 1,)
    item_tier: IntArray  # (I,); index of a shared tier
    # parts of one machine, in `[1, PARTS]`; within a plan the largest come first
    item_parts: IntArray  # (I,)
    machines: IntArray  # (T,); of each shared tier
    usage: FloatArray = field(init=False)  # (L, T) machines
    owner: IntArray = field(init=False)  # (L,) query of a plan

    def __post_init__(self) -> None:
        plans, tiers = len(self.cost_usd_per_hour), len(self.machines)
        plan_of = np.repeat(np.arange(plans), np.diff(self.item_first))
        parts = np.bincount(
            plan_of * tiers + self.item_tier, weights=self.item_parts, minlength=plans * tiers
        )
        usage = (parts / PARTS).reshape(plans, tiers) if tiers else np.zeros((plans, 0))
        owner = np.repeat(np.arange(len(self.benefit)), np.diff(self.first))
        object.__setattr__(self, "usage", usage)
        object.__setattr__(self, "owner", owner)

    def least(
        self,
        value: FloatArray,  # (L,)
    ) -> tuple[FloatArray, IntArray]:  # (N,), (N,)
        """Return the least value among each query's plans, and the first plan that has it."""
        least = np.minimum.reduceat(value, self.first[:-1])
        hits = np.flatnonzero(value == least[self.owner])[::-1]
        plan = np.zeros(len(least), np.int64)
        plan[self.owner[hits]] = hits  # the last write wins: the first plan
        return least, plan

    def items(self, plan: int) -> tuple[tuple[int, int], ...]:
        """Return the items (tier, parts) of a plan, the largest first."""
        span = slice(self.item_first[plan], self.item_first[plan + 1])
        return tuple(
            zip(self.item_tier[span].tolist(), self.item_parts[span].tolist(), strict=True)
        )

    def hardest(self) -> IntArray:
        """Return the parts of each plan's largest item on each tier; 0 without one.  # (L, T)."""
        largest = np.zeros(self.usage.shape, np.int64)
        plan_of = np.repeat(np.arange(len(largest)), np.diff(self.item_first))
        # Items come largest first, so writing them backwards leaves the largest.
        largest[plan_of[::-1], self.item_tier[::-1]] = self.item_parts[::-1]
        return largest


@dataclass(frozen=True, slots=True)
class PlaceablePlan:
    """A plan that can be placed."""

    plan: PlanOption
    # positions in its demand of the items on shared tiers, the largest first
    shared: tuple[int, ...]
    items: Items  # the same as tiers and parts
    own: Mapping[int, Slice]  # slices of the query's own machines, by position in the demand


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compiled:
    """A problem by indices."""

    problem: Problem
    tiers: tuple[Tier, ...]  # the shared ones
    queries: tuple[Candidate, ...]  # the candidates that have a plan that can be placed, by id
    entries: tuple[PlaceablePlan, ...]  # their plans, query after query
    arrays: PlanArrays  # the same as numbers

    @classmethod
    def of(cls, problem: Problem) -> Compiled:
        """Return a problem by indices."""
        tiers = tuple(tier for tier in problem.tiers if not tier.dedicated)
        worth = benefits(problem.candidates)
        rows = [
            (c, worth[c.query_id], plan_entries)
            for c in sorted(problem.candidates, key=lambda c: c.query_id)
            if (plan_entries := entries_of(c, problem.tiers))
        ]
        entries = tuple(entry for _, _, plan_entries in rows for entry in plan_entries)
        items = [item for entry in entries for item in entry.items]
        arrays = PlanArrays(
            benefit=np.array([benefit for _, benefit, _ in rows], dtype=np.float64),
            first=_ends(len(plan_entries) for _, _, plan_entries in rows),
            cost_usd_per_hour=np.array([e.plan.cost_usd_per_hour for e in entries], np.float64),
            calls_usd_per_hour=np.array([e.plan.calls_usd_per_hour for e in entries], np.float64),
            item_first=_ends(len(e.items) for e in entries),
            item_tier=np.array([tier for tier, _ in items], np.int64),
            item_parts=np.array([parts for _, parts in items], np.int64),
            machines=np.array([tier.machines for tier in tiers], np.int64),
        )
        queries = tuple(c for c, _, _ in rows)
        return cls(problem=problem, tiers=tiers, queries=queries, entries=entries, arrays=arrays)

    def placement(self) -> Placement[int]:
        """Return empty machines with the tenants' quotas."""
        quotas = quotas_of(self.problem, self.tiers)
        quota_of = {q: quotas[c.tenant] for q, c in enumerate(self.queries) if c.tenant in quotas}
        calls: list[float] = self.arrays.calls_usd_per_hour.tolist()
        budget = budget_of(self.problem, self.tiers, lambda query, plan: calls[plan])
        return Placement([tier.machines for tier in self.tiers], quota_of, budget)

    def running(self) -> dict[int, Placed]:
        """Return where queries run that could go on there, if the machines have the room."""
        return self.places(self.problem.running)

    def places(self, served: Mapping[str, Assignment]) -> dict[int, Placed]:
        """Return where assignments put queries whose plans are offered as they were assigned."""
        placed = {}
        for p, (q, entry) in enumerate(zip(self.arrays.owner.tolist(), self.entries, strict=True)):
            before = served.get(self.queries[q].query_id)
            if before and before.plan_id == entry.plan.plan_id and covers(before, entry.plan):
                placed[q] = placed_as(before, p, self.tiers)
        return placed

    def runs_with(self, query: int, plan: int) -> bool:
        """Return whether a query runs with a plan now, whatever machines it has."""
        before = self.problem.running.get(self.queries[query].query_id)
        return before is not None and before.plan_id == self.entries[plan].plan.plan_id

    def admit(self, placement: Placement[int], ranked: Iterable[int]) -> bool:
        """Place what fits of the queries that are not, plan by plan; return whether any did."""
        before = len(placement.at)
        owner = self.arrays.owner.tolist()
        for plan in ranked:
            if owner[plan] not in placement.at:
                placement.place(owner[plan], plan, self.arrays.items(plan))
        return len(placement.at) > before

    def filled_up(self, placement: Placement[int], ranked: Sequence[int]) -> Schedule:
        """Place what fits, plan after plan, until nothing does any more."""
        while self.admit(placement, ranked):
            pass  # with unlike items on a tier, best fit may succeed on the second look
        return self.schedule(placement)

    def schedule(self, placement: Placement[int]) -> Schedule:
        """Return the schedule that a placement means, with the reasons of those who wait."""
        problem = self.problem
        by_id = {}
        for q, placed in placement.at.items():
            query_id, entry = self.queries[q].query_id, self.entries[placed.plan]
            before = problem.running.get(query_id)
            by_id[query_id] = assignment_of(query_id, entry, placed, before)
        ordered = tuple(by_id[c.query_id] for c in problem.candidates if c.query_id in by_id)
        return Schedule(
            assignments=ordered,
            waiting=reasons(problem, ordered, placement.room(problem.tiers)),
            utilisation=utilisation(problem, ordered),
        )


def quotas_of(problem: Problem, shared: Sequence[Tier]) -> dict[str, list[int]]:
    """Return what each tenant with a quota may hold of each tier, in parts."""
    return {
        tenant: [quota_parts(problem, tenant, tier) for tier in shared]
        for tenant in problem.quotas
    }


def budget_of(
    problem: Problem, shared: Sequence[Tier], calls_usd_per_hour: Callable[[Q, int], float]
) -> DollarLimit[Q] | None:
    """Return what machines and calls may cost; None: any money."""
    if problem.most_usd_per_hour == inf:
        return None
    return DollarLimit(problem.most_usd_per_hour, shared, calls_usd_per_hour)


def placed_as(before: Assignment, plan: int, shared: Sequence[Tier]) -> Placed:
    """Return an assignment as a place of a plan that has its items."""
    index = {tier.name: t for t, tier in enumerate(shared)}
    slices = [s for s in before.machines if s.tier in index]
    slices.sort(key=lambda s: -parts_of(s.share))
    items = tuple((index[s.tier], parts_of(s.share)) for s in slices)
    return Placed(plan, items, tuple(s.machine for s in slices))


def assignment_of(
    query_id: str, entry: PlaceablePlan, placed: Placed, before: Assignment | None
) -> Assignment:
    """Return a placed query with names; `before` itself if it is the same plan and machines."""
    slices = dict(entry.own)
    free: dict[tuple[int, int], list[int]] = {}
    for item, machine in zip(placed.items, placed.machines, strict=True):
        free.setdefault(item, []).append(machine)
    for position, item in zip(entry.shared, entry.items, strict=True):
        tier, share = entry.plan.demand[position]
        slices[position] = Slice(tier, free[item].pop(0), share)
    assignment = Assignment(
        query_id=query_id,
        plan_id=entry.plan.plan_id,
        machines=tuple(slices[i] for i in range(len(slices))),
    )
    return before if before and same_place(before, assignment) else assignment


# deviates: priorities
def benefits(candidates: Iterable[Candidate]) -> dict[str, float]:
    """Return what serving each query is worth: its weight, scaled so that priorities come first.

    The least benefit of a priority exceeds the sum of all benefits of lower priorities.
    """
    by_level: dict[int, list[Candidate]] = {}
    for candidate in candidates:
        by_level.setdefault(candidate.priority, []).append(candidate)
    worth: dict[str, float] = {}
    below, factor = 0.0, 1.0
    for level in sorted(by_level):
        least = min(c.weight for c in by_level[level])
        factor = max(factor, 1.01 * below / least)
        for c in by_level[level]:
            worth[c.query_id] = c.weight * factor
        below += sum(c.weight * factor for c in by_level[level])
    return worth


def entries_of(candidate: Candidate, tiers: Sequence[Tier]) -> tuple[PlaceablePlan, ...]:
    """Return a query's plans that machines could ever hold, the cheapest first."""
    return _entries(candidate.plans, tuple((t.name, t.machines, t.dedicated) for t in tiers))


# Compiled anew with every whole schedule, which live queries outlast.
@lru_cache(maxsize=4096)
def _entries(
    plans: tuple[PlanOption, ...],
    tiers: tuple[tuple[str, int, bool], ...],  # (name, machines, dedicated)
) -> tuple[PlaceablePlan, ...]:
    shared = [(name, machines) for name, machines, dedicated in tiers if not dedicated]
    own = {name: FreeShares(machines) for name, machines, dedicated in tiers if dedicated}
    index = {name: t for t, (name, machines) in enumerate(shared) if machines}
    names = {name for name, _ in shared}
    ordered = sorted(plans, key=lambda p: (p.cost_usd_per_hour, p.plan_id))
    entries = (_entry(plan, index, names, own) for plan in ordered)
    return tuple(entry for entry in entries if entry is not None)


def _entry(
    plan: PlanOption, index: Mapping[str, int], shared: Container[str], own: Room
) -> PlaceablePlan | None:
    """Return a plan as it would be placed; None if no machines could ever hold it.

    `index` has the places of the shared tiers that have machines.
    """
    items, mine = list[tuple[int, int, int]](), list[int]()
    for i, (tier, share) in enumerate(plan.demand):
        if tier not in shared:
            mine.append(i)
            continue
        parts = parts_of(share)
        if parts > PARTS or tier not in index:
            return None
        items.append((-parts, i, index[tier]))
    slices = _own_slices([plan.demand[i] for i in mine], own)
    if slices is None:
        return None
    items.sort()
    return PlaceablePlan(
        plan,
        tuple(i for _, i, _ in items),
        tuple((tier, -parts) for parts, _, tier in items),
        {i: slices[k] for k, i in enumerate(mine)},
    )


def _own_slices(demand: Sequence[DemandItem], own: Room) -> dict[int, Slice] | None:
    """Return where items go on a query's own machines, by position; None if they do not fit."""
    if len(demand) == 1:  # as nearly always: a tenth of the time
        tier, share = demand[0]
        machine = own[tier].best(parts_of(share))
        return None if machine is None else {0: Slice(tier, machine, share)}
    slices, missing = fit(demand, own)
    return None if missing else slices


def same_place(one: Assignment, other: Assignment) -> bool:
    """Return whether two assignments are of the same plan, on the same machines."""

    def keys(a: Assignment) -> list[tuple[str, int, int]]:
        return sorted((tier, machine, parts_of(share)) for tier, machine, share in a.machines)

    same = one.machines is other.machines or keys(one) == keys(other)
    return same and one.plan_id == other.plan_id


def _ends(counts: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([0, *accumulate(counts)], np.int64)
