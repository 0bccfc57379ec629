"""The schedule in force, updated as queries, machines and waiting times change.

For `priced` one change is a small step (`scheduler.rolling.live`): it costs about as much as one
query and moves nobody who runs. A policy that is not for `small_steps` is asked whole at every
change, on what runs, so that nobody but the policy decides. The policy of small steps is asked
whole where these do not reach:

- at the start, and when a tenth of the live queries have come or gone since: prices of
  machines have changed by then;
- when somebody has a claim to what others hold (`scheduler.rolling.ageing`): it is overdue, or of
  higher priority than one that runs; then at once, and every `every_s` while claims stand,
  as turns end meanwhile.

So the bound of `scheduler.rolling.ageing` on waiting holds with r = `every_s`: what small steps
hand out between two whole schedules is no turn, and makes way for whoever is first in line.

The one rule: problems and schedules are independent of the time at which they are made,
so a course of events gives the same schedules whenever it is played.

Queries with which a policy fails are set aside, so that the others are scheduled. A query is to
blame if the policy fails with it and not without it, beside those before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from circinus.pipelines import checks
from circinus.pipelines.errors import CircinusError
from circinus.scheduler.problem import (
    Assignment,
    Candidate,
    Problem,
    Schedule,
    SchedulingPolicy,
    validate,
)
from circinus.scheduler.rolling.ageing import (
    Ageing,
    Preemption,
    Standing,
    aged,
    overdue,
    preemptions,
)
from circinus.scheduler.rolling.holding import Pooling
from circinus.scheduler.rolling.live import LiveSchedule, numbering, renumbered
from circinus.scheduler.rolling.pooling import ChosenPool, unmoved

_STALE = 0.1
"""Changes per live query after which the prices of machines are worked out anew."""


class WrongSchedule(CircinusError):
    """A policy gave a schedule that breaks rules; the one in force stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """How a schedule is updated."""

    policy: SchedulingPolicy  # asked for whole schedules, at every change unless for small steps
    ageing: Ageing = field(default_factory=Ageing)  # how waiting counts
    every_s: float = 60.0  # seconds between whole schedules while claims stand, `> 0`

    def __post_init__(self) -> None:
        checks.positive("every_s", self.every_s)

    def whole(
        self,
        problem: Problem,
        standings: Mapping[str, Standing],
        held: frozenset[str] = frozenset(),  # queries that stay where they run, see `bound`
    ) -> Schedule:
        """Return the policy's schedule of a problem, claims of the waiting met first.

        Queries with which it cannot be made are set aside, see `scheduler.rolling.scheduler`. If
        nobody is left, that is WrongSchedule where the policy gave one that breaks rules.
        """

        def made(some: Problem) -> Schedule:
            aged_problem = aged(some, standings, self.ageing, held)
            schedule = unmoved(aged_problem, self.policy.schedule(aged_problem), held)
            wrong = validate(aged_problem, schedule)
            if wrong:
                raise WrongSchedule(" ".join(wrong))
            return schedule

        return scheduled(problem, made)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Since when queries are as they are."""

    # query -> when it was served or put out last, or arrived; any clock
    since: Mapping[str, float] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()  # queries served because they were overdue

    def standings(self, queries: Iterable[str], now: float) -> dict[str, Standing]:
        """Return how long queries have been as they are; one that is not known has just come."""
        return {
            q: Standing(
                since_s=max(0.0, now - self.since.get(q, now)), overdue_entry=q in self.overdue
            )
            for q in queries
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """What changed since the last look."""

    arriving: tuple[Candidate, ...] = ()  # queries that arrived, oldest first
    leaving: tuple[str, ...] = ()  # live queries that are gone
    # shared tier, or type `TIER/TYPE`, -> machines that there are now; others are as they were
    machines: Mapping[str, int] = field(default_factory=dict)
    # the pools that queries should have now, all of them; None: as before
    pools: Mapping[str, ChosenPool] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a change led to."""

    schedule: Schedule  # in force from now on
    displaced: tuple[Preemption, ...]  # who ran before and was stopped or moved, and for whom
    whole: bool  # whether the whole policy was run
    pools: Mapping[str, ChosenPool] = field(default_factory=dict)  # that queries have
    # query -> what it lacks to have its pool, in words
    no_room: Mapping[str, str] = field(default_factory=dict)
    # query -> why its plan can never have its pool; it is forgotten
    invalid: Mapping[str, str] = field(default_factory=dict)


class RollingSchedule:
    """Live queries, where they run, who waits, and since when."""

    def __init__(
        self,
        problem: Problem,
        times: Times,
        upkeep: Upkeep,
        now: float,
        pools: Mapping[str, ChosenPool] | None = None,
    ) -> None:
        """Start with a whole schedule; `last` holds what it changed.

        Who runs on its pool goes on there. WrongSchedule if the policy gave a schedule that breaks
        rules.
        """
        self._upkeep = upkeep
        self._now = now
        self._since = {c.query_id: times.since.get(c.query_id, now) for c in problem.candidates}
        self._overdue = {q for q in times.overdue if q in problem.running}
        self._claims: frozenset[str] = frozenset()
        self._scheduled_at = now
        self._changes = 0
        self._before: dict[str, Assignment] = dict(problem.running)
        self._aside: dict[str, str] = {}  # of the live queries those set aside, and why
        self._pooling = Pooling(pools or {})
        self.last = self._whole(self._pooling.began(problem))

    @property
    def times(self) -> Times:
        """Since when live queries are as they are."""
        return Times(since=dict(self._since), overdue=frozenset(self._overdue))

    def problem(self) -> Problem:
        """Return the problem as it stands, without those who are set aside."""
        return self._live.problem()

    def due(self, now: float) -> bool:
        """Return whether claims ask for a whole schedule though nothing else changed. Cheap."""
        self._now = now
        claims = self._claimants()
        return bool(claims) and (
            claims != self._claims or now - self._scheduled_at >= self._upkeep.every_s
        )

    def change(self, events: Events, now: float) -> Step:
        """Take in what changed; return the schedule from now on.

        InvalidInput if a leaving query is not live, or a tier or type is not there; WrongSchedule
        if the policy gave a schedule that breaks rules.
        """
        self._now = now
        arriving = {candidate.query_id for candidate in events.arriving}
        for query_id in events.leaving:
            self._pooling.left(query_id)
            if self._aside.pop(query_id, None) is None:
                self._live.leave(query_id)
            if query_id in arriving:  # replanned: its place in the order of arrival stays
                self._since[query_id] = now
            else:
                self._since.pop(query_id, None)
            self._before.pop(query_id, None)
        numbered = numbering(self._live.problem().tiers) if events.machines else {}
        for pool, machines in events.machines.items():
            self._live.resize(pool, machines)
        if events.machines:
            now_numbered = numbering(self._live.problem().tiers)
            self._before = renumbered(self._before, numbered, now_numbered)
        for candidate in events.arriving:
            self._since.setdefault(candidate.query_id, now)
            self._live.arrive(candidate)
        if events.pools is not None:
            self._pooling.want(events.pools)
        self._changes += len(events.leaving) + len(events.arriving) + len(events.machines)
        self._pooling.release(self._live)
        stale = self._changes > _STALE * len(self._since)
        if not self._upkeep.policy.small_steps or stale or self._claimants():
            self.last = self._whole(self._live.problem())
        else:
            self._claims = frozenset()
            self._pooling.settle(self._live)
            self.last = self._step(self._live.schedule(), whole=False)
        return self.last

    def _whole(self, problem: Problem) -> Step:
        standings = self.times.standings(self._since, self._now)
        late = set(overdue(problem, standings, self._upkeep.ageing))
        schedule = self._scheduled(problem, standings, self._pooling.held)
        entered = frozenset(late & schedule.by_query.keys())
        self._overdue |= entered
        while self._pooling.settle(self._live):
            schedule = self._live.schedule()
            if self._upkeep.policy.small_steps:
                break
            held = self._pooling.held | entered
            schedule = self._scheduled(self._live.problem(), standings, held)
        step = self._step(schedule, whole=True)
        self._claims, self._scheduled_at, self._changes = self._claimants(), self._now, 0
        return step

    def _scheduled(
        self, problem: Problem, standings: Mapping[str, Standing], held: frozenset[str]
    ) -> Schedule:
        """Return the policy's schedule of a problem, queries by their arrival; go on from it."""
        by_id = {candidate.query_id: candidate for candidate in problem.candidates}
        in_order = tuple(by_id[query_id] for query_id in self._since if query_id in by_id)
        problem = replace(problem, candidates=in_order)
        policy = self._upkeep.policy
        schedule = self._upkeep.whole(problem, standings, held)
        self._aside |= {query: schedule.waiting[query] for query in schedule.aside}
        problem = problem.without(schedule.aside)
        self._live = LiveSchedule(problem, schedule, self._growth, admits=policy.small_steps)
        return schedule

    def _step(self, schedule: Schedule, *, whole: bool) -> Step:
        served = schedule.by_query
        problem = replace(self._live.problem(), running=self._before)
        for query_id in self._since:
            if (query_id in self._before) != (query_id in served):
                self._since[query_id] = self._now
        self._overdue &= served.keys()
        self._before = served
        waiting = {**schedule.waiting, **self._aside}
        schedule = replace(schedule, waiting=waiting, aside=tuple(self._aside))
        outcomes = self._pooling.outcomes
        # Who was moved onto its own pool, or off it, made way for nobody.
        moved = outcomes.changed & served.keys()
        displaced = tuple(p for p in preemptions(problem, schedule) if p.query_id not in moved)
        return Step(
            schedule=schedule,
            displaced=displaced,
            whole=whole,
            pools=outcomes.pools,
            no_room=outcomes.no_room,
            invalid=outcomes.invalid,
        )

    def _claimants(self) -> frozenset[str]:
        """Return who waits and is overdue, or of higher priority than somebody who runs."""
        waiting = self._live.waiting
        if not waiting:
            return frozenset()
        limit = self._upkeep.ageing.limit_s
        least = self._live.least_priority_served
        return frozenset(
            q
            for q in waiting
            if self._now - self._since[q] >= limit
            or (least is not None and self._live.priority(q) > least)
        )

    def _growth(self, query_id: str) -> float:
        waited_s = max(0.0, self._now - self._since.get(query_id, self._now))
        return self._upkeep.ageing.growth(waited_s)


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
    schedule: Schedule | None = None  # of the accepted ones; None: nobody was
    aside: dict[str, str] = field(default_factory=dict)  # query -> why
    _accepted: tuple[Candidate, ...] = ()

    def add(self, more: tuple[Candidate, ...]) -> None:
        """Accept those of some more queries that can be scheduled with the accepted ones."""
        together = (*self._accepted, *more)
        try:
            self.schedule = self.made(replace(self.problem, candidates=together))
            self._accepted = together
        except Exception as error:  # noqa: BLE001 - as above
            if len(more) > 1:
                self.add(more[: len(more) // 2])
                self.add(more[len(more) // 2 :])
            else:
                self.aside |= {c.query_id: f"{type(error).__name__}: {error}" for c in more}
