"""The tables, as SQLAlchemy's typed mapping. Alembic's migrations build the same ones.

What happens to the row of a query happens within the transaction of whoever changes it, and so do
the events that tell of it.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Self, cast

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    delete,
    event,
    false,
    update,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from circinus.api.phases import LIVE, QueryPhase
from circinus.api.schemas.events import EventKind, EventView
from circinus.api.store.documents import from_document, to_document
from circinus.api.store.engine import one_at_a_time
from circinus.api.store.records import (
    REPLANNED,
    NewEvent,
    NewQuery,
    PlanDocuments,
    PlanningEnding,
    Replan,
    Search,
    StoredPlan,
    StoredQuery,
)
from circinus.scheduler.rolling.chosen import ChosenPool, Slices

# Named constraints, so that a migration can find them again.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# SQLite numbers rows by itself only under the exact type INTEGER.
_SERIAL = BigInteger().with_variant(Integer(), "sqlite")
_DOCUMENT = JSON(none_as_null=True)
_Owner = Annotated[
    str, mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), primary_key=True)
]


class Base(DeclarativeBase):
    """Metadata of all tables."""

    metadata = MetaData(naming_convention=_NAMES)


class EventRow(Base):
    """Something that happened; the serials are in the order of commits.

    It refers to no row of a query: that would wait for whoever changes one.
    """

    __tablename__ = "events"
    __table_args__ = (Index(None, "query_id", "serial"),)

    serial: Mapped[int] = mapped_column(_SERIAL, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Double)
    kind: Mapped[str] = mapped_column(Text)
    query_id: Mapped[str | None] = mapped_column(Text)
    words: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)

    @property
    def view(self) -> EventView:
        """The event as it is told."""
        return EventView.of(self, id=self.serial)


def tell(session: Session, *events: NewEvent) -> None:
    """Store events with all else that a session changes.

    They are stored last of all, one transaction at a time until it has ended: whoever reads one
    finds every event with a smaller serial. Whoever waits there holds what he changed, and whom he
    waits for needs nothing any more: nobody waits in a circle.
    """
    told = cast("list[NewEvent]", session.info.setdefault(_TOLD, []))
    if not told:
        event.listen(session, "before_commit", _store_told, once=True)
    told.extend(events)


def _store_told(session: Session) -> None:
    session.flush()
    one_at_a_time(session, "events")
    session.add_all(EventRow(**asdict(each)) for each in session.info.pop(_TOLD))


_TOLD = "circinus_told"


class QueryRow(Base):
    """A query, its phase and the claim on it.

    The queue is the rows in phase `queued`, then live ones with a `search` that has not ended.
    """

    __tablename__ = "queries"
    __table_args__ = (Index(None, "phase", "serial"), Index(None, "tenant", "serial"))

    serial: Mapped[int] = mapped_column(_SERIAL, primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(Text, unique=True)
    idempotency_key: Mapped[str | None] = mapped_column(Text, unique=True)
    fingerprint: Mapped[str] = mapped_column(Text)
    spec: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)
    phase: Mapped[str] = mapped_column(Text)
    message: Mapped[str] = mapped_column(Text, default="")
    history: Mapped[list[dict[str, object]]] = mapped_column(_DOCUMENT)
    progress: Mapped[dict[str, object] | None] = mapped_column(_DOCUMENT)
    result: Mapped[dict[str, object] | None] = mapped_column(_DOCUMENT)
    claimed_by: Mapped[str | None] = mapped_column(Text, index=True)
    heartbeat_at: Mapped[float | None] = mapped_column(Double)
    cancel_requested: Mapped[bool] = mapped_column(default=False)
    crashes: Mapped[int] = mapped_column(default=0)
    tenant: Mapped[str] = mapped_column(Text, default="", server_default="")
    search: Mapped[dict[str, object] | None] = mapped_column(_DOCUMENT)
    revision: Mapped[int] = mapped_column(default=0, server_default="0")
    pool: Mapped[dict[str, dict[str, int]] | None] = mapped_column(_DOCUMENT)
    pool_follows: Mapped[bool] = mapped_column(default=False, server_default=false())
    replicas: Mapped[int | None] = mapped_column()
    version: Mapped[int] = mapped_column(server_default="1")  # the mapping counts changes by it

    __mapper_args__ = {"version_id_col": version}  # noqa: RUF012 - as the base has it

    @classmethod
    def queued(cls, session: Session, query: NewQuery) -> Self:
        """Add the row of a query that is queued."""
        told = asdict(query)  # copies: the caller may change its own
        at = told.pop("at")
        row = cls(**told, cancel_requested=False, crashes=0, history=[])
        row.enter(session, QueryPhase.QUEUED, at, "")
        session.add(row)
        return row

    @property
    def record(self) -> StoredQuery:
        """The query as the store hands it out; its documents were read for this one session."""
        told = {field.name: getattr(self, field.name) for field in fields(StoredQuery)}
        return from_document(StoredQuery, told)

    def enter(self, session: Session, phase: QueryPhase, at: float, message: str) -> None:
        """Put the query into a phase, which its history and an event tell."""
        self.phase, self.message = phase.value, message
        # A new list: the mapping sees no change inside the old one.
        self.history = [*self.history, {"phase": phase.value, "at": at, "message": message}]
        self._tell(session, at, message)

    def _tell(self, session: Session, at: float, message: str, **more: object) -> None:
        """Tell of the phase, or of a search while it stays as it is."""
        words = f"{self.id} is {self.phase}" + (f": {message}" if message else "")
        data = {"phase": self.phase, "message": message, **more}
        kind = EventKind.PHASE
        tell(session, NewEvent(kind=kind, at=at, query_id=self.id, words=words, data=data))

    def begin(self, session: Session, at: float) -> None:
        """Begin to plan, or to search: what an earlier start found is forgotten."""
        session.execute(delete(TrialRow).where(TrialRow.query_id == self.id))
        if self.phase == QueryPhase.QUEUED:
            self.enter(session, QueryPhase.PLANNING, at, "")
        else:
            self._tell(session, at, "other plans are searched for", search="begun")

    def ask_for(self, session: Session, search: Search) -> None:
        """Ask for a search for other plans."""
        self.search, self.progress, self.crashes = to_document(search), None, 0
        self._tell(session, search.at, f"to be searched on: {search.why}", search="asked")

    def add_plans(self, session: Session, plans: PlanDocuments) -> None:
        """Store plans beside those there are; where there are some, the revision grows."""
        self.revision += bool(plans)
        again = PlanRow.id.in_([plan_id for plan_id, _ in plans])
        session.execute(delete(PlanRow).where(PlanRow.query_id == self.id, again))
        session.add_all(
            PlanRow(id=plan_id, query_id=self.id, position=position, plan=dict(plan))
            for position, (plan_id, plan) in enumerate(plans)
        )

    def replan(self, session: Session, by: PlanningEnding | Replan, at: float, why: str) -> None:
        """Forget what the query went through to find its plans; store others, if any.

        The plans are superseded, and those that had been before are forgotten: who was just told
        of a plan can still ask for it.
        """
        mine = PlanRow.query_id == self.id
        session.execute(delete(PlanRow).where(mine, PlanRow.superseded_at.is_not(None)))
        session.execute(update(PlanRow).where(mine).values(superseded_at=at))
        self.claimed_by = self.heartbeat_at = self.search = self.progress = None
        self.crashes = 0
        self.result = None if by.result is None else dict(by.result)
        self.add_plans(session, by.plans)
        to = QueryPhase.QUEUED if by.result is None else QueryPhase.WAITING
        self.enter(session, to, at, f"{REPLANNED}{why}")
        anew = "is planned anew" if by.result is None else "has other plans"
        replanned = NewEvent(
            kind=EventKind.REPLANNED,
            at=at,
            query_id=self.id,
            words=f"{self.id} {anew}: {why}",
            data={"why": why, "anew": by.result is None, "plans": [plan for plan, _ in by.plans]},
        )
        tell(session, replanned)

    def want_pool(
        self, session: Session, pool: Slices | None, at: float, why: str = "", *, follows: bool
    ) -> None:
        """Store the pool that should serve the query; None: none any more, and why."""
        told = pool_told(self.id, "dropped" if pool is None else "chosen", at, pool or {}, why)
        self.pool_follows = follows
        self.pool = None if pool is None else {tier: dict(kinds) for tier, kinds in pool.items()}
        tell(session, told)

    def drop_search(self, session: Session, at: float, why: str) -> None:
        """End a search if there is one; its worker hears of that by its next beat."""
        if self.search is not None and self.search["ended"] is None:
            self.claimed_by = self.heartbeat_at = None
            self.search = {**self.search, "ended": why, "ended_at": at}
            self._tell(session, at, f"no longer searched on: {why}", search="ended")

    def end_search(self, session: Session, ending: PlanningEnding, at: float) -> None:
        """End a search: plans take the place of the old ones, without any these stay."""
        if self.search is None or not ending.plans:
            self.drop_search(session, at, ending.message)
        else:
            self.replan(session, ending, at, str(self.search["why"]))

    def give_back(self, session: Session, at: float, limit: int, cause: str) -> None:
        """Take the query from its worker: to the queue, or to an end if so many died over it."""
        self.claimed_by = self.heartbeat_at = None
        crashed = f"{cause}, {self.crashes} times" if self.crashes >= limit else ""
        if self.phase in LIVE:
            if crashed:
                self.drop_search(session, at, crashed)
        elif self.cancel_requested:
            self.enter(session, QueryPhase.CANCELLED, at, "")
        elif crashed:
            self.enter(session, QueryPhase.FAILED, at, crashed)
        else:
            self.enter(session, QueryPhase.QUEUED, at, cause)


def pool_told(query_id: str, state: str, at: float, pool: Slices, why: str = "") -> NewEvent:
    """Return what is told of the pool of a query; `why` may be empty."""
    more = ", ".join(filter(None, (ChosenPool(slices=pool).words(), why)))
    return NewEvent(
        kind=EventKind.POOL,
        at=at,
        query_id=query_id,
        words=f"pool of {query_id} is {state}" + (f": {more}" if more else ""),
        data={"state": state, "pool": pool, "why": why or None},
    )


class DatasetRow(Base):
    """A data set that somebody handed over; its content is read when it is asked for."""

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    inputs: Mapped[int] = mapped_column()
    created_at: Mapped[float] = mapped_column(Double)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)


class RouteRow(Base):
    """A route that the service was told to serve."""

    __tablename__ = "routes"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    route: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class PlanRow(Base):
    """A plan of a query's Pareto set, or of the set that this one took the place of."""

    __tablename__ = "plans"
    __table_args__ = (Index(None, "query_id", "position"),)

    query_id: Mapped[_Owner]
    id: Mapped[str] = mapped_column(Text, primary_key=True, index=True)
    position: Mapped[int] = mapped_column()
    plan: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)
    superseded_at: Mapped[float | None] = mapped_column(Double)

    @property
    def record(self) -> StoredPlan:
        """The plan as the store hands it out."""
        return StoredPlan(
            id=self.id,
            query_id=self.query_id,
            position=self.position,
            document=self.plan,
            superseded_at=self.superseded_at,
        )


class ScheduleRow(Base):
    """The schedule in force: one row; `revision` counts how often it was replaced."""

    __tablename__ = "schedule"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    schedule: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)
    at: Mapped[float] = mapped_column(Double)
    revision: Mapped[int] = mapped_column(server_default="1")


class DisplacementRow(Base):
    """A query that had to make way; one row for each that came onto its machines."""

    __tablename__ = "displacements"

    serial: Mapped[int] = mapped_column(_SERIAL, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Double)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), index=True)
    by: Mapped[str | None] = mapped_column(Text, index=True)
    moved: Mapped[bool] = mapped_column()


class MachinesRow(Base):
    """How many machines a tier, or type as `TIER/TYPE`, has now, where that was set."""

    __tablename__ = "machines"

    tier: Mapped[str] = mapped_column(Text, primary_key=True)
    machines: Mapped[int] = mapped_column()
    at: Mapped[float] = mapped_column(Double)


class MeasurementRow(Base):
    """One finished measurement; `times` above 1 tells that it was paid for again."""

    __tablename__ = "measurements"

    query_id: Mapped[_Owner]
    configuration: Mapped[str] = mapped_column(Text, primary_key=True)
    input: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    draw: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, default=0, server_default="0"
    )
    times: Mapped[int] = mapped_column(default=1)
    score: Mapped[float | None] = mapped_column(Double)
    operator_s: Mapped[bytes] = mapped_column()
    waited_s: Mapped[bytes | None] = mapped_column()
    output_bytes: Mapped[bytes] = mapped_column()
    input_bytes: Mapped[float | None] = mapped_column(Double)
    spent_s: Mapped[float] = mapped_column(Double)
    saved_s: Mapped[float] = mapped_column(Double)
    runs: Mapped[int] = mapped_column(default=0, server_default="0")
    saved_runs: Mapped[int] = mapped_column(default=0, server_default="0")
    calls_s: Mapped[float] = mapped_column(Double, default=0.0, server_default="0")
    calls_usd: Mapped[float] = mapped_column(Double, default=0.0, server_default="0")
    used: Mapped[bytes | None] = mapped_column()
    varied: Mapped[str | None] = mapped_column(Text)
    failed_operator: Mapped[str | None] = mapped_column(Text)
    failure: Mapped[str | None] = mapped_column(Text)


class SpendingRow(Base):
    """What one attempt to call an endpoint may cost, or did; unless it is settled, nulls."""

    __tablename__ = "spending"
    __table_args__ = (Index(None, "query_id"),)

    ticket: Mapped[str] = mapped_column(Text, primary_key=True)
    endpoint: Mapped[str] = mapped_column(Text, primary_key=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"))
    operator: Mapped[str] = mapped_column(Text)
    reserved_usd: Mapped[float] = mapped_column(Double)
    calls: Mapped[float | None] = mapped_column(Double)
    input_tokens: Mapped[float | None] = mapped_column(Double)
    cached_tokens: Mapped[float | None] = mapped_column(Double)
    output_tokens: Mapped[float | None] = mapped_column(Double)
    usd: Mapped[float | None] = mapped_column(Double)


class HistoryRow(Base):
    """What one query measured, for later ones; the newest has the largest serial."""

    __tablename__ = "history"
    __table_args__ = (Index(None, "fingerprint", "serial"),)

    serial: Mapped[int] = mapped_column(_SERIAL, primary_key=True, autoincrement=True)
    query: Mapped[str] = mapped_column(Text, unique=True)
    pipeline: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(Text)
    record: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class TrialRow(Base):
    """What a configuration was found to do when it was measured last, of the latest planning."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("query_id", "configuration"),)

    serial: Mapped[int] = mapped_column(_SERIAL, primary_key=True, autoincrement=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"))
    configuration: Mapped[str] = mapped_column(Text)
    trial: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class CheckpointRow(Base):
    """What the measurements of a query were made for."""

    __tablename__ = "checkpoints"

    query_id: Mapped[_Owner]
    document: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class ServedBillRow(Base):
    """What a run of a query's plan, from its start until it was ended, used of endpoints."""

    __tablename__ = "served_bills"

    run: Mapped[str] = mapped_column(Text, primary_key=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), index=True)
    bill: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class LatencyRow(Base):
    """What was learnt of the latencies of a deployed plan."""

    __tablename__ = "latencies"

    plan_id: Mapped[str] = mapped_column(Text, primary_key=True)
    learnt: Mapped[dict[str, object]] = mapped_column(_DOCUMENT)


class CallLeaseRow(Base):
    """What a holder has of the limits of an endpoint; without a holder, what was used up."""

    __tablename__ = "call_leases"

    endpoint: Mapped[str] = mapped_column(Text, primary_key=True)
    holder: Mapped[str] = mapped_column(Text, primary_key=True)
    grain: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    requests: Mapped[float] = mapped_column(Double)
    tokens: Mapped[float] = mapped_column(Double)
    slots: Mapped[float] = mapped_column(Double)
    until: Mapped[float] = mapped_column(Double)
    needs_requests: Mapped[float] = mapped_column(Double)
    needs_tokens: Mapped[float] = mapped_column(Double)
    needs_slots: Mapped[float] = mapped_column(Double)
    since: Mapped[float] = mapped_column(Double)
