"""The queue of the planning workers: rows of queries, each held by one worker at a time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Generic, TypeVar

from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    SQLColumnExpression,
    bindparam,
    select,
    update,
)
from sqlalchemy.orm import Session

from circinus.api.phases import LIVE, QueryPhase
from circinus.api.store.engine import reading, writing
from circinus.api.store.events import keep_trials
from circinus.api.store.failures import DatabaseFailed
from circinus.api.store.query_rows import QueryRow
from circinus.api.store.records import JsonObject, NewEvent, PlanningEnding, StoredQuery
from circinus.api.store.tables import tell
from circinus.pipelines.errors import CircinusError


class PlanningQueue:
    """The queries that workers plan. Safe to share between threads and processes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim(self, worker: str, *, at: float) -> StoredQuery | None:
        """Assign the oldest queued query to a worker and return it; None: none is to be planned.

        Where none is queued, the live query whose search was requested first: it stays in its
        phase. No query is ever assigned to two workers.
        """
        queued = _first(QueryRow.phase == QueryPhase.QUEUED, by=QueryRow.serial)
        searched = _first(
            QueryRow.phase.in_(LIVE),
            QueryRow.claimed_by.is_(None),
            QueryRow.search.is_not(None),
            QueryRow.search["ended"].as_string().is_(None),
            by=QueryRow.search["at"].as_float(),
        )
        with reading(self._engine) as session:  # an idle worker looks often and locks nothing
            looks = (first.with_only_columns(QueryRow.serial) for first in (queued, searched))
            if all(session.scalar(look) is None for look in looks):
                return None
        with writing(self._engine) as session:
            if (row := session.scalar(queued) or session.scalar(searched)) is None:
                return None
            row.claimed_by, row.heartbeat_at = worker, at
            row.begin(session, at)
            session.flush()  # counts the change
            return row.record

    def beat(
        self,
        query_id: str,
        worker: str,
        *,
        at: float,
        progress: JsonObject | None = None,
        events: Sequence[NewEvent] = (),
    ) -> bool:
        """Renew a worker's claim of a query, with news if there are; return whether to stop.

        True when cancelling was requested, and when the worker holds the query no longer: then
        nothing is stored. Data of events of the kind `query.measured` are trials, see
        `api.store.events`.
        """
        news: dict[str, object] = {"heartbeat_at": at}
        if progress is not None:
            news |= {"progress": dict(progress), "version": QueryRow.version + 1}
        renewal = (
            update(QueryRow)
            .where(QueryRow.id == query_id, QueryRow.claimed_by == worker)
            .values(news)
            .returning(QueryRow.cancel_requested)
        )
        with writing(self._engine) as session:
            cancelled = session.scalar(renewal)
            if cancelled is not None and events:
                keep_trials(session, query_id, events)
                tell(session, *events)
            return cancelled is not False

    def finish(self, query_id: str, worker: str, ending: PlanningEnding, *, at: float) -> bool:
        """Store how planning ended, plans included; False: the worker holds the query no longer.

        A query that should be cancelled becomes `cancelled`, whatever the ending. Where a live
        query was searched on, plans replace the old ones as in `Store.replan`; without plans only
        its search ends, with the ending's message.
        """
        held = select(QueryRow).where(QueryRow.id == query_id, QueryRow.claimed_by == worker)
        with writing(self._engine) as session:
            if (row := session.scalar(held.with_for_update())) is None:
                return False
            if row.phase in LIVE:
                row.end_search(session, ending, at)
                return True
            row.claimed_by = row.heartbeat_at = None
            row.result = None if ending.result is None else dict(ending.result)
            if row.cancel_requested:
                row.enter(session, QueryPhase.CANCELLED, at, "")
            else:
                row.enter(session, ending.phase, at, ending.message)
            row.add_plans(session, ending.plans)
            return True

    def crashed(self, worker: str, *, at: float, limit: int, cause: str) -> tuple[str, ...]:
        """Requeue the queries of a worker that died; return their ids.

        At the limit of crashes they are `failed` with the cause. A search is requeued, or ends
        with the cause; its query stays as it is.
        """
        return self._returned(QueryRow.claimed_by == worker, at, cause, limit)

    def release(
        self, worker: str, *, at: float, cause: str = "the service was stopped"
    ) -> tuple[str, ...]:
        """Put queries and searches of a worker back into the queue; return their ids."""
        return self._returned(QueryRow.claimed_by == worker, at, cause)

    def requeue_silent(
        self, *, since: float, at: float, spared: Collection[str] = ()
    ) -> tuple[str, ...]:
        """Requeue queries without a beat since then; return their ids.

        Workers that are known to live are spared, even if the store lacks their beats.
        """
        silent = (
            QueryRow.phase.in_(LIVE | {QueryPhase.PLANNING})
            & (QueryRow.heartbeat_at < since)
            & QueryRow.claimed_by.not_in(spared)
        )
        with reading(self._engine) as session:  # nearly always none: read without a lock
            if session.scalar(select(QueryRow.serial).where(silent).limit(1)) is None:
                return ()
        return self._returned(silent, at, "the planning worker fell silent")

    def _returned(
        self, wanted: ColumnElement[bool], at: float, cause: str, crashes: int | None = None
    ) -> tuple[str, ...]:
        """Take queries from their worker, which died unless `crashes`, a limit, is None."""
        with writing(self._engine) as session:
            rows = session.scalars(select(QueryRow).where(wanted).with_for_update()).all()
            for row in rows:
                row.crashes += crashes is not None
                limit = row.crashes + 1 if crashes is None else crashes
                row.give_back(session, at, limit, cause)
            return tuple(row.id for row in rows)


def _first(*conditions: ColumnElement[bool], by: SQLColumnExpression[Any]) -> Select[QueryRow]:
    # SQLite skips no locked rows: the transaction has the one write lock.
    wanted = select(QueryRow).where(*conditions).order_by(by, QueryRow.serial).limit(1)
    return wanted.with_for_update(skip_locked=True)


# Made once: it runs before every measurement that is stored. A query is taken from its worker
# while that still measures, because it fell silent, its data changed or the search is obsolete
# any more: figures of the old data must not get among the new.
_HELD = (
    select(QueryRow.serial)
    .where(QueryRow.id == bindparam("query_id"), QueryRow.claimed_by == bindparam("worker"))
    .with_for_update(read=True)
)


class ClaimLost(CircinusError):
    """A worker would store something of a query that it holds no longer."""

    def __init__(self, query_id: str, worker: str) -> None:
        super().__init__(f"query {query_id} must be held by the worker that plans it, {worker}.")


def require_claim(session: Session, query_id: str, worker: str | None) -> None:
    """Raise ClaimLost unless a worker holds a query till a session ends; None: none has to."""
    holder = {"query_id": query_id, "worker": worker}
    if worker is not None and session.scalar(_HELD, holder) is None:
        raise ClaimLost(query_id, worker)


Item = TypeVar("Item")
Stored = TypeVar("Stored")


@dataclass(eq=False)
class Together(Generic[Item, Stored]):
    """Stores things, each for a thread that waits for it.

    `store` takes several in the order of arrival and returns for each the result of its thread,
    raised if it is an error. If it raises, nothing is stored. One thread at a time calls it.
    """

    store: Callable[[Sequence[Item]], Sequence[Stored | Exception]]
    _turn: Lock = field(default_factory=Lock, init=False)
    _waiting: list[tuple[Item, Future[Stored]]] = field(default_factory=list, init=False)

    def __call__(self, item: Item) -> Stored:
        """Return what is stored for one thing, or raise why it is not."""
        mine = Future[Stored]()
        self._waiting.append((item, mine))
        with self._turn:
            if not mine.done():
                waiting, self._waiting = self._waiting, []
                self._store(waiting)
        return mine.result()

    def _store(self, waiting: Sequence[tuple[Item, Future[Stored]]]) -> None:
        try:
            answers = self.store([item for item, _ in waiting])
        except DatabaseFailed as error:  # of the database, not of an item
            answers = [error] * len(waiting)
        except Exception as error:  # noqa: BLE001 - raised in the waiting thread
            if len(waiting) > 1:
                for each in waiting:
                    self._store([each])
                return
            answers = [error]
        for (_, future), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
