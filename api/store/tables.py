"""The tables, as SQLAlchemy's typed mapping. Alembic's migrations build the same ones.

Each change of a query's row is part of its caller's transaction, and so are the events that
report it.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, cast

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
    event,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from circinus.api.schemas.events import EventView
from circinus.api.store.engine import one_at_a_time
from circinus.api.store.records import NewEvent

# Named constraints, so that a migration can find them again.
_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
# SQLite numbers rows by itself only under the exact type INTEGER.
SERIAL = BigInteger().with_variant(Integer(), "sqlite")
DOCUMENT = JSON(none_as_null=True)
_Owner = Annotated[
    str, mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), primary_key=True)
]


class Base(DeclarativeBase):
    """Metadata of all tables."""

    metadata = MetaData(naming_convention=_NAMES)


class EventRow(Base):
    """An event; the serials are in the order of commits.

    It refers to no row of a query: that would wait for writers of the row.
    """

    __tablename__ = "events"
    __table_args__ = (Index(None, "query_id", "serial"),)

    serial: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(Double)
    kind: Mapped[str] = mapped_column(Text)
    query_id: Mapped[str | None] = mapped_column(Text)
    words: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, object]] = mapped_column(DOCUMENT)

    @property
    def view(self) -> EventView:
        """Return the event as it is published."""
        return EventView.of(self, id=self.serial)


def tell(session: Session, *events: NewEvent) -> None:
    """Store events with all else that a session changes.

    They are stored last of all, one transaction at a time until it has ended. A reader of one
    reads every event with a smaller serial. A transaction that waits there holds its locks, and
    the one it waits for needs no further locks: there is no deadlock.
    """
    pending = cast("list[NewEvent]", session.info.setdefault(_PENDING, []))
    if not pending:
        event.listen(session, "before_commit", _store_events, once=True)
    pending.extend(events)


def _store_events(session: Session) -> None:
    session.flush()
    one_at_a_time(session, "events")
    session.add_all(EventRow(**asdict(each)) for each in session.info.pop(_PENDING))


_PENDING = "circinus_told"


class DatasetRow(Base):
    """An uploaded data set; its content is read on access."""

    __tablename__ = "datasets"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    kind: Mapped[str] = mapped_column(Text)
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    inputs: Mapped[int] = mapped_column()
    created_at: Mapped[float] = mapped_column(Double)
    content: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)


class RouteRow(Base):
    """A route that the service serves."""

    __tablename__ = "routes"

    name: Mapped[str] = mapped_column(Text, primary_key=True)
    route: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


class PlanRow(Base):
    """A plan of a query's Pareto set, or of the set that this one replaced."""

    __tablename__ = "plans"
    __table_args__ = (Index(None, "query_id", "position"),)

    query_id: Mapped[_Owner]
    id: Mapped[str] = mapped_column(Text, primary_key=True, index=True)
    position: Mapped[int] = mapped_column()
    document: Mapped[dict[str, object]] = mapped_column("plan", DOCUMENT)
    superseded_at: Mapped[float | None] = mapped_column(Double)


class ScheduleRow(Base):
    """The schedule in force: one row; `revision` counts how often it was replaced."""

    __tablename__ = "schedule"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    schedule: Mapped[dict[str, object]] = mapped_column(DOCUMENT)
    at: Mapped[float] = mapped_column(Double)
    revision: Mapped[int] = mapped_column(server_default="1")


class DisplacementRow(Base):
    """A displaced query; one row for each query that received its machines."""

    __tablename__ = "displacements"

    serial: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
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
    """One finished measurement; `times` above 1: it was paid for again."""

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

    serial: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    query: Mapped[str] = mapped_column(Text, unique=True)
    pipeline: Mapped[str] = mapped_column(Text)
    fingerprint: Mapped[str] = mapped_column(Text)
    record: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


class TrialRow(Base):
    """The latest measurement of a configuration, of the latest planning."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("query_id", "configuration"),)

    serial: Mapped[int] = mapped_column(SERIAL, primary_key=True, autoincrement=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"))
    configuration: Mapped[str] = mapped_column(Text)
    trial: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


class CheckpointRow(Base):
    """What the measurements of a query were made for."""

    __tablename__ = "checkpoints"

    query_id: Mapped[_Owner]
    document: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


class ServedBillRow(Base):
    """What a run of a query's plan, from its start until it was ended, used of endpoints."""

    __tablename__ = "served_bills"

    run: Mapped[str] = mapped_column(Text, primary_key=True)
    query_id: Mapped[str] = mapped_column(ForeignKey("queries.id", ondelete="CASCADE"), index=True)
    bill: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


class LatencyRow(Base):
    """What was learnt of the latencies of a deployed plan."""

    __tablename__ = "latencies"

    plan_id: Mapped[str] = mapped_column(Text, primary_key=True)
    learnt: Mapped[dict[str, object]] = mapped_column(DOCUMENT)


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
