"""What runs where, on which machines, at whose expense: stored beside the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Engine, delete, or_, select

from circinus.api.store.engine import reading, writing
from circinus.api.store.records import DisplacedRecord, JsonObject
from circinus.api.store.tables import DisplacementRow, MachinesRow, ScheduleRow

_IN_FORCE = 1


class ScheduleStore:
    """Keeps the schedule in force and the machines there are. Safe to share between threads.

    Values go in and come out by copy. What a method did is stored when it returns, and each does
    all or nothing.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def schedule(self) -> JsonObject | None:
        """Give the schedule in force; None before the first."""
        with reading(self._engine) as session:
            row = session.get(ScheduleRow, _IN_FORCE)
            return None if row is None else row.schedule

    def revision(self) -> int:
        """Give how often the schedule was replaced; 0 before the first. Cheap."""
        wanted = select(ScheduleRow.revision).where(ScheduleRow.id == _IN_FORCE)
        with reading(self._engine) as session:
            return session.scalar(wanted) or 0

    def set_schedule(
        self, schedule: JsonObject, *, at: float, displaced: Sequence[DisplacedRecord] = ()
    ) -> None:
        """Replace the schedule in force, and note who was displaced by it."""
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
        """Give who was displaced, the latest first.

        Args:
            limit: Most to give, `>= 1`.
            query_id: Only what that query suffered or caused; None: everybody.
        """
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
        """Give the number of machines of every tier for which it was set."""
        with reading(self._engine) as session:
            return {row.tier: row.machines for row in session.scalars(select(MachinesRow))}

    def set_machines(self, machines: Mapping[str, int | None], *, at: float) -> None:
        """Set the number of machines of some tiers; None: as if it had never been set."""
        with writing(self._engine) as session:
            for tier, count in machines.items():
                if count is None:
                    session.execute(delete(MachinesRow).where(MachinesRow.tier == tier))
                else:
                    session.merge(MachinesRow(tier=tier, machines=count, at=at))
