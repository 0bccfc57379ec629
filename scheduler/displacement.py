"""Who had to make way for whom: worked out before a schedule, and recorded after it.

Policies leave what runs where it is. Where somebody has a claim to machines that others
hold (overdue, or of higher priority), `make_way` changes what is said to run: the claimant
takes the place, those in its way lose theirs. So every policy honours claims, knowing
nothing of them. `displacements` compares what ran with a schedule, whatever the cause was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.infrastructure import Tier
from scheduler.packing import Packing
from scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    parts_of,
    quota_parts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Displacement:
    """A query that does not run any more as it did.

    Attributes:
        query_id: Which.
        by: The queries that came onto its machines; none when the machines themselves went, or
            the plan is not offered any more.
        moved: Whether it is served all the same, elsewhere or with another plan.
    """

    query_id: str
    by: tuple[str, ...]
    moved: bool

    @property
    def words(self) -> str:
        """What happened, as a sentence."""
        what = "was moved" if self.moved else "was stopped"
        why = f"for {', '.join(self.by)}" if self.by else "because its machines or plan are gone"
        return f"{self.query_id} {what} {why}."


def displacements(problem: Problem, schedule: Schedule) -> tuple[Displacement, ...]:
    """Give every live query that ran and is stopped or moved, in the problem's order."""
    now = schedule.by_query
    holders: dict[tuple[str, int], set[str]] = defaultdict(set)
    shared = {tier.name for tier in problem.tiers if not tier.dedicated}
    for assignment in schedule.assignments:
        for spot in _spots(assignment, shared):
            holders[spot].add(assignment.query_id)
    found = []
    for candidate in problem.candidates:
        before = problem.running.get(candidate.query_id)
        after = now.get(candidate.query_id)
        if before is None or (after is not None and _same(before, after)):
            continue
        by = {
            query
            for spot in _spots(before, shared)
            for query in holders[spot] - {candidate.query_id}
            if query not in problem.running or spot not in _spots(problem.running[query], shared)
        }
        found.append(
            Displacement(
                query_id=candidate.query_id, by=tuple(sorted(by)), moved=after is not None
            )
        )
    return tuple(found)


def _spots(assignment: Assignment, shared: set[str]) -> set[tuple[str, int]]:
    return {(s.tier, s.machine) for s in assignment.machines if s.tier in shared}


def _same(one: Assignment, other: Assignment) -> bool:
    return one.plan_id == other.plan_id and sorted(one.machines) == sorted(other.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A waiting query that may take the place of running ones.

    Attributes:
        query_id: A candidate.
        over: The running queries that have to make way when it cannot be placed otherwise.
    """

    query_id: str
    over: frozenset[str]


def make_way(problem: Problem, claims: Sequence[Claim], *, in_turn: bool) -> Problem:
    """Give the problem with claimants put where they may run, and those in their way taken off.

    For each claim the plan and machines are taken whose queries weigh least together.

    Args:
        problem: With what runs.
        claims: The first goes first.
        in_turn: Whether all later claims wait while one that would fit empty machines cannot be
            met; otherwise it is passed over.
    """
    by_id = {candidate.query_id: candidate for candidate in problem.candidates}
    ground = _Ground(problem)
    for claim in claims:
        candidate = by_id[claim.query_id]
        options = [_fresh(problem, candidate, plan) for plan in candidate.plans]
        possible = [o for o in options if o is not None]
        if claim.query_id in ground.running or not possible:
            continue
        ways = [w for plan in possible if (w := ground.way(candidate, plan, claim.over))]
        if ways:
            ground.take(min(ways, key=lambda w: (w.weight, w.assignment.plan_id)))
        elif in_turn:
            break
    return replace(problem, running=ground.running)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    assignment: Assignment
    victims: frozenset[str]
    weight: float


def _fresh(problem: Problem, candidate: Candidate, plan: PlanOption) -> PlanOption | None:
    """Give the plan if empty machines and an untouched quota would hold it."""
    if Packing(problem.tiers).missing(plan.demand):
        return None
    if candidate.tenant not in problem.quotas:
        return plan
    needs = _needs(plan)
    fits = all(
        needs[tier.name] <= quota_parts(problem, candidate.tenant, tier)
        for tier in problem.tiers
        if not tier.dedicated
    )
    return plan if fits else None


def _needs(plan: PlanOption) -> defaultdict[str, int]:
    needs: defaultdict[str, int] = defaultdict(int)
    for tier, share in plan.demand:
        needs[tier] += parts_of(share)
    return needs


class _Ground:
    """Who holds what while claims are met one after the other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._tiers: Mapping[str, Tier] = {t.name: t for t in problem.tiers if not t.dedicated}
        self._candidates = {c.query_id: c for c in problem.candidates}
        running = problem.running
        self.running = {q: a for q, a in running.items() if q in self._candidates}

    def take(self, way: _Way) -> None:
        for victim in way.victims:
            del self.running[victim]
        self.running[way.assignment.query_id] = way.assignment

    def way(self, candidate: Candidate, plan: PlanOption, over: frozenset[str]) -> _Way | None:
        """Give how to place a plan at the expense of the least weight; None if it cannot be."""
        victims = self._over_quota(candidate, plan, over)
        if victims is None:
            return None
        held = self._held(victims)
        slices: dict[int, Slice] = {}
        own = Packing([t for t in self._problem.tiers if t.dedicated])
        for i in sorted(range(len(plan.demand)), key=lambda i: -parts_of(plan.demand[i].share)):
            tier, share = plan.demand[i]
            if tier not in self._tiers:
                placed = own.place((plan.demand[i],))
                if placed is None:
                    return None
                slices[i] = placed[0]
                continue
            spot = self._cheapest_spot(tier, parts_of(share), held, over)
            if spot is None:
                return None
            machine, leaving = spot
            victims |= leaving
            for there in held.values():
                for query in leaving:
                    there.pop(query, None)
            there = held[tier, machine]
            there[candidate.query_id] = there.get(candidate.query_id, 0) + parts_of(share)
            slices[i] = Slice(tier, machine, share)
        assignment = Assignment(
            query_id=candidate.query_id,
            plan_id=plan.plan_id,
            machines=tuple(slices[i] for i in range(len(plan.demand))),
        )
        weight = sum(self._candidates[q].weight for q in victims)
        return _Way(assignment=assignment, victims=frozenset(victims), weight=weight)

    def _held(self, without: set[str]) -> defaultdict[tuple[str, int], dict[str, int]]:
        held: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        for query, assignment in self.running.items():
            if query not in without:
                for tier, machine, share in assignment.machines:
                    there = held[tier, machine]
                    there[query] = there.get(query, 0) + parts_of(share)
        return held

    def _cheapest_spot(
        self,
        tier: str,
        parts: int,
        held: defaultdict[tuple[str, int], dict[str, int]],
        over: frozenset[str],
    ) -> tuple[int, set[str]] | None:
        best: tuple[float, int, int, set[str]] | None = None
        for machine in range(self._tiers[tier].machines):
            there = held[tier, machine]
            left = PARTS - sum(there.values())
            leaving: set[str] = set()
            for query in sorted(there.keys() & over, key=self._rank):
                if left >= parts:
                    break
                leaving.add(query)
                left += there[query]
            if left >= parts:
                weight = sum(self._candidates[q].weight for q in leaving)
                found = (weight, left, machine, leaving)
                best = found if best is None or found[:3] < best[:3] else best
        return None if best is None else (best[2], best[3])

    def _rank(self, query: str) -> tuple[int, float, str]:
        candidate = self._candidates[query]
        return candidate.priority, candidate.weight, query

    def _over_quota(
        self, candidate: Candidate, plan: PlanOption, over: frozenset[str]
    ) -> set[str] | None:
        """Give who of the tenant has to go for its quota; None if that is not enough."""
        if candidate.tenant not in self._problem.quotas:
            return set()
        mine = [q for q in self.running if self._candidates[q].tenant == candidate.tenant]
        needs = _needs(plan)
        victims: set[str] = set()
        for name, tier in self._tiers.items():
            most = quota_parts(self._problem, candidate.tenant, tier) - needs[name]
            holds = {q: _parts_on(self.running[q], name) for q in mine if q not in victims}
            total = sum(holds.values())
            for query in sorted(holds.keys() & over, key=self._rank):
                if total <= most:
                    break
                if holds[query]:
                    victims.add(query)
                    total -= holds[query]
            if total > most and needs[name]:
                return None
        return victims


def _parts_on(assignment: Assignment, tier: str) -> int:
    return sum(parts_of(s.share) for s in assignment.machines if s.tier == tier)
