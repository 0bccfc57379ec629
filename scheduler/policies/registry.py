"""Scheduling policies by the names that settings, studies and pages call them.

One rule: whoever wants a policy by name gets it here, so that what a study measures is what a
service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from circinus.pipelines import checks
from circinus.pipelines.clock import Clock, SystemClock
from circinus.scheduler.ilp.model import Objective
from circinus.scheduler.ilp.policy import Ilp
from circinus.scheduler.policies.greedy import FcfsScheduling, Greedy, LocalBest, Ranking
from circinus.scheduler.policies.priced import Migration, Priced
from circinus.scheduler.policies.rental import Rental
from circinus.scheduler.problem import SchedulingPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What policies are asked to do."""

    # goodput of the machines there are, or cost of serving all
    objective: Objective = Objective.GOODPUT
    # leave to move what runs, for `priced` (the others never do); None: none
    migration: Migration | None = None
    time_limit_s: float = 60.0  # of `ilp`, for one schedule, `> 0`
    clock: Clock = field(default_factory=SystemClock)  # of the time limits of the others


def scheduling_policy(name: str, terms: Terms) -> SchedulingPolicy:
    """Return the policy of a name; InvalidInput if there is none of that name."""
    checks.among("scheduling_policy", name, _MADE)
    return _MADE[name](terms)


def _ranking(terms: Terms) -> Ranking:
    return Ranking.MONEY if terms.objective is Objective.COST else Ranking.DEMAND


def _priced(terms: Terms) -> SchedulingPolicy:
    if terms.objective is Objective.COST:
        return Rental(clock=terms.clock)
    return Priced(migration=terms.migration, clock=terms.clock)


_MADE: Mapping[str, Callable[[Terms], SchedulingPolicy]] = {
    "priced": _priced,
    "greedy": lambda terms: Greedy(ranking=_ranking(terms)),
    "ilp": lambda terms: Ilp(objective=terms.objective, time_limit_s=terms.time_limit_s),
    "fcfs": lambda terms: FcfsScheduling(),
    "local_best": lambda terms: LocalBest(ranking=_ranking(terms)),
}
