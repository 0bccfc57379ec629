"""The seam between whoever needs a schedule and how one is chosen."""

from __future__ import annotations

from typing import Protocol

from scheduler.problem import Problem, Schedule

SCHEDULING_POLICIES = ("priced", "greedy", "ilp", "fcfs", "local_best")
"""What settings and studies call them, the default first; see `scheduler.policies`."""


class SchedulingPolicy(Protocol):
    """Chooses which queries are served, with which of their plans, on which machines.

    A pure function of the problem: equal problems get equal schedules, whatever came before.
    Every schedule passes `scheduler.problem.validate`; a problem without any fitting plan gets
    a schedule in which everybody waits, not an error. Safe to share between threads.
    """

    def schedule(self, problem: Problem) -> Schedule:
        """Give a valid schedule that mentions every candidate once."""
