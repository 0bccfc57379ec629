"""Updates the schedule as queries, machines, waiting times and rates of requests change.

Ticked by the service, it looks at what is stored, lets `scheduler.rolling.scheduler` decide, in a
thread so that requests go on meanwhile, and stores the schedule.
`api.control.reconciler` makes what runs follow. Every step can be repeated: a new start begins
from the stored schedule.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from circinus.api.event_log import event, trouble
from circinus.api.phases import QueryPhase
from circinus.api.store.records import DisplacedRecord, InForce
from circinus.api.use_cases.capacity import limits_in_words, on_machines
from circinus.api.use_cases.parts import ServiceParts
from circinus.api.use_cases.queries import retire_expired
from circinus.api.use_cases.scheduling import (
    LiveQuery,
    ScaledTier,
    Target,
    live_queries,
    pools_of,
    problem_of,
    running_on,
)
from circinus.deploy.runtime.report import DeploymentReport
from circinus.pipelines.errors import Unavailable
from circinus.pipelines.model.infrastructure import Infrastructure
from circinus.scheduler.problem import Assignment, Schedule, Slice
from circinus.scheduler.rolling.live import numbering, renumbered
from circinus.scheduler.rolling.pooling import ChosenPool
from circinus.scheduler.rolling.replicas import (
    FollowedLoad,
    ReplicaSettings,
    followed,
    granted,
    load_for,
)
from circinus.scheduler.rolling.scheduler import Events, RollingSchedule, Step, Times

_LOG = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Rescheduler:
    """Updates `target`, what should run; None before the first look. Of one loop."""

    parts: ServiceParts
    # what requests got, by query, of those that serve
    reports: Callable[[], Awaitable[Mapping[str, DeploymentReport]]]
    replicas: ReplicaSettings = field(default_factory=ReplicaSettings)
    target: Target | None = field(default=None, init=False)
    _live: dict[str, LiveQuery] = field(default_factory=dict, init=False)
    # of live queries that cannot compete: (revision, why)
    _aside: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    _machines: dict[str, int] = field(default_factory=dict, init=False)
    _infrastructure: Infrastructure = field(init=False)  # with the machines of the last look
    _pools: dict[str, ChosenPool] = field(default_factory=dict, init=False)  # of live queries
    _rolling: RollingSchedule | None = field(default=None, init=False)
    _deadlines: dict[str, float] = field(default_factory=dict, init=False)  # of those with an end
    _revision: int = field(default=0, init=False)  # of the schedule that it stored
    _loads: dict[str, FollowedLoad] = field(default_factory=dict, init=False)  # of served queries
    _extras: dict[str, Assignment] = field(default_factory=dict, init=False)  # likewise

    async def tick(self) -> None:
        """Look once, off the event loop; reschedule if anything changed or a claim is due."""
        try:
            arrivals = {q: each.arrivals_per_s for q, each in (await self.reports()).items()}
        except Unavailable:  # nothing runs
            arrivals = {}
        try:
            target = await asyncio.to_thread(self._look, arrivals)
        except Exception:
            self._rolling = None  # begin anew from what is stored
            raise
        if target is not None:
            self.target = target

    def _look(self, arrivals_per_s: Mapping[str, float]) -> Target | None:
        now = self.parts.clock.timestamp()
        store = self.parts.store
        timed = sorted(query_id for query_id, query in self._live.items() if query.timed)
        serving = map(store.query, timed)
        for query_id in retire_expired(store, serving, self._deadlines, self.parts.clock):
            event(_LOG, "query.expired", query_id=query_id)
        live = store.live()
        infrastructure = self.parts.capacity.now()
        if store.schedules.read()[0] != self._revision:  # another service stored one
            self._rolling = None
        if self._rolling is None:
            return self._begin(live, infrastructure, now)
        aside = self._aside
        events = self._events(live, infrastructure)
        step = None
        if events != Events() or self._aside != aside or self._rolling.due(now):
            step = self._rolling.change(events, now)
        followed = self._follow(self._rolling, arrivals_per_s, now)
        if step is not None:
            return self._put_in_force(self._rolling, step, now)
        return self._put_extras_in_force(self._rolling) if followed else None

    def _begin(
        self, revisions: Mapping[str, int], infrastructure: Infrastructure, now: float
    ) -> Target:
        self._loads, self._extras, self._live, self._aside = {}, {}, {}, {}
        self._take_in(revisions)
        _, before = self.parts.store.schedules.read()
        live = tuple(self._live.values())
        running = running_on(infrastructure, before)
        terms = self.parts.quotas, self.parts.most_usd_per_hour
        problem = problem_of(live, infrastructure, running, *terms)
        times = Times(since=before.since, overdue=frozenset(before.overdue))
        self._pools = pools_of(self.parts.store.pools(), self._live)
        rolling = RollingSchedule(problem, times, self.parts.upkeep, now, self._pools)
        self._machines, self._infrastructure = _shared(infrastructure), infrastructure
        target = self._put_in_force(rolling, rolling.last, now)
        self._rolling = rolling
        return target

    def _events(self, live: Mapping[str, int], infrastructure: Infrastructure) -> Events:
        """Return what changed since the last look, and take it in."""
        # With other plans a query leaves and arrives in one step: its deployment serves meanwhile.
        leaving = tuple(q for q, known in self._live.items() if live.get(q) != known.revision)
        for query_id in leaving:
            del self._live[query_id]
        self._aside = {q: known for q, known in self._aside.items() if live.get(q) == known[0]}
        arriving = self._take_in(live)
        machines = _shared(infrastructure)
        changed = {t: n for t, n in machines.items() if n != self._machines[t]}
        now = numbering(infrastructure.tiers)
        self._extras = renumbered(self._extras, numbering(self._infrastructure.tiers), now)
        self._machines, self._infrastructure = machines, infrastructure
        pools = pools_of(self.parts.store.pools(), self._live)
        wanted, self._pools = None if pools == self._pools else pools, pools
        return Events(
            arriving=tuple(query.candidate for query in arriving.values()),
            leaving=leaving,
            machines=changed,
            pools=wanted,
        )

    def _take_in(self, revisions: Mapping[str, int]) -> dict[str, LiveQuery]:
        """Add the live queries that are not known yet; return those that compete."""
        unknown = (q for q in revisions if q not in self._live and q not in self._aside)
        arriving, aside = live_queries(self.parts.store, unknown, self.parts.infrastructure)
        self._live |= arriving
        self._aside = {**self._aside, **{q: (revisions[q], why) for q, why in aside.items()}}
        return arriving

    def _follow(
        self, rolling: RollingSchedule, arrivals_per_s: Mapping[str, float], now: float
    ) -> bool:
        """Fit extra replicas to the load and to free machines; return whether any changed."""
        served = rolling.last.schedule.by_query
        alone = served.keys() - rolling.last.pools.keys()  # a pool is what was chosen, not more
        requested = {q: n for q, n in self.parts.store.replicas().items() if q in alone}
        follow = {q for q in alone if q in arrivals_per_s and q not in requested}
        rates = {q: self._live[q].planned_per_s(served[q].plan_id) for q in follow}
        observed = {q: arrivals_per_s[q] / rate for q, rate in rates.items() if rate is not None}
        self._loads = followed(self._loads, observed, now, self.replicas)
        before = self._extras
        loads = {q: load.in_force for q, load in self._loads.items() if load.in_force > 1}
        loads |= self._loads_for(requested, served)
        if loads or before:
            self._extras = granted(
                rolling.problem(),
                rolling.last.schedule.assignments,
                loads,
                before,
                {q: self._live[q].most_usd_per_hour(served[q].plan_id) for q in loads},
            )
        return self._extras != before

    def _loads_for(
        self, requested: Mapping[str, int], served: Mapping[str, Assignment]
    ) -> dict[str, float]:
        """Return the loads at which queries need as many replicas as were requested."""
        plans = {q: self._live[q].plans[served[q].plan_id] for q in requested}
        scaled = {q: ScaledTier.of(plan, self._infrastructure) for q, plan in plans.items()}
        loads = {q: load_for(requested[q], at.own) for q, at in scaled.items() if at is not None}
        return {q: load for q, load in loads.items() if load > 1}

    def _put_extras_in_force(self, rolling: RollingSchedule) -> Target:
        _, in_force = self.parts.store.schedules.read()
        extras = replace(in_force, extras=self._extra_slices())
        self._revision = self.parts.store.schedules.replace(extras)
        counts = {query: len(extra.machines) for query, extra in self._extras.items()}
        event(_LOG, "replicas.followed", extras=counts)
        limits = limits_in_words(self._infrastructure)
        return self._target(rolling.last, on_machines(rolling.last.schedule, limits))

    def _target(self, step: Step, schedule: Schedule) -> Target:
        return Target.of(self._live, schedule, self._infrastructure, self._extras, step.pools)

    def _extra_slices(self) -> dict[str, tuple[Slice, ...]]:
        return {query: extra.machines for query, extra in self._extras.items()}

    def _put_in_force(self, rolling: RollingSchedule, step: Step, now: float) -> Target:
        times = rolling.times
        limits = limits_in_words(self._infrastructure)
        made = on_machines(step.schedule, limits)
        schedule = made.beside({query: why for query, (_, why) in self._aside.items()})
        # After a start every waiting query gets the event: the last service may have died before.
        waiting_before = (
            () if self._rolling is None else self.parts.store.schedules.read()[1].schedule.waiting
        )
        self._revision = self.parts.store.schedules.replace(
            InForce(
                schedule=schedule,
                made_at=now,
                machines=self._machines,
                types=numbering(self._infrastructure.tiers),
                since=times.since,
                overdue=tuple(sorted(times.overdue)),
                extras=self._extra_slices(),
                pools={query: pool.slices for query, pool in step.pools.items()},
                lacking=step.no_room,
            ),
            # a record for each query that caused a displacement
            tuple(
                DisplacedRecord(at=now, query_id=entry.query_id, by=by, moved=entry.moved)
                for entry in step.displaced
                for by in (entry.by or (None,))
            ),
        )
        for query_id, why in step.invalid.items():
            only = self._pools.pop(query_id).slices
            self.parts.store.drop_pool(query_id, at=now, why=why, only=only)
        words = {entry.query_id: entry.words for entry in step.displaced}
        event(
            _LOG,
            "schedule.made",
            admitted=[assignment.query_id for assignment in schedule.assignments],
            waiting=list(schedule.waiting),
            displaced=list(words.values()),
            machines=self._machines,
            whole=step.whole,
        )
        for query_id in schedule.aside:
            if query_id not in waiting_before:
                trouble(_LOG, "query.set_aside", query_id=query_id, why=schedule.waiting[query_id])
        for query_id, reason in schedule.waiting.items():
            if query_id in waiting_before and query_id not in words:
                continue  # its event is stored already; the reason is in the schedule at any time
            message = " ".join(filter(None, (words.get(query_id), reason)))
            self.parts.store.move(query_id, QueryPhase.WAITING, at=now, message=message)
        return self._target(step, schedule)


def _shared(infrastructure: Infrastructure) -> dict[str, int]:
    shared = (tier for tier in infrastructure.tiers if not tier.dedicated)
    return {name: pool.machines for tier in shared for name, pool in tier.pools.items()}
