"""The schedule of live queries, kept up to date as one after the other changes.

Solving the whole problem again for one arrival among thousands would be a waste: prices
hardly change. Here one change costs about as much as one query. What it decides is what
`Priced` without migration decides when everybody else runs already; a full reschedule from
time to time finds what only moving others would.

The one rule: nothing is above capacity or quota after a change, and every live query is
either served or waits; nobody is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines import checks
from pipelines.errors import InvalidInput
from scheduler.arrays import FloatArray
from scheduler.compiled import Compiled, Entry, assignment_of, entries_of
from scheduler.placement import Items, Placed, Placement
from scheduler.prices import dual_prices
from scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    Problem,
    Schedule,
    parts_of,
    quota_parts,
    utilisation,
)
from scheduler.waiting import reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one event did.

    Attributes:
        admitted: Assignments that are new, or another than before.
        evicted: Queries that ran and wait now.
    """

    admitted: tuple[Assignment, ...] = ()
    evicted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Ready:
    """A live query as it would be placed: its plans, the least charged first."""

    candidate: Candidate
    entries: tuple[Entry, ...]
    items: tuple[Items, ...]
    rate: float


class LiveSchedule:
    """Live queries, where they run, and who waits."""

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        growth: Callable[[str], float] = lambda query_id: 1.0,
    ) -> None:
        """Start from a problem and a valid schedule of it; prices are worked out once.

        Args:
            problem: All live queries, and the machines.
            schedule: Who runs where.
            growth: What a waiting query's weight is multiplied by when room comes free.
        """
        self._growth = growth
        self._problem = replace(problem, candidates=(), running={})
        self._shared = [t for t in problem.tiers if not t.dedicated]
        self._own = [t for t in problem.tiers if t.dedicated]
        self._price = _price(Compiled.of(problem))
        self._ready: dict[str, _Ready] = {}
        self._serial: dict[str, int] = {}
        self._name: dict[int, str] = {}
        self._served: dict[str, Assignment] = {}
        self._waiting: dict[str, None] = {}
        self._next = 0
        self._quotas: dict[str, list[int]] = {}
        self._quota_of: dict[int, list[int]] = {}
        self._clear()
        for candidate in problem.candidates:
            self._enter(candidate)
        for query_id, assignment in schedule.by_query.items():
            self._resume(query_id, assignment)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The live queries that are not served, in the order in which they came."""
        return tuple(self._waiting)

    @property
    def served(self) -> dict[str, Assignment]:
        """The queries that run."""
        return dict(self._served)

    def arrive(self, candidate: Candidate) -> Change:
        """Take in a query, or a live one with other plans or weight; serve it if it fits.

        A live query whose plan is still offered with the same demand stays where it is.
        """
        query_id = candidate.query_id
        before = self._served.get(query_id)
        if query_id not in self._ready:
            self._enter(candidate)
            return Change(admitted=tuple(filter(None, [self._admit(query_id)])))
        self._lift(query_id)
        del self._ready[query_id]
        self._waiting.pop(query_id, None)
        self._enter(candidate)
        if before is not None and self._resume(query_id, before):
            return Change()
        admitted = self._admit(query_id)
        freed = {s.tier for s in before.machines} if before is not None else set()
        others = self._fill(freed)
        evicted = (query_id,) if before is not None and admitted is None else ()
        return Change(admitted=(*filter(None, [admitted]), *others), evicted=evicted)

    def leave(self, query_id: str) -> Change:
        """Let a query go; serve whoever fits into its place.

        Raises:
            InvalidInput: If it is not live.
        """
        known = query_id in self._ready
        checks.require(known, "query_id", "must be a live query", query_id)
        before = self._served.get(query_id)
        self._lift(query_id)
        del self._ready[query_id]
        self._waiting.pop(query_id, None)
        del self._name[self._serial.pop(query_id)]
        return Change(admitted=self._fill({s.tier for s in before.machines} if before else set()))

    def resize(self, tier: str, machines: int) -> Change:
        """Change how many machines a shared tier has; the last ones go first.

        Raises:
            InvalidInput: If there is no such shared tier, or the number is negative.
        """
        names = [t.name for t in self._shared]
        if tier not in names:
            raise InvalidInput.of("tier", f"must be among {', '.join(names)}", tier)
        tiers = tuple(
            replace(t, machines=machines) if t.name == tier else t for t in self._problem.tiers
        )
        self._problem = replace(self._problem, tiers=tiers)
        self._shared = [t for t in tiers if not t.dedicated]
        before, ready = self._served, self._ready
        self._served, self._ready, self._waiting = {}, {}, {}
        self._clear()
        for each in ready.values():
            self._enter(each.candidate)
        by_rate = sorted(before, key=lambda q: (-ready[q].rate, q))
        homeless = [q for q in by_rate if not self._resume(q, before[q])]
        moved = [a for q in homeless if (a := self._admit(q)) is not None]
        filled = self._fill(set(names))
        admitted = {a.query_id: a for a in (*moved, *filled)}
        evicted = tuple(q for q in homeless if q not in admitted)
        return Change(admitted=tuple(admitted.values()), evicted=evicted)

    @property
    def least_priority_served(self) -> int | None:
        """The lowest priority of those that run on shared machines; None: nobody does."""
        shared = {tier.name for tier in self._shared}
        return min(
            (
                self.priority(q)
                for q, assignment in self._served.items()
                if any(s.tier in shared for s in assignment.machines)
            ),
            default=None,
        )

    def priority(self, query_id: str) -> int:
        """Give the priority of a live query."""
        return self._ready[query_id].candidate.priority

    def problem(self) -> Problem:
        """Give the problem as it stands: what a full reschedule is asked."""
        return replace(
            self._problem,
            candidates=tuple(each.candidate for each in self._ready.values()),
            running=dict(self._served),
        )

    def schedule(self) -> Schedule:
        """Give the schedule with reasons and utilisation; takes as long as there are queries."""
        problem = replace(self.problem(), running={})
        assignments = tuple(self._served[q] for q in self._ready if q in self._served)
        return Schedule(
            assignments=assignments,
            waiting=reasons(problem, assignments),
            utilisation=utilisation(problem, assignments),
        )

    def _clear(self) -> None:
        self._quotas = {
            tenant: [quota_parts(self._problem, tenant, tier) for tier in self._shared]
            for tenant in self._problem.quotas
        }
        self._quota_of = {}
        self._placement = Placement([t.machines for t in self._shared], self._quota_of)

    def _enter(self, candidate: Candidate) -> None:
        query_id = candidate.query_id
        serial = self._serial.setdefault(query_id, self._next)
        self._next = max(self._next, serial + 1)
        self._name[serial] = query_id
        if candidate.tenant in self._quotas:
            self._quota_of[serial] = self._quotas[candidate.tenant]
        self._ready[query_id] = self._prepare(candidate)
        self._waiting[query_id] = None

    def _prepare(self, candidate: Candidate) -> _Ready:
        index = {tier.name: t for t, tier in enumerate(self._shared)}
        rows = []
        for entry in entries_of(candidate, self._shared, self._own):
            demand = [entry.plan.demand[i] for i in entry.shared]
            items = tuple((index[item.tier], parts_of(item.share)) for item in demand)
            rows.append((sum(self._price[t] * p / PARTS for t, p in items), entry, items))
        rows.sort(key=lambda row: row[0])
        least = rows[0][0] if rows else 0.0
        return _Ready(
            candidate,
            tuple(entry for _, entry, _ in rows),
            tuple(items for _, _, items in rows),
            candidate.weight / max(least, 1e-12),
        )

    def _admit(self, query_id: str) -> Assignment | None:
        ready = self._ready[query_id]
        serial = self._serial[query_id]
        for plan, items in enumerate(ready.items):
            if self._placement.place(serial, plan, items):
                return self._note(query_id, None)
        return None

    def _resume(self, query_id: str, before: Assignment) -> bool:
        """Put a query back exactly where it was, if that is offered and free."""
        ready = self._ready[query_id]
        index = {tier.name: t for t, tier in enumerate(self._shared)}
        slices = sorted(
            (s for s in before.machines if s.tier in index), key=lambda s: -parts_of(s.share)
        )
        items = tuple((index[s.tier], parts_of(s.share)) for s in slices)
        for plan, entry in enumerate(ready.entries):
            if entry.plan.plan_id != before.plan_id or sorted(items) != sorted(ready.items[plan]):
                continue
            placed = Placed(plan, items, tuple(s.machine for s in slices))
            if self._placement.occupy(self._serial[query_id], placed):
                self._note(query_id, before)
                return True
        return False

    def _note(self, query_id: str, before: Assignment | None) -> Assignment:
        placed = self._placement.at[self._serial[query_id]]
        entry = self._ready[query_id].entries[placed.plan]
        assignment = assignment_of(query_id, entry, placed, self._shared, before)
        self._served[query_id] = assignment
        self._waiting.pop(query_id, None)
        return assignment

    def _lift(self, query_id: str) -> None:
        if query_id in self._served:
            self._placement.lift(self._serial[query_id])
            del self._served[query_id]

    def _fill(self, tiers: set[str]) -> tuple[Assignment, ...]:
        """Serve whoever fits now that there is more room on some tiers (or under a quota)."""
        freed = {t for t, tier in enumerate(self._shared) if tier.name in tiers}
        if not freed:
            return ()
        admitted: list[Assignment] = []
        for query_id in self._hopeful(freed):
            assignment = self._admit(query_id)
            if assignment is not None:
                admitted.append(assignment)
        return tuple(admitted)

    def _hopeful(self, freed: set[int]) -> Sequence[str]:
        """Give the waiting queries with a plan whose items fit one by one, the best first."""
        room = [free.largest for free in self._placement.free]
        found = [
            q
            for q in self._waiting
            if any(
                all(parts <= room[t] for t, parts in items) and any(t in freed for t, _ in items)
                for items in self._ready[q].items
            )
        ]

        def rank(query: str) -> tuple[int, float, str]:
            ready = self._ready[query]
            return -ready.candidate.priority, -ready.rate * self._growth(query), query

        return sorted(found, key=rank)


def _price(compiled: Compiled) -> list[float]:
    price: FloatArray = dual_prices(compiled.arrays).per_machine
    top = float(price.max(initial=0.0)) or 1.0
    prices: list[float] = np.maximum(price, 1e-3 * top).tolist()
    return prices
