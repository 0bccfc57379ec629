"""Sees to it that nobody waits for ever, whatever the policy.

Three means, as a change of the problem that a policy solves:

- *weight*: a waiting query's weight grows with its waiting time (Circinus 4.3);
- *claims by priority*: a waiting query may take the place of running ones of lower priority;
- *claims by age*: a query that has waited `limit_s` is overdue. Overdue queries may take the
  place of any running query, the longest waiting first, and no younger claim is met before
  an older one. Who got in that way keeps its place for a turn against other overdue ones.

The bound. Let there be n live queries, each with a plan that fits the empty machines (and
its tenant's whole quota), a reschedule at least every r seconds, and machines that stay
(what pools hold, `scheduler.rolling.pooling`, counts as machines that are not there).
Then nobody waits longer than

    limit_s + n * (turn_s + r).

Proof: once overdue, only queries that have waited longer come before it, at most n - 1.
The first in line meets, at the next reschedule, either unprotected queries, which make
way, or protected ones, whose turns all end within turn_s, while no new turn begins
(younger claims wait). So each place in line takes at most turn_s + r. Whoever is put out
starts to wait anew, behind it.

Policies leave what runs where it is. Where somebody has a claim to machines that others hold,
`make_way` changes `running`: the claimant takes the place, those in its way lose theirs.
So every policy honours claims, knowing nothing of them. `preemptions` compares what ran with a
schedule, whatever the cause was.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from circinus.pipelines import checks
from circinus.scheduler.compiled.feasibility import same_place
from circinus.scheduler.compiled.placement import empty, fit
from circinus.scheduler.problem import (
    CENT,
    PARTS,
    WEIGHT,
    Assignment,
    Candidate,
    PlanOption,
    Problem,
    Schedule,
    Slice,
    aggregate_parts,
    held_by_tenants,
    parts_of,
    quota_parts,
    spent_usd_per_hour,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """How waiting counts."""

    growth_s: float = 600.0  # seconds of waiting that add the query's weight once more
    limit_s: float = 3600.0  # seconds of waiting after which a query is overdue
    turn_s: float = 600.0  # seconds that a query keeps a place it got when overdue

    def __post_init__(self) -> None:
        checks.positive("growth_s", self.growth_s)
        checks.non_negative("limit_s", self.limit_s)
        checks.non_negative("turn_s", self.turn_s)

    # deviates: ageing
    def growth(self, waited_s: float) -> float:
        """Return what the weight of a query that waits is multiplied by."""
        return 1 + waited_s / self.growth_s

    def longest_wait_s(self, queries: int, interval_s: float) -> float:
        """Return the bound on waiting among so many live queries; see the module."""
        return self.limit_s + queries * (self.turn_s + interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How long a live query has been as it is."""

    since_s: float  # seconds since it was served or put out last, or arrived
    overdue_entry: bool = False  # whether it is served because it was overdue

    def __post_init__(self) -> None:
        checks.non_negative("since_s", self.since_s)


# deviates: overdue-claims
def overdue(
    problem: Problem, standings: Mapping[str, Standing], ageing: Ageing
) -> tuple[str, ...]:
    """Return the waiting queries that have waited too long, the longest first."""
    waiting = {c.query_id for c in problem.candidates} - problem.running.keys()
    waited = {q: standings[q].since_s for q in waiting & standings.keys()}
    late = [(-since_s, q) for q, since_s in waited.items() if since_s >= ageing.limit_s]
    return tuple(query for _, query in sorted(late))


def aged(
    problem: Problem,
    standings: Mapping[str, Standing],
    ageing: Ageing,
    held: Collection[str] = (),  # queries over whom there is no claim
) -> Problem:
    """Return the problem as waiting, priorities and claims change it; no standing: just in."""
    late = overdue(problem, standings, ageing)
    safe = set(held) | {
        q
        for q, standing in standings.items()
        if standing.overdue_entry and standing.since_s < ageing.turn_s
    }
    claims = dict.fromkeys(late, frozenset(problem.running.keys() - safe))
    way = make_way(problem, claims, held, in_turn=True)
    entered = way.running.keys() - problem.running.keys()
    way = make_way(way, _by_priority(way, safe | entered), held, in_turn=False)
    top = 1 + max((c.priority for c in problem.candidates), default=0)

    def changed(c: Candidate) -> Candidate:
        if c.query_id in entered:
            return replace(c, priority=top)
        if c.query_id in standings and c.query_id not in problem.running:
            grown = c.weight * ageing.growth(standings[c.query_id].since_s)
            return replace(c, weight=min(grown, WEIGHT.most))
        return c

    return replace(way, candidates=tuple(map(changed, problem.candidates)))


def _by_priority(problem: Problem, safe: set[str]) -> dict[str, frozenset[str]]:
    priority = {c.query_id: c.priority for c in problem.candidates}
    waiting = [c for c in problem.candidates if c.query_id not in problem.running]
    waiting.sort(key=lambda c: (-c.priority, -c.weight, c.query_id))
    below = {
        c.query_id: {q for q in problem.running if priority.get(q, c.priority) < c.priority} - safe
        for c in waiting
    }
    return {claimant: frozenset(over) for claimant, over in below.items() if over}


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A query that does not run any more as it did."""

    query_id: str
    # the queries that took over its machines; none when the machines themselves went, or the
    # plan is not offered any more
    by: tuple[str, ...]
    moved: bool  # whether it is served all the same, elsewhere or with another plan

    @property
    def words(self) -> str:
        """What happened, as a sentence."""
        what = "was moved" if self.moved else "was stopped"
        gone = "because its machines or plan are gone" + (
            ", or to rent less" if self.moved else ""
        )
        why = f"for {', '.join(self.by)}" if self.by else gone
        return f"{self.query_id} {what} {why}."


def preemptions(problem: Problem, schedule: Schedule) -> tuple[Preemption, ...]:
    """Return every live query that ran and is stopped or moved, in the problem's order."""
    now = schedule.by_query
    holders: dict[tuple[str, int], set[str]] = defaultdict(set)
    shared = {tier.name for tier in problem.tiers if not tier.dedicated}
    for assignment in schedule.assignments:
        for spot in _spots(assignment, shared):
            holders[spot].add(assignment.query_id)
    preempted = []
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
        preempted.append(
            Preemption(query_id=candidate.query_id, by=tuple(sorted(by)), moved=after is not None)
        )
    return tuple(preempted)


def _spots(assignment: Assignment, shared: set[str]) -> set[tuple[str, int]]:
    return {(s.tier, s.machine) for s in assignment.machines if s.tier in shared}


def make_way(
    problem: Problem,
    claims: Mapping[str, frozenset[str]],
    held: Collection[str] = (),
    *,
    in_turn: bool,
) -> Problem:
    """Return the problem with claimants put where they may run, and those in their way taken off.

    A claim is that of a waiting query, over the running ones that have to make way when it cannot
    be placed otherwise. For each, the first one first, the plan and machines are taken whose
    queries weigh least together. One that would fit empty machines, but for what `held` queries
    have, and cannot be met is passed over, or, where claims are met `in_turn`, lets all later ones
    wait.
    """
    ground = _Ground(problem, held)
    for query_id, over in claims.items():
        candidate = ground.candidates[query_id]
        possible = [plan for plan in candidate.plans if ground.ever_holds(candidate, plan)]
        if query_id in ground.running or not possible:
            continue
        ways = [w for plan in possible if (w := ground.way(candidate, plan, over))]
        if ways:
            best = min(ways, key=lambda w: (w.weight, w.assignment.plan_id))
            for victim in best.victims:
                del ground.running[victim]
            ground.running[query_id] = best.assignment
        elif in_turn:
            break
    return replace(problem, running=ground.running)


class _Way(NamedTuple):
    assignment: Assignment
    victims: frozenset[str]
    weight: float


def _assignment(candidate: Candidate, plan: PlanOption, slices: Mapping[int, Slice]) -> Assignment:
    machines = tuple(slices[i] for i in range(len(plan.demand)))
    return Assignment(query_id=candidate.query_id, plan_id=plan.plan_id, machines=machines)


class _Ground:
    """Who holds what while claims are met one after the other."""

    def __init__(self, problem: Problem, held: Collection[str]) -> None:
        self._problem = problem
        self._tiers = {t.name: t for t in problem.tiers if not t.dedicated}
        self.candidates = {c.query_id: c for c in problem.candidates}
        self.running = {q: a for q, a in problem.running.items() if q in self.candidates}
        staying = [a for q, a in self.running.items() if q in held]
        self._empty = empty(problem.tiers)  # but for what stays
        for tier, machine, share in (s for a in staying for s in a.machines):
            if tier in self._tiers:
                self._empty[tier].take(machine, parts_of(share))
        self._staying = held_by_tenants(problem, staying)
        self._stay = staying

    def ever_holds(self, candidate: Candidate, plan: PlanOption) -> bool:
        """Return whether machines, a quota and dollars hold a plan, free but for what stays."""
        fitted = fit(plan.demand, self._empty)
        if fitted.missing:
            return False
        alone = _assignment(candidate, plan, fitted.slices)
        if not self._affordable([*self._stay, alone]):
            return False
        return candidate.tenant not in self._problem.quotas or all(
            aggregate_parts(plan.demand, (name,)) + self._staying[candidate.tenant, name]
            <= quota_parts(self._problem, candidate.tenant, tier)
            for name, tier in self._tiers.items()
        )

    def way(self, candidate: Candidate, plan: PlanOption, over: frozenset[str]) -> _Way | None:
        """Return how to place a plan at the expense of the least weight; None if it cannot be."""
        victims = self._over_quota(candidate, plan, over)
        if victims is None:
            return None
        held: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
        for query in self.running.keys() - victims:
            for tier, machine, share in self.running[query].machines:
                held[tier, machine][query] += parts_of(share)
        # What the query has to itself is where it would be on empty machines.
        slices = fit(plan.demand, self._empty).slices
        for i in sorted(range(len(plan.demand)), key=lambda i: -parts_of(plan.demand[i].share)):
            tier, share = plan.demand[i]
            if tier not in self._tiers:
                continue
            spot = self._cheapest_spot(tier, parts_of(share), held, over)
            if spot is None:
                return None
            _, _, machine, leaving = spot
            victims |= leaving
            for there in held.values():
                for query in leaving:
                    there.pop(query, None)
            held[tier, machine][candidate.query_id] += parts_of(share)
            slices[i] = Slice(tier, machine, share)
        assignment = _assignment(candidate, plan, slices)
        payers = self._payers(assignment, over, victims)
        if payers is None:
            return None
        victims |= payers
        weight = sum(self.candidates[q].weight for q in victims)
        return _Way(assignment=assignment, victims=frozenset(victims), weight=weight)

    def _payers(
        self, assignment: Assignment, over: frozenset[str], victims: Collection[str]
    ) -> set[str] | None:
        """Return who else has to go for the limit of dollars; None if that is not enough."""
        payers: set[str] = set()
        if self._problem.most_usd_per_hour == inf:  # nearly always: no sums over all that run
            return payers
        ranked = sorted(over & self.running.keys() - set(victims), key=self._rank)
        for query in ranked:
            if self._affordable_with(assignment, {*victims, *payers}):
                break
            payers.add(query)
        if not self._affordable_with(assignment, {*victims, *payers}):
            return None
        for query in [q for q in ranked[::-1] if q in payers]:  # the others may be enough
            if self._affordable_with(assignment, {*victims, *payers} - {query}):
                payers.discard(query)
        return payers

    def _affordable_with(self, assignment: Assignment, victims: Collection[str]) -> bool:
        staying = [a for query, a in self.running.items() if query not in victims]
        return self._affordable([*staying, assignment])

    def _affordable(self, assignments: Sequence[Assignment]) -> bool:
        """Return whether the limit of dollars allows them together."""
        most = self._problem.most_usd_per_hour
        return most == inf or spent_usd_per_hour(self._problem, assignments) <= most * (1 + CENT)

    def _cheapest_spot(
        self,
        tier: str,
        parts: int,
        held: Mapping[tuple[str, int], Counter[str]],  # (tier, machine) -> query -> parts
        over: frozenset[str],
    ) -> tuple[float, int, int, set[str]] | None:
        """Return weight and parts left, the least, with the machine and who leaves it."""
        spots = []
        machines = range(self._tiers[tier].machines)
        used = [m for t, m in held if t == tier and m in machines]
        fresh = next(([m] for m in machines if (tier, m) not in held), [])  # of equals one will do
        for machine in used + fresh:
            there = held[tier, machine]
            left = PARTS - sum(there.values())
            leaving: set[str] = set()
            for query in sorted(there.keys() & over, key=self._rank):
                if left >= parts:
                    break
                leaving.add(query)
                left += there[query]
            if left >= parts:
                weight = sum(self.candidates[q].weight for q in leaving)
                spots.append((weight, left, machine, leaving))
        return min(spots, default=None)

    def _rank(self, query: str) -> tuple[int, float, str]:
        candidate = self.candidates[query]
        return candidate.priority, candidate.weight, query

    def _over_quota(
        self, candidate: Candidate, plan: PlanOption, over: frozenset[str]
    ) -> set[str] | None:
        """Return who of the tenant has to go for its quota; None if that is not enough."""
        if candidate.tenant not in self._problem.quotas:
            return set()
        mine = {q for q in self.running if self.candidates[q].tenant == candidate.tenant}
        victims: set[str] = set()
        for name, tier in self._tiers.items():
            needs = aggregate_parts(plan.demand, (name,))
            most = quota_parts(self._problem, candidate.tenant, tier) - needs
            holds = {q: aggregate_parts(self.running[q].machines, (name,)) for q in mine - victims}
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
