"""The store in a relational database: SQLite as it comes, PostgreSQL by URL."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from sqlalchemy import Engine, delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from api.phases import CANCELLABLE, REPLANNABLE, Phase
from api.store.records import (
    REPLANNED,
    Ending,
    JsonObject,
    Move,
    NewQuery,
    PhaseChange,
    QueryRecord,
    Replan,
    StoredPlan,
)
from api.store.sessions import reading, writing
from api.store.store import Conflict, NotFound
from api.store.tables import CheckpointRow, MeasurementRow, PlanRow, QueryRow


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
                row = _new_row(query)
                session.add(row)
                session.flush()
                return _record(row), True
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
            return _record(_row(session, query_id))

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
            return tuple(_record(row) for row in session.scalars(wanted))

    def ids(self, phases: frozenset[Phase]) -> tuple[str, ...]:
        """See `Store.ids`."""
        wanted = select(QueryRow.id).where(QueryRow.phase.in_(phases)).order_by(QueryRow.serial)
        with reading(self._engine) as session:
            return tuple(session.scalars(wanted))

    def count(self, phases: frozenset[Phase]) -> int:
        """See `Store.count`."""
        wanted = select(func.count()).select_from(QueryRow).where(QueryRow.phase.in_(phases))
        with reading(self._engine) as session:
            return session.scalar(wanted) or 0

    def claim(self, worker: str, *, at: float) -> QueryRecord | None:
        """See `Store.claim`."""
        oldest = (
            select(QueryRow)
            .where(QueryRow.phase == Phase.QUEUED)
            .order_by(QueryRow.serial)
            .limit(1)
            .with_for_update(skip_locked=True)  # SQLite: the transaction has the one write lock
        )
        with reading(self._engine) as session:  # an idle worker looks often and locks nothing
            if session.scalar(oldest.with_only_columns(QueryRow.serial)) is None:
                return None
        with writing(self._engine) as session:
            row = session.scalar(oldest)
            if row is None:
                return None
            row.claimed_by = worker
            row.heartbeat_at = at
            _enter(row, Phase.PLANNING, at, "")
            return _record(row)

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
            row.claimed_by = row.heartbeat_at = None
            row.result = None if ending.result is None else dict(ending.result)
            cancelled = row.cancel_requested
            _enter(
                row,
                Phase.CANCELLED if cancelled else ending.phase,
                at,
                "" if cancelled else ending.message,
            )
            session.add_all(_plan_rows(query_id, ending.plans))
            return True

    def crashed(self, worker: str, *, at: float, limit: int, cause: str) -> tuple[str, ...]:
        """See `Store.crashed`."""
        with writing(self._engine) as session:
            claimed = select(QueryRow).where(QueryRow.claimed_by == worker).with_for_update()
            rows = session.scalars(claimed).all()
            for row in rows:
                row.crashes += 1
                _give_back(row, at, limit, cause)
            return tuple(row.id for row in rows)

    def release(self, worker: str, *, at: float) -> tuple[str, ...]:
        """See `Store.release`."""
        with writing(self._engine) as session:
            claimed = select(QueryRow).where(QueryRow.claimed_by == worker).with_for_update()
            rows = session.scalars(claimed).all()
            for row in rows:
                _give_back(row, at, row.crashes + 1, "the service was stopped")
            return tuple(row.id for row in rows)

    def requeue_silent(self, *, since: float, at: float) -> tuple[str, ...]:
        """See `Store.requeue_silent`."""
        silent = select(QueryRow).where(
            QueryRow.phase == Phase.PLANNING, QueryRow.heartbeat_at < since
        )
        with reading(self._engine) as session:
            if session.scalar(silent.with_only_columns(QueryRow.serial).limit(1)) is None:
                return ()
        with writing(self._engine) as session:
            rows = session.scalars(silent.with_for_update()).all()
            for row in rows:
                _give_back(row, at, row.crashes + 1, "the planning worker fell silent")
            return tuple(row.id for row in rows)

    def request_cancel(self, query_id: str, *, at: float) -> QueryRecord:
        """See `Store.request_cancel`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == query_id)
            if row is None:
                raise NotFound("query", query_id)
            if Phase(row.phase) not in CANCELLABLE | {Phase.CANCELLED}:
                raise Conflict("phase", "must be queued or planning to be cancelled", row.phase)
            row.cancel_requested = True
            if row.phase == Phase.QUEUED:
                _enter(row, Phase.CANCELLED, at, "cancelled before planning began")
            return _record(row)

    def move(self, move: Move) -> bool:
        """See `Store.move`."""
        with writing(self._engine) as session:
            row = _locked(session, QueryRow.id == move.query_id, QueryRow.phase.in_(move.expected))
            if row is None:
                return False
            if (row.phase, row.message) != (move.to, move.message):
                _enter(row, move.to, move.at, move.message)
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
            session.execute(delete(PlanRow).where(PlanRow.query_id == mine))
            session.execute(delete(CheckpointRow).where(CheckpointRow.query_id == mine))
            if replan.forget:
                session.execute(delete(MeasurementRow).where(MeasurementRow.query_id == mine))
            row.spec = dict(replan.spec)
            row.progress = None
            row.cancel_requested = False
            row.result = None if replan.result is None else dict(replan.result)
            session.add_all(_plan_rows(replan.query_id, replan.plans))
            to = Phase.QUEUED if replan.result is None else Phase.WAITING
            _enter(row, to, replan.at, REPLANNED + replan.why)
            return True

    def plans(self, query_id: str) -> tuple[StoredPlan, ...]:
        """See `Store.plans`."""
        wanted = select(PlanRow).where(PlanRow.query_id == query_id).order_by(PlanRow.position)
        with reading(self._engine) as session:
            return tuple(_stored_plan(row) for row in session.scalars(wanted))

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
            return _stored_plan(row)

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
    return _record(row)


def _new_row(query: NewQuery) -> QueryRow:
    row = QueryRow(
        id=query.id,
        idempotency_key=query.idempotency_key,
        fingerprint=query.fingerprint,
        spec=dict(query.spec),
        tenant=query.tenant,
        cancel_requested=False,
        crashes=0,
        history=[],
    )
    _enter(row, Phase.QUEUED, query.at, "")
    return row


def _plan_rows(query_id: str, plans: Sequence[tuple[str, JsonObject]]) -> list[PlanRow]:
    return [
        PlanRow(id=plan_id, query_id=query_id, position=position, plan=dict(plan))
        for position, (plan_id, plan) in enumerate(plans)
    ]


def _row(session: Session, query_id: str) -> QueryRow:
    row = session.scalar(select(QueryRow).where(QueryRow.id == query_id))
    if row is None:
        raise NotFound("query", query_id)
    return row


def _locked(session: Session, *conditions: object) -> QueryRow | None:
    wanted = select(QueryRow).where(*conditions).with_for_update()  # type: ignore[arg-type] # narrowed
    return session.scalar(wanted)


def _give_back(row: QueryRow, at: float, limit: int, cause: str) -> None:
    row.claimed_by = row.heartbeat_at = None
    if row.cancel_requested:
        _enter(row, Phase.CANCELLED, at, "")
    elif row.crashes >= limit:
        _enter(row, Phase.FAILED, at, f"{cause}, {row.crashes} times")
    else:
        _enter(row, Phase.QUEUED, at, cause)


def _enter(row: QueryRow, phase: Phase, at: float, message: str) -> None:
    row.phase = phase.value
    row.message = message
    # A new list: the mapping sees no change inside the old one.
    row.history = [*row.history, {"phase": phase.value, "at": at, "message": message}]


def _record(row: QueryRow) -> QueryRecord:
    return QueryRecord(
        serial=row.serial,
        id=row.id,
        spec=copy.deepcopy(row.spec),
        phase=Phase(row.phase),
        message=row.message,
        history=tuple(
            PhaseChange(
                phase=Phase(str(step["phase"])),
                at=float(str(step["at"])),
                message=str(step["message"]),
            )
            for step in row.history
        ),
        progress=copy.deepcopy(row.progress),
        result=copy.deepcopy(row.result),
        claimed_by=row.claimed_by,
        cancel_requested=row.cancel_requested,
        crashes=row.crashes,
        idempotency_key=row.idempotency_key,
    )


def _stored_plan(row: PlanRow) -> StoredPlan:
    return StoredPlan(
        id=row.id, query_id=row.query_id, position=row.position, plan=copy.deepcopy(row.plan)
    )
