"""Events, in the order in which they were stored, and the trials of searches.

Writers add events in the same transaction, by `api.store.tables.tell`. The newest events are
retained; the trials of a search are stored as long as its query.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import cast

from sqlalchemy import CursorResult, Engine, Select, delete, func, select
from sqlalchemy.orm import Session

from circinus.api.schemas.events import EventKind, EventView
from circinus.api.schemas.progress import TrialView
from circinus.api.store.engine import reading, rows, writing
from circinus.api.store.query_rows import QueryRow
from circinus.api.store.records import NewEvent
from circinus.api.store.tables import EventRow, TrialRow, tell

MOST_EVENTS = 100_000
"""Events: some 60 MB, and days of a service that plans a query after the other."""


Kinds = Collection[EventKind] | None


class EventLog:
    """Reads events, oldest first. Safe to share between threads and processes.

    After an event is readable, no event with a smaller id is added; each stays readable until it
    is dropped.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def tell(self, *events: NewEvent) -> None:
        """Store events without other changes."""
        with writing(self._engine) as session:
            tell(session, *events)

    def latest(self) -> int:
        """Return the id of the newest event; 0 without any. Cheap."""
        with reading(self._engine) as session:
            return session.scalars(select(_NEWEST)).one()

    def since(
        self,
        after: int,
        limit: int,
        *,
        query_id: str | None = None,
        kinds: Kinds = None,
        until: int | None = None,
    ) -> tuple[EventView, ...]:
        """Return the first `limit` events between two ids; None: of any query or kind.

        An `until` of None is no bound.
        """
        wanted = _events(query_id, kinds).where(EventRow.serial > after)
        if until is not None:
            wanted = wanted.where(EventRow.serial <= until)
        stored = rows(self._engine, wanted.order_by(EventRow.serial).limit(limit))
        return tuple(row.view for row in stored)

    def of(
        self, query_id: str, *, kinds: Kinds = None, after: int = 0, limit: int = 1000
    ) -> tuple[EventView, ...]:
        """Return the first `limit` events of a query after an id, of some kinds; None: of any."""
        return self.since(after, limit, query_id=query_id, kinds=kinds)

    def newest(
        self, limit: int, *, until: int, query_id: str | None = None, kinds: Kinds = None
    ) -> tuple[EventView, ...]:
        """Return the last `limit` events up to an id, oldest first; None: of any query or kind."""
        wanted = _events(query_id, kinds).where(EventRow.serial <= until)
        stored = rows(self._engine, wanted.order_by(EventRow.serial.desc()).limit(limit))
        return tuple(row.view for row in reversed(stored))

    def is_dropped(self, after: int, query_id: str | None = None) -> bool:
        """Return whether any event after an id was dropped, of a query or at all.

        True also for an id beyond the newest event: it is of another database.
        """
        with reading(self._engine) as session:
            oldest, newest = _ends(session)
            if after > newest or query_id is None or after >= oldest - 1:
                return after > newest or after < oldest - 1
            # A query that was submitted since then has them all.
            first = select(EventRow.at).where(EventRow.query_id == query_id)
            first_at = session.scalar(first.order_by(EventRow.serial).limit(1))
            history = session.scalar(select(QueryRow.history).where(QueryRow.id == query_id))
            return history is None or first_at != history[0]["at"]

    def trials(self, query_id: str) -> tuple[TrialView, ...]:
        """Return the trials of the latest search of a query, the newest of each configuration.

        In the order in which they were stored; empty before it measured anything.
        """
        wanted = select(TrialRow.trial).where(TrialRow.query_id == query_id)
        stored = rows(self._engine, wanted.order_by(TrialRow.serial))
        return tuple(TrialView.model_validate(trial) for trial in stored)

    def drop_old(self, most: int = MOST_EVENTS) -> int:
        """Drop all but so many of the newest events; return how many. Cheap if few are dropped."""
        with reading(self._engine) as session:
            oldest, newest = _ends(session)
        if newest - oldest < most + most // 100:
            return 0
        with writing(self._engine) as session:
            old = delete(EventRow).where(EventRow.serial <= newest - most)
            return cast("CursorResult[object]", session.execute(old)).rowcount


def _events(query_id: str | None, kinds: Kinds) -> Select[EventRow]:
    wanted = select(EventRow)
    if query_id is not None:
        wanted = wanted.where(EventRow.query_id == query_id)
    return wanted if kinds is None else wanted.where(EventRow.kind.in_(kinds))


def _ends(session: Session) -> tuple[int, int]:
    """Return the ids of the oldest and the newest event; 0 without any."""
    wanted = select(func.coalesce(func.min(EventRow.serial), 0), _NEWEST)
    oldest, newest = session.execute(wanted).one()
    return oldest, newest


_NEWEST = func.coalesce(func.max(EventRow.serial), 0)


def keep_trials(session: Session, query_id: str, events: Sequence[NewEvent]) -> None:
    """Store the trials in events, in place of earlier ones of the same configurations."""
    trials = [event.data for event in events if event.kind is EventKind.MEASURED]
    trials_by_key = {json.dumps(trial["configuration"], sort_keys=True): trial for trial in trials}
    mine = TrialRow.query_id == query_id
    session.execute(delete(TrialRow).where(mine, TrialRow.configuration.in_(trials_by_key)))
    session.add_all(
        TrialRow(query_id=query_id, configuration=key, trial=dict(trial))
        for key, trial in trials_by_key.items()
    )
