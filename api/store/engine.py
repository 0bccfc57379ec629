"""Connections to the database, its tables of this version, and what SQLite needs for both.

SQLite: write-ahead log (readers and the writer do not block each other), a busy
timeout instead of errors, foreign keys on, and transactions that take the write
lock when they begin: a lock taken halfway through cannot wait, it fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, Select, create_engine, event, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from circinus.pipelines.errors import InvalidInput

Row = TypeVar("Row")

BUSY_TIMEOUT_MS = 20_000
_READ_ONLY = {"circinus_read": True}
_SCRIPTS = Path(__file__).parent / "migrations"


class Durability(StrEnum):
    """What a commit outlives."""

    POWER_LOSS = "FULL"
    PROCESS = "NORMAL"
    """A killed process, not a power cut: commits cost no wait for the disk."""


def connect(url: str, durability: Durability = Durability.POWER_LOSS) -> Engine:
    """Give an engine; the folder of an SQLite file is made when it is missing.

    URLs are `sqlite:///FILE`, `sqlite://` (in memory, gone when closed), `postgresql+...`; any
    other raises InvalidInput. The durability is of SQLite only.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise InvalidInput.of("database_url", "must be a database URL", url) from error
    if parsed.get_backend_name() != "sqlite":
        return create_engine(parsed, pool_pre_ping=True)
    in_memory = parsed.database in (None, "", ":memory:")
    if not in_memory:
        Path(str(parsed.database)).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        parsed,
        poolclass=QueuePool,
        # Every connection to memory would have a database of its own: there is one, in turns.
        pool_size=1 if in_memory else 5,
        max_overflow=0 if in_memory else 20,
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )
    _prepare_sqlite(engine, durability)
    return engine


def _prepare_sqlite(engine: Engine, durability: Durability) -> None:
    # Any: the DBAPI's own connection has no type in common between drivers.
    def set_pragmas(connection: Any, _: object) -> None:  # noqa: ANN401
        connection.isolation_level = None  # we say BEGIN ourselves
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            f"synchronous = {durability.value}",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        reading = connection.get_execution_options().get("circinus_read", False)
        connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", set_pragmas)
    event.listen(engine, "begin", begin)


def migrate(engine: Engine) -> None:
    """Run every migration that the database has not seen, all or nothing: before it is used."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Give a session whose changes are stored when the block ends well, else none of them."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


def one_at_a_time(session: Session, what: str) -> None:
    """Wait until no other transaction does `what`, and keep others from it till this one ends.

    On PostgreSQL, where a transaction does not see what others are about to store; with SQLite
    there is one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(what))))


def rows(engine: Engine, wanted: Select[Row]) -> Sequence[Row]:
    """Give what a selection of one thing finds, without a lock."""
    with reading(engine) as session:
        return session.scalars(wanted).all()


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Give a session that takes no lock."""
    with (
        engine.connect().execution_options(**_READ_ONLY) as connection,
        Session(connection) as session,
    ):
        yield session
