"""The schedule in force, with what was known when it was made: stored whole, shown as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

from api.documents import from_document, to_document
from api.store.schedule_store import DisplacedRecord, ScheduleStore
from scheduler.problem import Schedule

NOTHING = Schedule(assignments=(), waiting={}, utilisation={})


@dataclass(frozen=True, slots=True, kw_only=True)
class InForce:
    """A schedule and how it came about.

    Attributes:
        schedule: Who runs where, who waits and why.
        made_at: Seconds since the epoch; 0 before the first.
        machines: Tier -> how many machines there were.
        since: Live query -> seconds since the epoch at which it was served or put out last, or
            came.
        overdue: Queries served because they had waited too long, whose turn is not over.
    """

    schedule: Schedule = NOTHING
    made_at: float = 0.0
    machines: Mapping[str, int] = field(default_factory=dict)
    since: Mapping[str, float] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()


@dataclass(slots=True)
class ScheduleInForce:
    """The stored schedule, read again only when it was replaced. Safe to share between threads.

    Attributes:
        store: Where it is.
    """

    store: ScheduleStore
    _known: tuple[int, InForce] = field(default=(0, InForce()), init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def read(self) -> tuple[int, InForce]:
        """Give its revision and itself; revision 0 and an empty one before the first."""
        revision = self.store.revision()
        with self._lock:
            if revision == self._known[0]:
                return self._known
        stored = self.store.schedule()
        found = (revision, InForce() if stored is None else from_document(InForce, stored))
        with self._lock:
            # Replaced between the two reads, the document is newer than its number: the next
            # look reads it once more, none shows an older one for a newer.
            self._known = found
        return found

    def replace(self, new: InForce, displaced: tuple[DisplacedRecord, ...] = ()) -> None:
        """Put another one in force, and note who was displaced by it."""
        self.store.set_schedule(to_document(new), at=new.made_at, displaced=displaced)
