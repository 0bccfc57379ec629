"""The store of schedules in a relational database, beside that of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine, delete, or_, select

from api.store.records import JsonObject
from api.store.schedule_store import DisplacedRecord
from api.store.sessions import reading, writing
from api.store.tables import DisplacementRow, MachinesRow, ScheduleRow

_IN_FORCE = 1


class SqlScheduleStore:
    """A `ScheduleStore` on an engine whose tables exist (see `api.store.migrate`)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def schedule(self) -> JsonObject | None:
        """See `ScheduleStore.schedule`."""
        with reading(self._engine) as session:
            row = session.get(ScheduleRow, _IN_FORCE)
            return None if row is None else row.schedule

    def revision(self) -> int:
        """See `ScheduleStore.revision`."""
        wanted = select(ScheduleRow.revision).where(ScheduleRow.id == _IN_FORCE)
        with reading(self._engine) as session:
            return session.scalar(wanted) or 0

    def set_schedule(
        self, schedule: JsonObject, *, at: float, displaced: Sequence[DisplacedRecord] = ()
    ) -> None:
        """See `ScheduleStore.set_schedule`."""
        with writing(self._engine) as session:
            row = session.get(ScheduleRow, _IN_FORCE, with_for_update=True)
            if row is None:
                row = ScheduleRow(id=_IN_FORCE, revision=0)
                session.add(row)
            row.schedule, row.at, row.revision = dict(schedule), at, row.revision + 1
            session.add_all(
                DisplacementRow(at=d.at, query_id=d.query_id, by=d.by, moved=d.moved)
                for d in displaced
            )

    def displaced(self, *, limit: int, query_id: str | None = None) -> tuple[DisplacedRecord, ...]:
        """See `ScheduleStore.displaced`."""
        wanted = select(DisplacementRow).order_by(DisplacementRow.serial.desc()).limit(limit)
        if query_id is not None:
            mine = or_(DisplacementRow.query_id == query_id, DisplacementRow.by == query_id)
            wanted = wanted.where(mine)
        with reading(self._engine) as session:
            return tuple(
                DisplacedRecord(at=row.at, query_id=row.query_id, by=row.by, moved=row.moved)
                for row in session.scalars(wanted)
            )

    def machines(self) -> dict[str, int]:
        """See `ScheduleStore.machines`."""
        with reading(self._engine) as session:
            return {row.tier: row.machines for row in session.scalars(select(MachinesRow))}

    def set_machines(self, machines: Mapping[str, int | None], *, at: float) -> None:
        """See `ScheduleStore.set_machines`."""
        with writing(self._engine) as session:
            for tier, count in machines.items():
                if count is None:
                    session.execute(delete(MachinesRow).where(MachinesRow.tier == tier))
                else:
                    session.merge(MachinesRow(tier=tier, machines=count, at=at))
