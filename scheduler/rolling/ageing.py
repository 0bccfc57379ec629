"""Sees to it that nobody waits for ever, whatever the policy.

Three means, as a change of the problem that a policy is asked:

- *weight*: a waiting query's weight grows with its waiting time (Circinus 4.3);
- *claims by priority*: a waiting query may take the place of running ones of lower priority;
- *claims by age*: a query that has waited `limit_s` is overdue. Overdue queries may take the
  place of any running query, the longest waiting first, and no younger claim is met before
  an older one. Who got in that way keeps its place for a turn against other overdue ones.

The bound. Let there be n live queries, each with a plan that fits the empty machines (and
its tenant's whole quota), a reschedule at least every r seconds, and machines that stay.
Then nobody waits longer than

    limit_s + n * (turn_s + r).

Proof: once overdue, only queries that have waited longer come before it, at most n - 1.
The first in line meets, at the next reschedule, either unprotected queries, which make
way, or protected ones, whose turns all end within turn_s, while no new turn is given
(younger claims wait). So each place in line takes at most turn_s + r. Whoever is put out
starts to wait anew, behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from circinus.pipelines import checks
from circinus.scheduler.problem import Problem
from circinus.scheduler.rolling.preemption import Claim, make_way


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

    def growth(self, waited_s: float) -> float:
        """Give what the weight of a query that waits is multiplied by."""
        return 1 + waited_s / self.growth_s

    def longest_wait_s(self, queries: int, interval_s: float) -> float:
        """Give the bound on waiting among so many live queries; see the module."""
        return self.limit_s + queries * (self.turn_s + interval_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How long a live query has been as it is."""

    since_s: float  # seconds since it was served or put out last, or came
    overdue_entry: bool = False  # whether it is served because it was overdue

    def __post_init__(self) -> None:
        checks.non_negative("since_s", self.since_s)


def overdue(
    problem: Problem, standings: Mapping[str, Standing], ageing: Ageing
) -> tuple[str, ...]:
    """Give the waiting queries that have waited too long, the longest first."""
    late = [
        (-standings[c.query_id].since_s, c.query_id)
        for c in problem.candidates
        if c.query_id not in problem.running
        and c.query_id in standings
        and standings[c.query_id].since_s >= ageing.limit_s
    ]
    return tuple(query for _, query in sorted(late))


def aged(problem: Problem, standings: Mapping[str, Standing], ageing: Ageing) -> Problem:
    """Give the problem as waiting, priorities and claims change it.

    A candidate without a standing has just come.
    """
    late = overdue(problem, standings, ageing)
    safe = {
        q
        for q, standing in standings.items()
        if standing.overdue_entry and standing.since_s < ageing.turn_s
    }
    claims = [Claim(query_id=q, over=frozenset(problem.running.keys() - safe)) for q in late]
    way = make_way(problem, claims, in_turn=True)
    entered = way.running.keys() - problem.running.keys()
    way = make_way(way, _by_priority(way, safe | entered), in_turn=False)
    top = 1 + max((c.priority for c in problem.candidates), default=0)
    candidates = []
    for c in problem.candidates:
        if c.query_id in entered:
            candidates.append(replace(c, priority=top))
        elif c.query_id in standings and c.query_id not in problem.running:
            waited = standings[c.query_id].since_s
            candidates.append(replace(c, weight=c.weight * ageing.growth(waited)))
        else:
            candidates.append(c)
    return replace(way, candidates=tuple(candidates))


def _by_priority(problem: Problem, safe: set[str]) -> list[Claim]:
    priority = {c.query_id: c.priority for c in problem.candidates}
    waiting = [c for c in problem.candidates if c.query_id not in problem.running]
    waiting.sort(key=lambda c: (-c.priority, -c.weight, c.query_id))
    claims = []
    for c in waiting:
        below = {q for q in problem.running if priority.get(q, c.priority) < c.priority}
        if below - safe:
            claims.append(Claim(query_id=c.query_id, over=frozenset(below - safe)))
    return claims
