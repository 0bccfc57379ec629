"""Which queries have their pools, from one change of a live schedule to the next.

The one rule: a query gives up what it has only for its pool, when it asks for none any more, or
when machines of its pool are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from circinus.scheduler.problem import Candidate, Problem
from circinus.scheduler.rolling.live import LiveSchedule
from circinus.scheduler.rolling.pooling import (
    NO_POOL,
    ChosenPool,
    InvalidPool,
    NoRoom,
    bound,
    has_pool,
    pooled,
    with_slices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolOutcomes:
    """How it stands with the pools after a change."""

    pools: Mapping[str, ChosenPool] = field(default_factory=dict)  # that queries have
    no_room: Mapping[str, str] = field(default_factory=dict)  # query -> what is missing, in words
    invalid: Mapping[str, str] = field(default_factory=dict)  # query -> why it is forgotten
    changed: frozenset[str] = frozenset()  # queries that changed places for their pools


class Pooling:
    """Pools that queries should have, and those that they have."""

    def __init__(self, pools: Mapping[str, ChosenPool]) -> None:
        self._wanted = dict(pools)
        self._has: dict[str, ChosenPool] = {}
        self._plain: dict[str, Candidate] = {}  # who has a pool, as it was before
        self.outcomes = PoolOutcomes()

    @property
    def held(self) -> frozenset[str]:
        """The queries that have their pools."""
        return frozenset(self._has)

    def began(self, problem: Problem) -> Problem:
        """Return a problem with those bound to their pools who run on them."""
        changed, bound_ids = bound(problem, self._wanted)
        self._plain = {c.query_id: c for c in problem.candidates if c.query_id in bound_ids}
        self._has = {query_id: self._wanted[query_id] for query_id in bound_ids}
        return changed

    def want(self, pools: Mapping[str, ChosenPool]) -> None:
        """Take note of the pools that queries should have from now on, all of them."""
        self._wanted = dict(pools)

    def left(self, query_id: str) -> None:
        """Take note that a query is gone, or comes again with other plans."""
        self._has.pop(query_id, None)
        self._plain.pop(query_id, None)

    def release(self, live: LiveSchedule) -> None:
        """Begin a change: let queries whose pools are lost compete as they were before."""
        self.outcomes = PoolOutcomes()
        if self._has:
            self._let_go(live)

    def settle(self, live: LiveSchedule) -> bool:
        """Assign queries their pools where there is room; return whether the schedule changed.

        `outcomes` are those of the change so far.
        Those of higher priority, then of more weight, come first.
        """
        if not self._wanted and not self._has:
            return False
        lost = self._let_go(live)
        no_room: dict[str, str] = {}
        invalid = dict(self.outcomes.invalid)
        changed = set()
        for candidate in self._by_worth(live):
            query_id = candidate.query_id
            outcome = self._change(live, candidate)
            match outcome:
                case NoRoom(why):
                    no_room[query_id] = why
                case InvalidPool(why):
                    invalid[query_id] = why
                    del self._wanted[query_id]
                case _:
                    changed.add(query_id)
        self.outcomes = PoolOutcomes(
            pools=dict(self._has),
            no_room=no_room,
            invalid=invalid,
            changed=self.outcomes.changed | changed,
        )
        return bool(lost or changed)

    def _let_go(self, live: LiveSchedule) -> list[str]:
        lost = self._lost(live.problem())
        for query_id in lost:
            plain = self._plain[query_id]
            self.left(query_id)
            if live.is_live(query_id):  # else it is set aside
                live.arrive(plain)
        return lost

    def _lost(self, problem: Problem) -> list[str]:
        """Return the queries that lost their pools, as machines of them are gone."""

        def has(query_id: str) -> bool:
            at, plain = problem.running.get(query_id), self._plain[query_id]
            return at is not None and has_pool(problem.tiers, plain, at, self._has[query_id])

        return [query_id for query_id in sorted(self._has) if not has(query_id)]

    def _by_worth(self, live: LiveSchedule) -> list[Candidate]:
        """Return the queries that should have another pool, the first in line first.

        Each as it was before it got one.
        """
        concerned = [
            self._plain.get(c.query_id, c)
            for c in live.problem().candidates
            if self._wanted.get(c.query_id, NO_POOL) != self._has.get(c.query_id, NO_POOL)
        ]
        return sorted(concerned, key=lambda c: (-c.priority, -c.weight, c.query_id))

    def _change(self, live: LiveSchedule, candidate: Candidate) -> NoRoom | InvalidPool | None:
        """Assign a query the pool that it should have, or its plan's own replicas again."""
        query_id, problem = candidate.query_id, live.problem()
        pool = self._wanted.get(query_id, NO_POOL)
        if query_id not in problem.running:
            return NoRoom("the query is not served")
        assignment = pooled(problem, tuple(problem.running.values()), candidate, pool)
        if pool == NO_POOL:
            self.left(query_id)
            if isinstance(assignment, NoRoom | InvalidPool) or not live.put(candidate, assignment):
                live.arrive(candidate)
            return None
        if isinstance(assignment, NoRoom | InvalidPool):
            return assignment
        if not live.put(with_slices(candidate, assignment), assignment):
            return NoRoom("its machines have no room")
        self._has[query_id], self._plain[query_id] = pool, candidate
        return None
