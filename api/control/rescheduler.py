"""Keeps the schedule up as queries, machines and waiting times change.

Ticked by the service, it looks at what is stored, lets `scheduler.rolling.scheduler` decide, in a
thread so that requests go on meanwhile, and stores the schedule.
`api.control.reconciler` makes what runs follow. Every step can be repeated: a new start begins
from the stored schedule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from circinus.api.event_log import event
from circinus.api.phases import QueryPhase
from circinus.api.store.records import DisplacedRecord, InForce
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import retire_expired
from circinus.api.use_cases.scheduling import LiveQuery, Target, problem_of, running_on
from circinus.pipelines.infrastructure import Infrastructure
from circinus.scheduler.rolling.renumbering import numbering
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Step, Times

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Rescheduler:
    """Keeps `target`, what should run, up to date; None before the first look. Of one loop."""

    parts: ServiceParts
    target: Target | None = field(default=None, init=False)
    _live: dict[str, LiveQuery] = field(default_factory=dict, init=False)
    _machines: dict[str, int] = field(default_factory=dict, init=False)
    _infrastructure: Infrastructure = field(init=False)  # with the machines of the last look
    _rolling: RollingSchedule | None = field(default=None, init=False)

    async def tick(self) -> None:
        """Look once, off the event loop; reschedule if anything changed or a claim is due."""
        try:
            target = await asyncio.to_thread(self._look)
        except Exception:
            self._rolling = None  # begin anew from what is stored
            raise
        if target is not None:
            self.target = target

    def _look(self) -> Target | None:
        now = self.parts.clock.timestamp()
        store = self.parts.store
        timed = sorted(query_id for query_id, query in self._live.items() if query.timed)
        for query_id in retire_expired(store, map(store.query, timed), now=now):
            event(_LOG, "query.expired", query_id=query_id)
        live = store.live()
        infrastructure = self.parts.capacity.now()
        if self._rolling is None:
            return self._begin(live, infrastructure, now)
        events = self._events(live, infrastructure)
        if events == Events() and not self._rolling.due(now):
            return None
        return self._put_in_force(self._rolling, self._rolling.change(events, now), now)

    def _begin(self, ids: Iterable[str], infrastructure: Infrastructure, now: float) -> Target:
        self._live = {query_id: LiveQuery.of(self.parts.store, query_id) for query_id in ids}
        _, before = self.parts.store.schedules.read()
        live = tuple(self._live.values())
        running = running_on(infrastructure, before)
        problem = problem_of(live, infrastructure, running, self.parts.quotas)
        times = Times(since=before.since, overdue=frozenset(before.overdue))
        rolling = RollingSchedule(problem, times, self.parts.upkeep, now)
        self._machines, self._infrastructure = _shared(infrastructure), infrastructure
        target = self._put_in_force(rolling, rolling.last, now)
        self._rolling = rolling
        return target

    def _events(self, live: Mapping[str, int], infrastructure: Infrastructure) -> Events:
        """Give what changed since the last look, and take it in."""
        # With other plans a query leaves and arrives in one step: what runs goes on meanwhile.
        leaving = tuple(q for q, known in self._live.items() if live.get(q) != known.revision)
        for query_id in leaving:
            del self._live[query_id]
        arriving = {q: LiveQuery.of(self.parts.store, q) for q in live if q not in self._live}
        self._live |= arriving
        machines = _shared(infrastructure)
        changed = {t: n for t, n in machines.items() if n != self._machines[t]}
        self._machines, self._infrastructure = machines, infrastructure
        return Events(
            arriving=tuple(query.candidate for query in arriving.values()),
            leaving=leaving,
            machines=changed,
        )

    def _put_in_force(self, rolling: RollingSchedule, step: Step, now: float) -> Target:
        times = rolling.times
        # After a start everybody who waits is told: the last service may not have come to it.
        told = (
            () if self._rolling is None else self.parts.store.schedules.read()[1].schedule.waiting
        )
        self.parts.store.schedules.replace(
            InForce(
                schedule=step.schedule,
                made_at=now,
                machines=self._machines,
                types=numbering(self._infrastructure.tiers),
                since=times.since,
                overdue=tuple(sorted(times.overdue)),
            ),
            # a record for each query that caused a displacement
            tuple(
                DisplacedRecord(at=now, query_id=found.query_id, by=by, moved=found.moved)
                for found in step.displaced
                for by in (found.by or (None,))
            ),
        )
        words = {found.query_id: found.words for found in step.displaced}
        event(
            _LOG,
            "schedule.made",
            admitted=[assignment.query_id for assignment in step.schedule.assignments],
            waiting=list(step.schedule.waiting),
            displaced=list(words.values()),
            machines=self._machines,
            whole=step.whole,
        )
        for query_id, reason in step.schedule.waiting.items():
            if query_id in told and query_id not in words:
                continue  # it is told already that it waits; why, the schedule tells at any time
            message = " ".join(filter(None, (words.get(query_id), reason)))
            self.parts.store.move(query_id, QueryPhase.WAITING, at=now, message=message)
        return Target.of(self._live, step.schedule, self._infrastructure)


def _shared(infrastructure: Infrastructure) -> dict[str, int]:
    shared = (tier for tier in infrastructure.tiers if not tier.dedicated)
    return {name: pool.machines for tier in shared for name, pool in tier.pools.items()}
