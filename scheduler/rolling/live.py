"""The schedule of live queries, updated as one after the other changes.

For `Priced`, solving the whole problem again for one arrival would be a waste: prices hardly
change. Here one change costs about as much as one query. What it decides is what `Priced` without
migration decides when everybody else runs already; a full reschedule from time to time finds what
only moving others would. Other policies decide on other grounds: for them a schedule admits
nobody by itself, and is no more than the record of who runs where.

Measured, as `Priced` might do it all, 10 plans per query, processor time: an arrival among 1,000
(10,000) live queries takes 0.13 (0.25) ms here, and 290 (3,000) ms by `Priced` without
improvement; a step of `RollingSchedule`, which also explains why others wait, 27 (610) ms.

The one rule: nothing is above capacity or quota after a change, and every live query is
either served or waits; nobody is lost.

Machines of a tier with types are numbered type after type, without gaps. When a type gains or
loses machines, running queries are renumbered first, so that none changes its machine's type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from circinus.pipelines import checks
from circinus.pipelines.model.tiers import Tier
from circinus.scheduler.compiled.feasibility import (
    Compiled,
    PlaceablePlan,
    assignment_of,
    budget_of,
    entries_of,
    placed_as,
    quotas_of,
)
from circinus.scheduler.compiled.placement import Placement
from circinus.scheduler.compiled.waiting import reasons
from circinus.scheduler.policies.prices import dual_prices
from circinus.scheduler.problem import (
    PARTS,
    Assignment,
    Candidate,
    Problem,
    Schedule,
    Slice,
    utilisation,
)


@dataclass(frozen=True, slots=True)
class _Ready:
    """A live query as it would be placed: its plans, the least charged first."""

    candidate: Candidate
    entries: tuple[PlaceablePlan, ...]
    rate: float


class LiveSchedule:
    """Live queries, where they run, and who waits."""

    def __init__(
        self,
        problem: Problem,
        schedule: Schedule,
        growth: Callable[[str], float] = lambda query_id: 1.0,
        *,
        admits: bool = True,
    ) -> None:
        """Start from a problem and a valid schedule of it; prices are worked out once.

        `growth` is the factor on a waiting query's weight when room comes free. Unless it
        `admits`, whoever is not served waits, room or not, until a policy decides.
        """
        self._growth = growth
        self._admits = admits
        self._problem = replace(problem, candidates=(), running={})
        self._shared = [t for t in problem.tiers if not t.dedicated]
        prices = dual_prices(Compiled.of(problem).arrays).per_machine if admits else None
        price = np.zeros(len(self._shared)) if prices is None else prices
        top = float(price.max(initial=0.0)) or 1.0
        self._price: list[float] = np.maximum(price, 1e-3 * top).tolist()
        self._ready: dict[str, _Ready] = {}
        self._served: dict[str, Assignment] = {}
        self._waiting: dict[str, None] = {}
        self._clear()
        for candidate in problem.candidates:
            self._enter(candidate)
        for query_id, assignment in schedule.by_query.items():
            self._resume(query_id, assignment)

    @property
    def waiting(self) -> tuple[str, ...]:
        """The live queries that are not served, in the order of their arrival."""
        return tuple(self._waiting)

    @property
    def served(self) -> dict[str, Assignment]:
        """The queries that run."""
        return dict(self._served)

    def is_live(self, query_id: str) -> bool:
        """Return whether there is a live query of that id."""
        return query_id in self._ready

    def arrive(self, candidate: Candidate) -> None:
        """Take in a query, or a live one with other plans or weight; serve it if it fits.

        A live query whose plan is still offered with the same demand stays where it is.
        """
        query_id = candidate.query_id
        before = self._served.get(query_id)
        self._drop(query_id)
        self._enter(candidate)
        if before is None or not self._resume(query_id, before):
            self._admit(query_id)
            self._fill_after(before)

    def put(self, candidate: Candidate, at: Assignment) -> bool:
        """Take in a live query that asks for other slices, exactly there; False: no room.

        Then it is as it was.
        """
        query_id = candidate.query_id
        old, before = self._ready[query_id], self._served.get(query_id)
        self._drop(query_id)
        self._enter(candidate)
        if self._resume(query_id, at):
            self._fill_after(before)
            return True
        self._drop(query_id)
        self._enter(old.candidate)
        if before is not None:
            self._resume(query_id, before)
        return False

    def fill(self) -> None:
        """Serve whoever waits and fits."""
        self._fill({tier.name for tier in self._shared})

    def leave(self, query_id: str) -> None:
        """Let a query go; serve whoever fits into its place; InvalidInput if it is not live."""
        known = query_id in self._ready
        checks.require(known, "query_id", "must be a live query", query_id)
        before = self._served.get(query_id)
        self._drop(query_id)
        self._fill_after(before)

    def resize(self, pool: str, machines: int) -> None:
        """Change how many machines a shared tier has, or a type `TIER/TYPE`; the last go first.

        InvalidInput if there is no such tier or type, or the number is negative.
        """
        checks.among("tier", pool, [name for t in self._shared for name in t.pools])

        def resized(name: str, now: Tier) -> Tier:
            return replace(now, machines=machines) if name == pool else now

        tiers = tuple(t.changed(resized) for t in self._problem.tiers)
        served = renumbered(self._served, numbering(self._problem.tiers), numbering(tiers))
        self._problem = replace(self._problem, tiers=tiers)
        self._shared = [t for t in tiers if not t.dedicated]
        before, ready = served, self._ready
        self._served, self._ready, self._waiting = {}, {}, {}
        self._clear()
        for each in ready.values():
            self._enter(each.candidate)
        by_rate = sorted(before, key=lambda q: (-ready[q].rate, q))
        for query_id in [q for q in by_rate if not self._resume(q, before[q])]:
            self._admit(query_id)
        self.fill()

    @property
    def least_priority_served(self) -> int | None:
        """The lowest priority of those that run on shared machines; None: nobody does."""
        shared = {tier.name for tier in self._shared}
        running = (q for q, a in self._served.items() if any(s.tier in shared for s in a.machines))
        return min(map(self.priority, running), default=None)

    def priority(self, query_id: str) -> int:
        """Return the priority of a live query."""
        return self._ready[query_id].candidate.priority

    def problem(self) -> Problem:
        """Return the problem as it stands: the input of a full reschedule."""
        return replace(
            self._problem,
            candidates=tuple(each.candidate for each in self._ready.values()),
            running=dict(self._served),
        )

    def schedule(self) -> Schedule:
        """Return the schedule with reasons and utilisation; takes as long as there are queries."""
        problem = replace(self.problem(), running={})
        assignments = tuple(self._served[q] for q in self._ready if q in self._served)
        return Schedule(
            assignments=assignments,
            waiting=reasons(problem, assignments, self._placement.room(problem.tiers)),
            utilisation=utilisation(problem, assignments),
        )

    def _clear(self) -> None:
        self._quotas = quotas_of(self._problem, self._shared)
        self._quota_of: dict[str, list[int]] = {}
        budget = budget_of(self._problem, self._shared, self._calls_usd_per_hour)
        self._placement = Placement([t.machines for t in self._shared], self._quota_of, budget)

    def _calls_usd_per_hour(self, query_id: str, plan: int) -> float:
        return self._ready[query_id].entries[plan].plan.calls_usd_per_hour

    def _enter(self, candidate: Candidate) -> None:
        query_id = candidate.query_id
        if candidate.tenant in self._quotas:
            self._quota_of[query_id] = self._quotas[candidate.tenant]
        self._waiting[query_id] = None

        def charge(entry: PlaceablePlan) -> float:
            return sum(self._price[t] * parts / PARTS for t, parts in entry.items)

        entries = sorted(entries_of(candidate, self._problem.tiers), key=charge)
        least = charge(entries[0]) if entries else 0.0
        rate = candidate.weight / max(least, 1e-12)
        self._ready[query_id] = _Ready(candidate, tuple(entries), rate)

    def _admit(self, query_id: str) -> None:
        if not self._admits:
            return
        for plan, entry in enumerate(self._ready[query_id].entries):
            if self._placement.place(query_id, plan, entry.items):
                self._note(query_id, None)
                return

    def _resume(self, query_id: str, before: Assignment) -> bool:
        """Put a query back exactly where it was, if that is offered and free."""
        ready = self._ready[query_id]
        for plan, entry in enumerate(ready.entries):
            placed = placed_as(before, plan, self._shared)
            same = sorted(placed.items) == sorted(entry.items)
            if entry.plan.plan_id != before.plan_id or not same:
                continue
            if self._placement.occupy(query_id, placed):
                self._note(query_id, before)
                return True
        return False

    def _note(self, query_id: str, before: Assignment | None) -> None:
        placed = self._placement.at[query_id]
        entry = self._ready[query_id].entries[placed.plan]
        self._served[query_id] = assignment_of(query_id, entry, placed, before)
        self._waiting.pop(query_id, None)

    def _drop(self, query_id: str) -> None:
        if self._served.pop(query_id, None) is not None:
            self._placement.lift(query_id)
        for by_query in (self._ready, self._waiting, self._quota_of):
            by_query.pop(query_id, None)

    def _fill_after(self, before: Assignment | None) -> None:
        if before is not None:
            self._fill({s.tier for s in before.machines})

    def _fill(self, tiers: set[str]) -> None:
        """Serve whoever fits now that there is more room on some tiers (or under a quota)."""
        if not self._admits:
            return
        freed = {t for t, tier in enumerate(self._shared) if tier.name in tiers}
        room = [free.largest for free in self._placement.free]

        def hopeful(query: str) -> bool:  # items of a plan fit one by one
            return any(
                all(parts <= room[t] for t, parts in entry.items)
                and any(t in freed for t, _ in entry.items)
                for entry in self._ready[query].entries
            )

        def rank(query: str) -> tuple[int, float, str]:
            ready = self._ready[query]
            return -ready.candidate.priority, -ready.rate * self._growth(query), query

        for query_id in sorted(filter(hopeful, self._waiting), key=rank):
            self._admit(query_id)


Numbering = Mapping[str, tuple[tuple[str, int], ...]]
"""Tier with types -> (type, how many machines) in the order of their numbers."""


def numbering(tiers: Iterable[Tier]) -> Numbering:
    """Return how the machines of those tiers are numbered that have types."""
    typed = (tier for tier in tiers if tier.types)
    return {t.name: tuple((each.name, each.machines) for each in t.types) for t in typed}


def renumbered(
    running: Mapping[str, Assignment], before: Numbering, after: Numbering
) -> dict[str, Assignment]:
    """Return what runs, by query, by the numbers that its machines have after a change.

    A machine that is gone, the last of its type going first, gets the number of no machine.
    """
    if before == after:
        return dict(running)
    return {
        query: replace(a, machines=tuple(_slice(each, before, after) for each in a.machines))
        for query, a in running.items()
    }


def _slice(at: Slice, before: Numbering, after: Numbering) -> Slice:
    if at.tier not in after:
        return at
    first, beyond = 0, sum(count for _, count in after[at.tier])
    position = _within(at.machine, before.get(at.tier, ()))
    for name, count in after[at.tier]:
        if position is not None and name == position[0] and position[1] < count:
            return at._replace(machine=first + position[1])
        first += count
    return at._replace(machine=beyond + at.machine)


def _within(machine: int, types: tuple[tuple[str, int], ...]) -> tuple[str, int] | None:
    """Return the type of a machine, and its number among those of the type; None: it is gone."""
    for name, count in types:
        if machine < count:
            return name, machine
        machine -= count
    return None
