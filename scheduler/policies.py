"""Scheduling policies by the names that settings, studies and pages call them.

One rule: whoever wants a policy by name gets it here, so that what a study measures is what a
service runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pipelines import checks
from pipelines.clock import Clock, SystemClock
from scheduler.baselines.fcfs import Fcfs
from scheduler.baselines.local_best import LocalBest
from scheduler.greedy import Greedy, Ranking
from scheduler.ilp import Ilp, Objective
from scheduler.policy import SchedulingPolicy
from scheduler.priced import Migration, Priced
from scheduler.rental import Rental


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What policies are asked to do.

    Attributes:
        objective: Goodput of the machines there are, or cost of serving all.
        migration: Leave to move what runs, for `priced` (the others never do); None: none.
        time_limit_s: Of `ilp`, for one schedule, `> 0`.
        clock: Of the time limits of the others.
    """

    objective: Objective = Objective.GOODPUT
    migration: Migration | None = None
    time_limit_s: float = 60.0
    clock: Clock = field(default_factory=SystemClock)


def scheduling_policy(name: str, terms: Terms) -> SchedulingPolicy:
    """Give the policy of a name.

    Raises:
        InvalidInput: If there is none of that name.
    """
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
    "fcfs": lambda terms: Fcfs(),
    "local_best": lambda terms: LocalBest(ranking=_ranking(terms)),
}
