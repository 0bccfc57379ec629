"""The store in a relational database: SQLite as it comes, PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Engine,
    Select,
    SQLColumnExpression,
    delete,
    func,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.documents import to_document
from api.phases import CANCELLABLE, LIVE, REPLANNABLE, Phase
from api.store.query_rows import (
    add_plans,
    drop_search,
    end_search,
    enter,
    give_back,
    is_searched,
    new_row,
    record_of,
    replace_plans,
    stored_plan,
)
from api.store.records import (
    REPLANNED,
    Ending,
    JsonObject,
    Move,
    NewQuery,
    QueryRecord,
    Replan,
    Search,
    StoredPlan,
)
from api.store.sessions import reading, writing
from api.store.store import Conflict, NotFound
from api.store.tables import CheckpointRow, MeasurementRow, PlanRow, QueryRow

_CANCELLED = "cancelled"


class SqlStore:
    """A `Store` on an engine whose tables exist (see `api.store.migrate`)."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def submit(self, query: NewQuery) -> tuple[QueryRecord, bool]:
        """See `Store.submit`."""
        try:
            with writing(self._engine) as session:
                known = _of_key(session, query)
                if known is not None:
                    return known, False
                row = new_row(query)
                session.add(row)
                session.flush()
                return record_of(row), True
        except IntegrityError:
            # Another process inserted the key between our look and our insert.
            with reading(self._engine) as session:
                known = _of_key(session, query)
            if known is None:
                raise
            return known, False

    def query(self, query_id: str) -> QueryRecord:
        """See `Store.query`."""
        with reading(self._engine) as session:
            return record_of(_row(session, query_id))

    def queries(
        self,
        *,
        limit: int,
        before: int | None = None,
        phases: frozenset[Phase] | None = None,
        tenant: str | None = None,
        key_prefix: str | None = None,
    ) -> tuple[QueryRecord, ...]:
        """See `Store.queries`."""
        wanted = select(QueryRow).order_by(QueryRow.serial.desc()).limit(limit)
        if before is not None:
            wanted = wanted.where(QueryRow.serial < before)
        if phases is not None:
            wanted = wanted.where(QueryRow.phase.in_(phases))
        if tenant is not None:
            wanted = wanted.where(QueryRow.tenant == tenant)
        if key_prefix is not None:
            # Not LIKE: SQLite's does not tell capitals from small letters.
            begin = func.substr(QueryRow.idempotency_key, 1, len(key_prefix))
            wanted = wanted.where(begin == key_prefix)
        with reading(self._engine) as session:
            return tuple(record_of(row) for row in session.scalars(wanted))

    def ids(self, phases: frozenset[Phase]) -> tuple[str, ...]:
        """See `Store.ids`."""
        wanted = select(QueryRow.id).where(QueryRow.phase.in_(phases)).order_by(QueryRow.serial)
        with reading(self._engine) as session:
            return tuple(session.scalars(wanted))

    def live(self) -> Mapping[str, int]:
        """See `Store.live`."""
        wanted = (
            select(QueryRow.id, QueryRow.revision)
            .where(QueryRow.phase.in_(LIVE))
            .order_by(QueryRow.serial)
        )
        with reading(self._engine) as session:
            return {query_id: revision for query_id, revision in session.execute(wanted)}

    def count(self, phases: frozenset[Phase]) -> int:
        """See `Store.count`."""
        wanted = select(func.count()).select_from(QueryRow).where(QueryRow.phase.in_(phases))
        with reading(self._engine) as session:
            return session.scalar(wanted) or 0

    def claim(self, worker: str, *, at: float) -> QueryRecord | None:
        """See `Store.claim`."""
        queued = _first(QueryRow.phase == Phase.QUEUED, by=QueryRow.serial)
        asked = _first(
            QueryRow.phase.in_(LIVE),
            QueryRow.claimed_by.is_(None),
            QueryRow.search.is_not(None),
            QueryRow.search["ended"].as_string().is_(None),
            by=QueryRow.search["at"].as_float(),
        )
        with reading(self._engine) as session:  # an idle worker looks often and locks nothing
            looks = (first.with_only_columns(QueryRow.serial) for first in (queued, asked))
            if all(session.scalar(look) is None for look in looks):
                return None
        with writing(self._engine) as session:
            row = session.scalar(queued) or session.scalar(asked)
            if row is None:
                return None
            row.claimed_by = worker
            row.heartbeat_at = at
            if row.phase == Phase.QUEUED:
                enter(row, Phase.PLANNING, at, "")
            return record_of(row)

    def beat(
        self, query_id: str, worker: str, *, at: float, progress: JsonObject | None = None
    ) -> bool:
        """See `Store.beat`."""
        news: dict[str, object] = {"heartbeat_at": at}
        if progress is not None:
            news["progress"] = dict(progress)
        renewal = (
            update(QueryRow)
            .where(QueryRow.id == query_id, QueryRow.claimed_by == worker)
            .values(news)
            .returning(QueryRow.cancel_requested)
        )
        with writing(self._engine) as session:
            cancel_requested = session.scalar(renewal)
        return cancel_requested is None or cancel_requested

    def finish(self, query_id: str, worker: str, ending: Ending, *, at: float) -> bool:
        """See `Store.finish`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == query_id, QueryRow.claimed_by == worker)
            if row is None:
                return False
            if row.phase in LIVE:
                end_search(session, row, ending, at)
                return True
            row.claimed_by = row.heartbeat_at = None
            row.result = None if ending.result is None else dict(ending.result)
            cancelled = row.cancel_requested
            enter(
                row,
                Phase.CANCELLED if cancelled else ending.phase,
                at,
                "" if cancelled else ending.message,
            )
            add_plans(session, row, ending.plans)
            return True

    def crashed(self, worker: str, *, at: float, limit: int, cause: str) -> tuple[str, ...]:
        """See `Store.crashed`."""
        with writing(self._engine) as session:
            claimed = select(QueryRow).where(QueryRow.claimed_by == worker).with_for_update()
            rows = session.scalars(claimed).all()
            for row in rows:
                row.crashes += 1
                give_back(row, at, limit, cause)
            return tuple(row.id for row in rows)

    def release(self, worker: str, *, at: float) -> tuple[str, ...]:
        """See `Store.release`."""
        with writing(self._engine) as session:
            claimed = select(QueryRow).where(QueryRow.claimed_by == worker).with_for_update()
            rows = session.scalars(claimed).all()
            for row in rows:
                give_back(row, at, row.crashes + 1, "the service was stopped")
            return tuple(row.id for row in rows)

    def requeue_silent(self, *, since: float, at: float) -> tuple[str, ...]:
        """See `Store.requeue_silent`."""
        silent = select(QueryRow).where(
            QueryRow.phase.in_(LIVE | {Phase.PLANNING}), QueryRow.heartbeat_at < since
        )
        with reading(self._engine) as session:
            if session.scalar(silent.with_only_columns(QueryRow.serial).limit(1)) is None:
                return ()
        with writing(self._engine) as session:
            rows = session.scalars(silent.with_for_update()).all()
            for row in rows:
                give_back(row, at, row.crashes + 1, "the planning worker fell silent")
            return tuple(row.id for row in rows)

    def request_cancel(self, query_id: str, *, at: float) -> QueryRecord:
        """See `Store.request_cancel`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == query_id)
            if row is None:
                raise NotFound("query", query_id)
            search = row.search if row.phase in LIVE else None
            if search is not None and search["ended"] in (None, _CANCELLED):
                drop_search(row, at, _CANCELLED)
                return record_of(row)
            if Phase(row.phase) not in CANCELLABLE | {Phase.CANCELLED}:
                rule = "must be queued or planning (or the query searched on) to be cancelled"
                raise Conflict("phase", rule, row.phase)
            row.cancel_requested = True
            if row.phase == Phase.QUEUED:
                enter(row, Phase.CANCELLED, at, "cancelled before planning began")
            return record_of(row)

    def move(self, move: Move) -> bool:
        """See `Store.move`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == move.query_id, QueryRow.phase.in_(move.expected))
            if row is None:
                return False
            if move.to not in LIVE:
                drop_search(row, move.at, f"the query is {move.to.value}")
            if (row.phase, row.message) != (move.to, move.message):
                enter(row, move.to, move.at, move.message)
            return True

    def replan(self, replan: Replan) -> bool:
        """See `Store.replan`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == replan.query_id)
            if row is None:
                raise NotFound("query", replan.query_id)
            if Phase(row.phase) not in REPLANNABLE:
                return False
            mine = replan.query_id
            session.execute(delete(CheckpointRow).where(CheckpointRow.query_id == mine))
            if replan.forget:
                session.execute(delete(MeasurementRow).where(MeasurementRow.query_id == mine))
            row.spec = dict(replan.spec)
            row.cancel_requested = False
            replace_plans(session, row, replan.result, replan.plans)
            to = Phase.QUEUED if replan.result is None else Phase.WAITING
            enter(row, to, replan.at, REPLANNED + replan.why)
            return True

    def search_on(self, query_id: str, search: Search) -> bool:
        """See `Store.search_on`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == query_id)
            if row is None:
                raise NotFound("query", query_id)
            if row.phase not in LIVE or is_searched(row):
                return False
            row.search = to_document(search)
            row.progress = None
            row.crashes = 0
            return True

    def plans(self, query_id: str) -> tuple[StoredPlan, ...]:
        """See `Store.plans`."""
        wanted = select(PlanRow).where(PlanRow.query_id == query_id).order_by(PlanRow.position)
        with reading(self._engine) as session:
            return tuple(stored_plan(row) for row in session.scalars(wanted))

    def plan(self, plan_id: str) -> StoredPlan:
        """See `Store.plan`."""
        newest = (
            select(PlanRow)
            .join(QueryRow, QueryRow.id == PlanRow.query_id)
            .where(PlanRow.id == plan_id)
            .order_by(QueryRow.serial.desc())
            .limit(1)
        )
        with reading(self._engine) as session:
            row = session.scalar(newest)
            if row is None:
                raise NotFound("plan", plan_id)
            return stored_plan(row)

    def close(self) -> None:
        """See `Store.close`."""
        self._engine.dispose()


def _of_key(session: Session, query: NewQuery) -> QueryRecord | None:
    if query.idempotency_key is None:
        return None
    row = session.scalar(select(QueryRow).where(QueryRow.idempotency_key == query.idempotency_key))
    if row is None:
        return None
    if row.fingerprint != query.fingerprint:
        rule = "must not come again with another query"
        raise Conflict("Idempotency-Key", rule, repr(query.idempotency_key))
    return record_of(row)


def _first(*conditions: ColumnElement[bool], by: SQLColumnExpression[Any]) -> Select[QueryRow]:
    # SQLite skips no locked rows: the transaction has the one write lock.
    wanted = select(QueryRow).where(*conditions).order_by(by, QueryRow.serial).limit(1)
    return wanted.with_for_update(skip_locked=True)


def _row(session: Session, query_id: str) -> QueryRow:
    row = session.scalar(select(QueryRow).where(QueryRow.id == query_id))
    if row is None:
        raise NotFound("query", query_id)
    return row


def _locked(session: Session, *conditions: object) -> QueryRow | None:
    wanted = select(QueryRow).where(*conditions).with_for_update()  # type: ignore[arg-type] # narrowed
    return session.scalar(wanted)
