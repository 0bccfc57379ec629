"""What runs where, on which machines, at whose expense: stored beside the queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from sqlalchemy import Engine, delete, or_, select

from circinus.api.schemas.events import EventKind
from circinus.api.store.engine import one_at_a_time, reading, rows, writing
from circinus.api.store.query_rows import pool_event
from circinus.api.store.records import (
    DisplacedRecord,
    InForce,
    NewEvent,
    from_document,
    record_of,
    to_document,
)
from circinus.api.store.tables import DisplacementRow, MachinesRow, ScheduleRow, tell

IN_FORCE = 1
"""Id of the row."""


REVISION = select(ScheduleRow.revision).where(ScheduleRow.id == IN_FORCE)


class ScheduleStore:
    """Stores the schedule in force and the present machines. Safe to share between threads.

    Arguments and results are copies. A method's change is stored when it returns, and is all or
    nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = (0, InForce())

    def read(self) -> tuple[int, InForce]:
        """Return how often the schedule was replaced, and itself; 0 and an empty one before that.

        Cheap: the document is read again only when there is another.
        """
        known = self._known
        with reading(self._engine) as session:
            revision = session.scalar(REVISION) or 0
            if revision != known[0]:
                row = session.get_one(ScheduleRow, IN_FORCE)
                known = self._known = (row.revision, from_document(InForce, row.schedule))
        return known

    def revision(self) -> int:
        """Return how often the schedule was replaced."""
        with reading(self._engine) as session:
            return session.scalar(REVISION) or 0

    def replace(self, new: InForce, displaced: Sequence[DisplacedRecord] = ()) -> int:
        """Put another schedule in force, and record its displacements; return its number."""
        with writing(self._engine) as session:
            one_at_a_time(session, "schedules")
            row = session.get(ScheduleRow, IN_FORCE, with_for_update=True)
            if row is None:
                row = ScheduleRow(id=IN_FORCE, revision=0)
                session.add(row)
            before = self._before(row)
            row.schedule, row.at, row.revision = to_document(new), new.made_at, row.revision + 1
            session.add_all(DisplacementRow(**asdict(record)) for record in displaced)
            if changed := _changes(before, new, displaced):
                tell(session, _schedule_event(row.revision, changed, new.made_at))
            tell(session, *_pool_events(before, new))
            return row.revision

    def _before(self, row: ScheduleRow) -> InForce:
        known = self._known
        if row.revision in (0, known[0]):
            return known[1] if row.revision else InForce()
        return from_document(InForce, row.schedule)

    def displaced(self, *, limit: int, query_id: str | None = None) -> tuple[DisplacedRecord, ...]:
        """Return the `limit` latest who were displaced, the latest first.

        With a `query_id` only what that query suffered or caused.
        """
        wanted = select(DisplacementRow).order_by(DisplacementRow.serial.desc()).limit(limit)
        if query_id is not None:
            mine = or_(DisplacementRow.query_id == query_id, DisplacementRow.by == query_id)
            wanted = wanted.where(mine)
        return tuple(record_of(DisplacedRecord, row) for row in rows(self._engine, wanted))

    def machines(self) -> dict[str, int]:
        """Return the number of machines of every tier or `TIER/TYPE` for which it was set."""
        return {row.tier: row.machines for row in rows(self._engine, select(MachinesRow))}

    def try_writing(self) -> None:
        """Store something and remove it again; DatabaseFailed if nothing can be stored."""
        nobodys = MachinesRow(tier="", machines=0, at=0.0)  # no tier has such a name
        with writing(self._engine) as session:
            session.add(nobodys)
            session.flush()
            session.delete(nobodys)

    def set_machines(self, machines: Mapping[str, int | None], *, at: float) -> None:
        """Set the number of machines of some tiers; None: as if it had never been set."""
        with writing(self._engine) as session:
            one_at_a_time(session, "machines")
            there = {row.tier: row.machines for row in session.scalars(select(MachinesRow))}
            changed = {t: n for t, n in machines.items() if n != there.get(t)}
            if changed:
                tell(session, _machines_event(changed, at))
            for tier, count in changed.items():
                if count is None:
                    session.execute(delete(MachinesRow).where(MachinesRow.tier == tier))
                else:
                    session.merge(MachinesRow(tier=tier, machines=count, at=at))


def _changes(
    before: InForce, now: InForce, displaced: Sequence[DisplacedRecord]
) -> dict[str, dict[str, object]]:
    """Return what another schedule changes, by query.

    A new reason of a query that still waits is no change. It is in the schedule at any time, and
    its figures move with every other query.
    """
    changed: dict[str, dict[str, object]] = {}
    old, new = before.schedule, now.schedule
    for query_id, serves in new.by_query.items():
        extras = len(now.extras.get(query_id, ()))
        same = old.by_query.get(query_id) == serves
        if not same or extras != len(before.extras.get(query_id, ())):
            tiers = sorted({piece.tier for piece in serves.machines})
            served = {"state": "served", "plan_id": serves.plan_id, "tiers": tiers}
            changed[query_id] = {**served, "extras": extras}
    for query_id, why in new.waiting.items():
        if query_id not in old.waiting:
            by = sorted({r.by for r in displaced if r.query_id == query_id and r.by is not None})
            changed[query_id] = {"state": "waits", "why": why, "displaced_by": by}
    gone = (old.by_query.keys() | old.waiting.keys()) - new.by_query.keys() - new.waiting.keys()
    return changed | {query_id: {"state": "gone"} for query_id in sorted(gone)}


def _pool_events(before: InForce, now: InForce) -> Iterator[NewEvent]:
    """Yield an event for each pool that was placed, or is lacking since this schedule."""
    for query_id, pool in now.pools.items():
        if before.pools.get(query_id) != pool:
            yield pool_event(query_id, "placed", now.made_at, pool)
    for query_id, why in now.lacking.items():
        if query_id not in before.lacking:
            yield pool_event(query_id, "lacking", now.made_at, {}, why)


def _schedule_event(
    revision: int, changed: Mapping[str, Mapping[str, object]], at: float
) -> NewEvent:
    counts = Counter(str(served["state"]) for served in changed.values())
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    one = f" ({next(iter(changed))})" if len(changed) == 1 else ""
    return NewEvent(
        kind=EventKind.SCHEDULE,
        at=at,
        words=f"schedule {revision} changes queries: {words}{one}",
        data={"revision": revision, "queries": changed},
    )


def _machines_event(changed: Mapping[str, int | None], at: float) -> NewEvent:
    words = ", ".join(
        f"{tier} has {'as many machines as stated' if count is None else f'{count} machines'}"
        for tier, count in changed.items()
    )
    data = {"machines": dict(changed)}
    return NewEvent(kind=EventKind.MACHINES, at=at, words=words, data=data)
