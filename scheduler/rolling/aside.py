"""Sets queries aside with which a policy fails, so that the others are scheduled.

Numbers have ranges in which policies work (`scheduler.problem`), so that this is for what nobody
foresaw. The one rule: a query is to blame if the policy fails with it and not without it, beside
those that came before it. A policy that can do with none of them is itself to blame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from circinus.scheduler.problem import Candidate, Problem, Schedule

Made = Callable[[Problem], Schedule]
"""Returns a valid schedule of a problem, or fails."""


def scheduled(problem: Problem, made: Made) -> Schedule:
    """Return the schedule of a problem, without the queries with which it cannot be made.

    Where one cannot, halves are tried, and halves of them: of n queries each that is to blame
    costs 2 log2(n) schedules. What was raised is raised again if nobody is left.
    """
    try:
        return made(problem)
    except Exception:  # whatever a query does to a policy
        sieve = _Sieve(problem, made)
        sieve.add(problem.candidates)
        if sieve.schedule is None:
            raise
    return sieve.schedule.beside(sieve.aside)


@dataclass(slots=True)
class _Sieve:
    problem: Problem
    made: Made
    schedule: Schedule | None = None  # of those that were kept; None: nobody was
    aside: dict[str, str] = field(default_factory=dict)  # query -> why
    _kept: tuple[Candidate, ...] = ()

    def add(self, more: tuple[Candidate, ...]) -> None:
        """Keep those of some more queries that go with the ones that were kept."""
        together = (*self._kept, *more)
        try:
            self.schedule = self.made(replace(self.problem, candidates=together))
            self._kept = together
        except Exception as error:  # noqa: BLE001 - as above
            if len(more) > 1:
                self.add(more[: len(more) // 2])
                self.add(more[len(more) // 2 :])
            else:
                self.aside |= {c.query_id: f"{type(error).__name__}: {error}" for c in more}
