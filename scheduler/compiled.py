"""Between a scheduling problem, which has names, and its arrays, which have indices.

The one rule: equal problems give equal arrays, in whatever order queries and plans came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from pipelines.infrastructure import Tier
from scheduler.arrays import PlanArrays
from scheduler.packing import Packing
from scheduler.placement import Placed, Placement
from scheduler.problem import (
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
from scheduler.waiting import reasons


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan that can be placed.

    Attributes:
        plan: The plan.
        shared: Positions in its demand of the items on shared tiers, the largest first.
        own: Slices of the query's own machines, by position in the demand.
    """

    plan: PlanOption
    shared: tuple[int, ...]
    own: Mapping[int, Slice]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compiled:
    """A problem by indices.

    Attributes:
        problem: What was compiled.
        tiers: The shared ones.
        queries: The candidates that have a plan that can be placed, by id.
        entries: Their plans, query after query.
        arrays: The same as numbers.
    """

    problem: Problem
    tiers: tuple[Tier, ...]
    queries: tuple[Candidate, ...]
    entries: tuple[Entry, ...]
    arrays: PlanArrays

    @classmethod
    def of(cls, problem: Problem) -> Compiled:
        """Give a problem by indices."""
        tiers = tuple(tier for tier in problem.tiers if not tier.dedicated)
        own = tuple(tier for tier in problem.tiers if tier.dedicated)
        worth = benefits(problem.candidates)
        rows = [
            (c, worth[c.query_id], found)
            for c in sorted(problem.candidates, key=lambda c: c.query_id)
            if (found := entries_of(c, tiers, own))
        ]
        entries = tuple(entry for _, _, found in rows for entry in found)
        index = {tier.name: t for t, tier in enumerate(tiers)}
        items = [e.plan.demand[i] for e in entries for i in e.shared]
        arrays = PlanArrays(
            benefit=np.array([benefit for _, benefit, _ in rows], dtype=np.float64),
            first=_ends(len(found) for _, _, found in rows),
            cost_usd_per_hour=np.array([e.plan.cost_usd_per_hour for e in entries], np.float64),
            item_first=_ends(len(e.shared) for e in entries),
            item_tier=np.array([index[item.tier] for item in items], np.int64),
            item_parts=np.array([parts_of(item.share) for item in items], np.int64),
            machines=np.array([tier.machines for tier in tiers], np.int64),
        )
        return cls(
            problem=problem,
            tiers=tiers,
            queries=tuple(c for c, _, _ in rows),
            entries=entries,
            arrays=arrays,
        )

    def placement(self) -> Placement:
        """Give empty machines with the tenants' quotas."""
        quotas = {
            tenant: [quota_parts(self.problem, tenant, tier) for tier in self.tiers]
            for tenant in self.problem.quotas
        }
        quota_of = {q: quotas[c.tenant] for q, c in enumerate(self.queries) if c.tenant in quotas}
        return Placement([tier.machines for tier in self.tiers], quota_of)

    def running(self) -> dict[int, Placed]:
        """Give where queries run that could go on there, if the machines have the room."""
        found = {}
        first = self.arrays.first.tolist()
        for q, candidate in enumerate(self.queries):
            before = self.problem.running.get(candidate.query_id)
            if before is None:
                continue
            for p in range(first[q], first[q + 1]):
                entry = self.entries[p]
                if entry.plan.plan_id == before.plan_id and covers(before, entry.plan):
                    found[q] = self._placed(p, before)
        return found

    def runs_with(self, query: int, plan: int) -> bool:
        """Give whether a query runs with a plan now, whatever machines it has."""
        before = self.problem.running.get(self.queries[query].query_id)
        return before is not None and before.plan_id == self.entries[plan].plan.plan_id

    def _placed(self, plan: int, before: Assignment) -> Placed:
        index = {tier.name: t for t, tier in enumerate(self.tiers)}
        slices = [s for s in before.machines if s.tier in index]
        slices.sort(key=lambda s: -parts_of(s.share))
        return Placed(
            plan,
            tuple((index[s.tier], parts_of(s.share)) for s in slices),
            tuple(s.machine for s in slices),
        )

    def schedule(self, placement: Placement) -> Schedule:
        """Give the schedule that a placement means, with the reasons of those who wait."""
        problem = self.problem
        by_id = {self.queries[q].query_id: self._assignment(q, p) for q, p in placement.at.items()}
        ordered = tuple(by_id[c.query_id] for c in problem.candidates if c.query_id in by_id)
        return Schedule(
            assignments=ordered,
            waiting=reasons(problem, ordered),
            utilisation=utilisation(problem, ordered),
        )

    def _assignment(self, query: int, placed: Placed) -> Assignment:
        candidate, entry = self.queries[query], self.entries[placed.plan]
        before = self.problem.running.get(candidate.query_id)
        return assignment_of(candidate.query_id, entry, placed, self.tiers, before)


def assignment_of(
    query_id: str, entry: Entry, placed: Placed, tiers: Sequence[Tier], before: Assignment | None
) -> Assignment:
    """Give a placed query with names; `before` itself if it is the same plan and machines."""
    slices = dict(entry.own)
    free: dict[tuple[int, int], list[int]] = {}
    for item, machine in zip(placed.items, placed.machines, strict=True):
        free.setdefault(item, []).append(machine)
    index = {tier.name: t for t, tier in enumerate(tiers)}
    for position in entry.shared:
        tier, share = entry.plan.demand[position]
        machine = free[index[tier], parts_of(share)].pop(0)
        slices[position] = Slice(tier, machine, share)
    assignment = Assignment(
        query_id=query_id,
        plan_id=entry.plan.plan_id,
        machines=tuple(slices[i] for i in range(len(slices))),
    )
    same = before is not None and before.plan_id == assignment.plan_id
    return before if before and same and _same_machines(before, assignment) else assignment


def benefits(candidates: Iterable[Candidate]) -> dict[str, float]:
    """Give what serving each query is worth: its weight, scaled so that priorities come first.

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


def entries_of(
    candidate: Candidate, shared: Sequence[Tier], own: Sequence[Tier]
) -> tuple[Entry, ...]:
    """Give a query's plans that machines could ever hold, the cheapest first."""
    plans = sorted(candidate.plans, key=lambda p: (p.cost_usd_per_hour, p.plan_id))
    return tuple(e for plan in plans if (e := _entry(plan, shared, own)) is not None)


def _entry(plan: PlanOption, shared: Sequence[Tier], own: Sequence[Tier]) -> Entry | None:
    """Give a plan as it would be placed; None if no machines could ever hold it."""
    demand = plan.demand
    machines = {tier.name: tier.machines for tier in shared}
    mine = [i for i, item in enumerate(demand) if item.tier not in machines]
    slices = Packing(own).place([demand[i] for i in mine]) if mine else ()
    if slices is None:
        return None
    positions = [i for i, item in enumerate(demand) if item.tier in machines]
    positions.sort(key=lambda i: -parts_of(demand[i].share))
    if any(parts_of(demand[i].share) > PARTS or not machines[demand[i].tier] for i in positions):
        return None
    return Entry(plan, tuple(positions), dict(zip(mine, slices, strict=True)))


def _same_machines(one: Assignment, other: Assignment) -> bool:
    def keys(a: Assignment) -> list[tuple[str, int, int]]:
        return sorted((tier, machine, parts_of(share)) for tier, machine, share in a.machines)

    return keys(one) == keys(other)


def _ends(counts: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([0, *accumulate(counts)], np.int64)
