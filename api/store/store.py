"""Queries and their plans in a relational database: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypedDict, TypeVar, Unpack

from sqlalchemy import ColumnElement, Engine, Select, bindparam, delete, func, select
from sqlalchemy.orm import Session

from circinus.api.phases import CANCELLABLE, LIVE, REPLANNABLE, QueryPhase
from circinus.api.store.calls import SqlLedger
from circinus.api.store.datasets import SqlDatasets
from circinus.api.store.engine import (
    Durability,
    connect,
    file_of,
    one_at_a_time,
    reading,
    rows,
    writing,
)
from circinus.api.store.events import EventLog
from circinus.api.store.history import SqlBills, SqlHistory
from circinus.api.store.journal import SqlCheckpoints, SqlJournal
from circinus.api.store.query_rows import QueryRow
from circinus.api.store.queue import PlanningQueue, Together
from circinus.api.store.records import (
    Conflict,
    NewEvent,
    NewQuery,
    NotFound,
    QueryState,
    QueueFull,
    Replan,
    Search,
    StoredPlan,
    StoredQuery,
    record_of,
)
from circinus.api.store.routes import SqlRoutes
from circinus.api.store.schedules import REVISION, ScheduleStore
from circinus.api.store.tables import CheckpointRow, MeasurementRow, PlanRow, tell
from circinus.scheduler.rolling.pooling import Slices

_CANCELLED = "cancelled"
Key = TypeVar("Key")
Value = TypeVar("Value")


class QueryChoice(TypedDict, total=False):
    """Which queries; None, or left out, chooses all."""

    before: int | None  # with smaller serials than that
    phases: frozenset[QueryPhase] | None  # in one of them
    tenant: str | None  # whose they are
    key_prefix: str | None  # how their idempotency keys begin


class Store:
    """Stores all states that users wait for. Safe to share between threads and processes.

    Arguments and results are copies: changing a document afterwards changes nothing here. A
    method's change is stored when it returns, and is all or nothing. The tables of the engine's
    database exist (see `api.store.engine.migrate`).
    """

    def __init__(self, engine: Engine) -> None:
        self.queue = PlanningQueue(engine)  # the same queries, as planning workers see them
        self.schedules = ScheduleStore(engine)
        self.datasets = SqlDatasets(engine)
        self.history = SqlHistory(engine)
        self.routes = SqlRoutes(engine)
        self.events = EventLog(engine)
        self.bills = SqlBills(engine)  # of serving
        self._engine = engine
        self._submit = Together(self._submitted)

    def submit(
        self, query: NewQuery, *, queue_limit: int | None = None
    ) -> tuple[StoredQuery, bool]:
        """Queue a query; return its record and whether it is new.

        A known idempotency key returns the query first submitted with it; with another
        specification it is a Conflict. A new query is QueueFull where so many are queued already;
        None: there is no limit.
        """
        return self._submit((query, queue_limit))

    def _submitted(
        self, submissions: Sequence[tuple[NewQuery, int | None]]
    ) -> list[tuple[StoredQuery, bool] | Exception]:
        answers: list[tuple[StoredQuery, bool] | Exception] = []
        with writing(self._engine) as session:
            one_at_a_time(session, "submissions")
            for query, queue_limit in submissions:
                try:
                    answers.append(_submitted(session, query, queue_limit))
                except (Conflict, QueueFull) as refusal:
                    answers.append(refusal)
        return answers

    def query(self, query_id: str) -> StoredQuery:
        """Return a query; NotFound if there is none of that id."""
        with reading(self._engine) as session:
            return _row_of(session, query_id).record

    def queries(self, *, limit: int, **choice: Unpack[QueryChoice]) -> tuple[StoredQuery, ...]:
        """Return the newest queries of a choice, newest first."""
        wanted = select(QueryRow).where(*_conditions(**choice))
        newest = wanted.order_by(QueryRow.serial.desc()).limit(limit)
        return tuple(row.record for row in rows(self._engine, newest))

    def states(self, *, limit: int, **choice: Unpack[QueryChoice]) -> tuple[QueryState, ...]:
        """Return the states of the same queries as `queries`. Cheap."""
        wanted = select(QueryRow.serial, QueryRow.id, QueryRow.version, QueryRow.phase)
        wanted = wanted.where(*_conditions(**choice))
        wanted = wanted.order_by(QueryRow.serial.desc()).limit(limit)
        with reading(self._engine) as session:
            return tuple(
                QueryState(serial=serial, id=name, version=version, phase=QueryPhase(phase))
                for serial, name, version, phase in session.execute(wanted)
            )

    def state(self, query_id: str) -> tuple[int, int]:
        """Return the version of a query and the revision of the schedule in force. Cheap.

        The view of a query changes with one of them, except its deployment. NotFound if
        there is none of that id.
        """
        with reading(self._engine) as session:
            records = session.execute(_STATE, {"query_id": query_id}).one_or_none()
        if records is None:
            raise NotFound("query", query_id)
        return records[0], records[1] or 0

    def ids(self, phases: frozenset[QueryPhase]) -> tuple[str, ...]:
        """Return the ids of all queries in one of the phases, oldest first. Cheap."""
        wanted = select(QueryRow.id).where(QueryRow.phase.in_(phases)).order_by(QueryRow.serial)
        return tuple(rows(self._engine, wanted))

    def counts(self) -> Mapping[QueryPhase, int]:
        """Return how many queries are in each phase; phases without any are left out. Cheap."""
        wanted = select(QueryRow.phase, func.count()).group_by(QueryRow.phase)
        return {QueryPhase(phase): count for phase, count in self._pairs(wanted).items()}

    def live(self) -> Mapping[str, int]:
        """Return the live queries, oldest first: id -> revision, new with other plans. Cheap."""
        wanted = select(QueryRow.id, QueryRow.revision).where(QueryRow.phase.in_(LIVE))
        return self._pairs(wanted.order_by(QueryRow.serial))

    def pools(self) -> Mapping[str, Slices]:
        """Return the pools that should serve live queries, by id. Cheap."""
        there = QueryRow.phase.in_(LIVE), QueryRow.pool.is_not(None)
        wanted = select(QueryRow.id, QueryRow.pool).where(*there)
        return {q: pool for q, pool in self._pairs(wanted).items() if pool is not None}

    def set_pool(
        self, query_id: str, pool: Slices, *, at: float, follows: bool = False, why: str = ""
    ) -> StoredQuery:
        """Store the pool that should serve a query; the same again changes nothing.

        NotFound if there is none of that id, Conflict if it is not live.
        """
        with writing(self._engine) as session:
            row = _row_of(session, query_id, lock=True)
            if row.phase not in LIVE:
                raise Conflict("phase", "must be serving to be given a pool", row.phase)
            if (row.pool, row.pool_follows) != (pool, follows):
                row.want_pool(session, pool, at, why, follows=follows)
                session.flush()
            return row.record

    def drop_pool(self, query_id: str, *, at: float, why: str, only: Slices | None = None) -> bool:
        """Delete the pool of a query; False: it has none, or another than `only`, None: any.

        NotFound if there is none of that id.
        """
        with writing(self._engine) as session:
            row = _row_of(session, query_id, lock=True)
            if row.pool is None or only not in (None, row.pool):
                return False
            row.want_pool(session, None, at, why, follows=False)
            return True

    def replicas(self) -> Mapping[str, int]:
        """Return the requested numbers of replicas of live queries, by id. Cheap."""
        there = QueryRow.phase.in_(LIVE), QueryRow.replicas.is_not(None)
        wanted = select(QueryRow.id, QueryRow.replicas).where(*there)
        return {q: count for q, count in self._pairs(wanted).items() if count is not None}

    def set_replicas(self, query_id: str, replicas: int | None) -> StoredQuery:
        """Store how many replicas a query should have; None: they follow the rate of requests.

        NotFound if there is none of that id, Conflict if it is not live and is to have some.
        """
        with writing(self._engine) as session:
            row = _row_of(session, query_id, lock=True)
            if row.phase not in LIVE and replicas is not None:
                raise Conflict("phase", "must be serving to be given replicas", row.phase)
            if row.replicas != replicas:
                row.replicas = replicas
                session.flush()
            return row.record

    def request_cancel(self, query_id: str, *, at: float) -> StoredQuery:
        """Cancel a queued query at once, and request the worker of one in planning to stop.

        Of a live query the search is cancelled, at once; its plans serve on. NotFound if
        there is none of that id, Conflict if planning it is over, unless it was cancelled before.
        """
        with writing(self._engine) as session:
            row = _row_of(session, query_id, lock=True)
            search = row.search if row.phase in LIVE else None
            if search is not None and search["ended"] in (None, _CANCELLED):
                row.drop_search(session, at, _CANCELLED)
                session.flush()  # counts the change
                return row.record
            if QueryPhase(row.phase) not in CANCELLABLE | {QueryPhase.CANCELLED}:
                rule = "must be queued or planning (or the query searched on) to be cancelled"
                raise Conflict("phase", rule, row.phase)
            row.cancel_requested = True
            if row.phase == QueryPhase.QUEUED:
                row.enter(session, QueryPhase.CANCELLED, at, "cancelled before planning began")
            session.flush()
            return row.record

    def move(
        self,
        query_id: str,
        to: QueryPhase,
        *,
        at: float,
        message: str = "",
        expected: frozenset[QueryPhase] = LIVE,
        events: Sequence[NewEvent] = (),
    ) -> bool:
        """Change the phase, or only its message; False: it was in none of the expected phases.

        The history grows only if the phase or the message is a new one, and only then are the
        events stored. The search of a query that is not live any more ends.
        """
        there = QueryRow.id == query_id, QueryRow.phase.in_(expected)
        with writing(self._engine) as session:
            if (row := session.scalar(select(QueryRow).where(*there).with_for_update())) is None:
                return False
            if to not in LIVE:
                row.drop_search(session, at, f"the query is {to.value}")
            if (row.phase, row.message) != (to, message):
                row.enter(session, to, at, message)
                tell(session, *events)
            return True

    def replan(self, replan: Replan) -> bool:
        """Replace a planned query's plans, or queue it again; False: it is in planning or retired.

        With plans it waits for capacity anew. The checkpoint ends, measurements stay unless they
        are to be dropped. Its search ends. NotFound if there is no such query.
        """
        mine = replan.query_id
        with writing(self._engine) as session:
            row = _row_of(session, mine, lock=True)
            if QueryPhase(row.phase) not in REPLANNABLE:
                return False
            session.execute(delete(CheckpointRow).where(CheckpointRow.query_id == mine))
            if replan.forget:
                session.execute(delete(MeasurementRow).where(MeasurementRow.query_id == mine))
            row.spec = dict(replan.spec)
            row.cancel_requested = False
            row.replan(session, replan, replan.at, replan.why)
            return True

    def search_on(self, query_id: str, search: Search) -> bool:
        """Request a search for other plans while a query serves; NotFound if there is none.

        False: it is not live, or searched on already.
        """
        with writing(self._engine) as session:
            row = _row_of(session, query_id, lock=True)
            if row.phase not in LIVE or row.record.searching is not None:
                return False
            row.ask_for(session, search)
            return True

    def plans(self, query_id: str) -> tuple[StoredPlan, ...]:
        """Return the plans of a query in order; empty before planning ended."""
        now = PlanRow.query_id == query_id, PlanRow.superseded_at.is_(None)
        wanted = select(PlanRow).where(*now).order_by(PlanRow.position)
        return tuple(record_of(StoredPlan, row) for row in rows(self._engine, wanted))

    def plan(self, plan_id: str) -> StoredPlan:
        """Return a plan, of the newest query where several have it; NotFound if none has.

        Also one that was superseded last, unless a query has it now.
        """
        newest = (
            select(PlanRow)
            .join(QueryRow, QueryRow.id == PlanRow.query_id)
            .where(PlanRow.id == plan_id)
            .order_by(PlanRow.superseded_at.is_not(None), QueryRow.serial.desc())
            .limit(1)
        )
        with reading(self._engine) as session:
            if (row := session.scalar(newest)) is None:
                raise NotFound("plan", plan_id)
            return record_of(StoredPlan, row)

    def journal(self, query_id: str, edition: str, worker: str | None = None) -> SqlJournal:
        """Return the measurements of a query by an edition of its pipeline; see `SqlJournal`."""
        return SqlJournal(self._measured, query_id, edition, worker)

    def ledger(self, query_id: str, worker: str | None = None) -> SqlLedger:
        """Return what calls for a query cost; see `SqlLedger`."""
        return SqlLedger(self._engine, query_id, worker)

    def checkpoints(self, worker: str | None) -> SqlCheckpoints:
        """Return the checkpoints as a worker has them; see `SqlCheckpoints`."""
        return SqlCheckpoints(self._engine, worker)

    def _pairs(self, wanted: Select[Key, Value]) -> dict[Key, Value]:
        with reading(self._engine) as session:
            return {key: value for key, value in session.execute(wanted)}

    @cached_property
    def _measured(self) -> Engine:
        """What measurements are recorded through: on a file without a wait for the disk."""
        url = self._engine.url
        if url.get_backend_name() != "sqlite" or file_of(url) is None:
            return self._engine
        return connect(url.render_as_string(hide_password=False), Durability.PROCESS)

    def try_writing(self) -> None:
        """Store a probe that is never read; DatabaseFailed if nothing can be stored."""
        self.schedules.try_writing()

    def close(self) -> None:
        """Close all connections; using the store afterwards is an error."""
        for engine in {self._engine, self.__dict__.get("_measured", self._engine)}:
            engine.dispose()


_STATE = select(QueryRow.version, REVISION.scalar_subquery()).where(
    QueryRow.id == bindparam("query_id")
)


def _conditions(
    before: int | None = None,
    phases: frozenset[QueryPhase] | None = None,
    tenant: str | None = None,
    key_prefix: str | None = None,
) -> Iterator[ColumnElement[bool]]:
    if before is not None:
        yield QueryRow.serial < before
    if phases is not None:
        yield QueryRow.phase.in_(phases)
    if tenant is not None:
        yield QueryRow.tenant == tenant
    if key_prefix is not None:
        # Not LIKE: SQLite's ignores case.
        yield func.substr(QueryRow.idempotency_key, 1, len(key_prefix)) == key_prefix


def _submitted(
    session: Session, query: NewQuery, queue_limit: int | None
) -> tuple[StoredQuery, bool]:
    if (known := _of_key(session, query)) is not None:
        return known, False
    if queue_limit is not None:
        _require_room(session, queue_limit)
    row = QueryRow.queued(session, query)
    session.flush()
    return row.record, True


def _of_key(session: Session, query: NewQuery) -> StoredQuery | None:
    if query.idempotency_key is None:
        return None
    row = session.scalar(select(QueryRow).where(QueryRow.idempotency_key == query.idempotency_key))
    if row is None:
        return None
    if row.fingerprint != query.fingerprint:
        rule = "must not come again with another query"
        raise Conflict("Idempotency-Key", rule, repr(query.idempotency_key))
    return row.record


def _require_room(session: Session, queue_limit: int) -> None:
    queued = select(func.count()).where(QueryRow.phase == QueryPhase.QUEUED)
    if session.scalars(queued).one() >= queue_limit:
        raise QueueFull(queue_limit)


def _row_of(session: Session, query_id: str, *, lock: bool = False) -> QueryRow:
    wanted = select(QueryRow).where(QueryRow.id == query_id)
    row = session.scalar(wanted.with_for_update() if lock else wanted)
    if row is None:
        raise NotFound("query", query_id)
    return row
