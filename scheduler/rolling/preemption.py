"""Who had to make way for whom: worked out before a schedule, and recorded after it.

Policies leave what runs where it is. Where somebody has a claim to machines that others
hold (overdue, or of higher priority), `make_way` changes what is said to run: the claimant
takes the place, those in its way lose theirs. So every policy honours claims, knowing
nothing of them. `preemptions` compares what ran with a schedule, whatever the cause was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from circinus.pipelines.infrastructure import Tier
from circinus.scheduler.compiled.feasibility import same_place
from circinus.scheduler.compiled.placement import empty, fit
from circinus.scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    aggregate_parts,
    parts_of,
    quota_parts,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A query that does not run any more as it did."""

    query_id: str
    # the queries that came onto its machines; none when the machines themselves went, or the
    # plan is not offered any more
    by: tuple[str, ...]
    moved: bool  # whether it is served all the same, elsewhere or with another plan

    @property
    def words(self) -> str:
        """What happened, as a sentence."""
        what = "was moved" if self.moved else "was stopped"
        why = f"for {', '.join(self.by)}" if self.by else "because its machines or plan are gone"
        return f"{self.query_id} {what} {why}."


def preemptions(problem: Problem, schedule: Schedule) -> tuple[Preemption, ...]:
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
        if before is None or (after is not None and same_place(before, after)):
            continue
        by = {
            query
            for spot in _spots(before, shared)
            for query in holders[spot] - {candidate.query_id}
            if query not in problem.running or spot not in _spots(problem.running[query], shared)
        }
        found.append(
            Preemption(query_id=candidate.query_id, by=tuple(sorted(by)), moved=after is not None)
        )
    return tuple(found)


def _spots(assignment: Assignment, shared: set[str]) -> set[tuple[str, int]]:
    return {(s.tier, s.machine) for s in assignment.machines if s.tier in shared}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A waiting query that may take the place of running ones."""

    query_id: str
    # the running queries that have to make way when it cannot be placed otherwise
    over: frozenset[str]


def make_way(problem: Problem, claims: Sequence[Claim], *, in_turn: bool) -> Problem:
    """Give the problem with claimants put where they may run, and those in their way taken off.

    For each claim, the first one first, the plan and machines are taken whose queries weigh least
    together. One that would fit empty machines and cannot be met is passed over, or, where claims
    are met `in_turn`, lets all later ones wait.
    """
    by_id = {candidate.query_id: candidate for candidate in problem.candidates}
    ground = _Ground(problem)
    for claim in claims:
        candidate = by_id[claim.query_id]
        possible = [plan for plan in candidate.plans if ground.ever_holds(candidate, plan)]
        if claim.query_id in ground.running or not possible:
            continue
        ways = [w for plan in possible if (w := ground.way(candidate, plan, claim.over))]
        if ways:
            ground.take(min(ways, key=lambda w: (w.weight, w.assignment.plan_id)))
        elif in_turn:
            break
    return replace(problem, running=ground.running)


_Held = defaultdict[tuple[str, int], Counter[str]]
"""(tier, machine) -> query -> parts."""


class _Way(NamedTuple):
    assignment: Assignment
    victims: frozenset[str]
    weight: float


class _Ground:
    """Who holds what while claims are met one after the other."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._tiers: Mapping[str, Tier] = {t.name: t for t in problem.tiers if not t.dedicated}
        self._empty = empty(problem.tiers)
        self._candidates = {c.query_id: c for c in problem.candidates}
        self.running = {q: a for q, a in problem.running.items() if q in self._candidates}

    def ever_holds(self, candidate: Candidate, plan: PlanOption) -> bool:
        """Give whether empty machines and an untouched quota would hold a plan."""
        if fit(plan.demand, self._empty).missing:
            return False
        return candidate.tenant not in self._problem.quotas or all(
            aggregate_parts(plan.demand, (name,))
            <= quota_parts(self._problem, candidate.tenant, tier)
            for name, tier in self._tiers.items()
        )

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
        # What the query has to itself is where it would be on empty machines.
        slices = fit(plan.demand, self._empty).slices
        for i in sorted(range(len(plan.demand)), key=lambda i: -parts_of(plan.demand[i].share)):
            tier, share = plan.demand[i]
            if tier not in self._tiers:
                continue
            spot = self._cheapest_spot(tier, parts_of(share), held, over)
            if spot is None:
                return None
            machine, leaving = spot
            victims |= leaving
            for there in held.values():
                for query in leaving:
                    there.pop(query, None)
            held[tier, machine][candidate.query_id] += parts_of(share)
            slices[i] = Slice(tier, machine, share)
        assignment = Assignment(
            query_id=candidate.query_id,
            plan_id=plan.plan_id,
            machines=tuple(slices[i] for i in range(len(plan.demand))),
        )
        weight = sum(self._candidates[q].weight for q in victims)
        return _Way(assignment=assignment, victims=frozenset(victims), weight=weight)

    def _held(self, without: set[str]) -> _Held:
        held: _Held = defaultdict(Counter)
        for query in self.running.keys() - without:
            for tier, machine, share in self.running[query].machines:
                held[tier, machine][query] += parts_of(share)
        return held

    def _cheapest_spot(
        self, tier: str, parts: int, held: _Held, over: frozenset[str]
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
        victims: set[str] = set()
        for name, tier in self._tiers.items():
            needs = aggregate_parts(plan.demand, (name,))
            most = quota_parts(self._problem, candidate.tenant, tier) - needs
            holds = {q: _parts_on(self.running[q], name) for q in mine if q not in victims}
            total = sum(holds.values())
            for query in sorted(holds.keys() & over, key=self._rank):
                if total <= most:
                    break
                if holds[query]:
                    victims.add(query)
                    total -= holds[query]
            if total > most and needs:
                return None
        return victims


def _parts_on(assignment: Assignment, tier: str) -> int:
    return sum(parts_of(s.share) for s in assignment.machines if s.tier == tier)
