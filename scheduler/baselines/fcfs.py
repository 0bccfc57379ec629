"""First come, first served, each query with its own cheapest plan (Circinus 6.1, appendix F).

As YARN admits applications; nobody is held up by a query before it that does not fit,
which is the variant that is harder to beat. Linear in the number of queries.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.admission import admit, keep_running
from scheduler.baselines.cheapest import cheapest_only
from scheduler.compiled import Compiled
from scheduler.problem import Problem, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Fcfs:
    """A `SchedulingPolicy`: in the order of the problem's candidates."""

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
        compiled = Compiled.of(cheapest_only(problem))
        order = {c.query_id: i for i, c in enumerate(problem.candidates)}
        turns = sorted(
            range(len(compiled.queries)), key=lambda q: order[compiled.queries[q].query_id]
        )
        placement = compiled.placement()
        keep_running(compiled, placement, turns)  # one plan per query: plan q is query q's
        while admit(compiled, placement, turns):
            pass
        return compiled.schedule(placement)
