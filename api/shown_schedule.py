"""The schedule in force as bytes to answer with, made once for each schedule.

Whoever watches a service asks for its schedule every second. How good it is takes a linear
program over all plans; that, and the text, are worked out when somebody first asks for a new
schedule and kept until the next one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from threading import Lock

from api.schedule_views import displaced_view, schedule_view, time_of
from api.service import Service
from api.services.capacity import with_machines
from api.services.in_force import InForce
from api.services.preview import assess
from scheduler.problem import Problem

LATEST = 50
"""Displacements shown."""


@dataclass(slots=True)
class ShownSchedule:
    """Renders the schedule of a service. Safe to share between threads.

    Attributes:
        service: Whose.
    """

    service: Service
    _made: tuple[int, bytes] | None = field(default=None, init=False)
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def read(self) -> tuple[int, bytes]:
        """Give the schedule's revision and its JSON."""
        with self._one_at_a_time:
            revision, in_force = self.service.in_force.read()
            if self._made is None or self._made[0] != revision:
                self._made = (revision, self._render(revision, in_force))
            return self._made

    def _render(self, revision: int, in_force: InForce) -> bytes:
        parts = self.service.parts
        infrastructure = with_machines(parts.infrastructure, in_force.machines)
        problem = replace(self.service.problem(), tiers=infrastructure.tiers)
        view = schedule_view(
            in_force.schedule,
            infrastructure,
            assess(_asked(problem, in_force), in_force.schedule),
            in_force.since,
        )
        lately = parts.schedules.displaced(limit=LATEST)
        told = {
            "displaced": [displaced_view(record) for record in lately],
            "revision": revision,
            "made_at": time_of(in_force.made_at) if revision else None,
        }
        return view.model_copy(update=told).model_dump_json().encode()


def _asked(problem: Problem, in_force: InForce) -> Problem:
    """Leave out who came after the schedule was made."""
    schedule = in_force.schedule
    known = schedule.by_query.keys() | schedule.waiting.keys()
    candidates = tuple(c for c in problem.candidates if c.query_id in known)
    return replace(problem, candidates=candidates)
