"""Each query's locally best plan, then the best ratio first (Circinus 2.3, 4.3).

What planning every query on its own comes to: the choice among queries is as good as
greedy's, the choice among plans ignores that others compete for the same tier.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.baselines.cheapest import cheapest_only
from scheduler.greedy import Greedy, Ranking
from scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBest:
    """A `SchedulingPolicy`: greedy over the cheapest plan of every query."""

    ranking: Ranking = Ranking.DEMAND

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        return Greedy(ranking=self.ranking).schedule(cheapest_only(problem))
