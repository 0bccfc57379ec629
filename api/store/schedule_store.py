"""The contract of the store of schedules: what runs where, on which machines, at whose expense."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from api.store.records import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplacedRecord:
    """One query that had to make way for another.

    Attributes:
        at: Seconds since the epoch.
        query_id: Who ran.
        by: Who came onto its machines; None: nobody, its machines or its plan are gone.
        moved: Whether it is served all the same, elsewhere or with another plan.
    """

    at: float
    query_id: str
    by: str | None
    moved: bool


class ScheduleStore(Protocol):
    """Keeps the schedule in force and the machines there are. Safe to share between threads.

    Values go in and come out by copy. What a method did is stored when it returns, and each does
    all or nothing.
    """

    def schedule(self) -> JsonObject | None:
        """Give the schedule in force; None before the first."""

    def revision(self) -> int:
        """Give how often the schedule was replaced; 0 before the first. Cheap."""

    def set_schedule(
        self, schedule: JsonObject, *, at: float, displaced: Sequence[DisplacedRecord] = ()
    ) -> None:
        """Replace the schedule in force, and note who was displaced by it."""

    def displaced(self, *, limit: int, query_id: str | None = None) -> tuple[DisplacedRecord, ...]:
        """Give who was displaced, the latest first.

        Args:
            limit: Most to give, `>= 1`.
            query_id: Only what that query suffered or caused; None: everybody.
        """

    def machines(self) -> dict[str, int]:
        """Give the number of machines of every tier for which it was set."""

    def set_machines(self, machines: Mapping[str, int | None], *, at: float) -> None:
        """Set the number of machines of some tiers; None: as if it had never been set."""
