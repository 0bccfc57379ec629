"""Connections to the database, its tables of this version, and what each kind needs for both.

SQLite: write-ahead log (readers and the writer do not block each other), a busy
timeout instead of errors, foreign keys on, and transactions that take the write
lock when they begin: a lock taken halfway through cannot wait, it fails.

All reads and writes use a context of this module, which raises a `DatabaseFailed` of
`api.store.failures` where the database fails. It logs an outage once for all callers.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    Engine,
    NullPool,
    Select,
    create_engine,
    event,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as NoConnectionLeft
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import QueuePool

from circinus.api.event_log import Outage
from circinus.api.store.failures import DatabaseAway, DatabaseFailed, DatabaseUnfit, failure_in
from circinus.pipelines.errors import InvalidInput

if TYPE_CHECKING:
    from alembic.config import Config

Row = TypeVar("Row")

BUSY_TIMEOUT_MS = 20_000
_CONNECT_TIMEOUT_S = 5
_POOL: dict[str, Any] = {"pool_size": 5, "max_overflow": 20, "pool_timeout": 10.0}
_READ_ONLY = {"circinus_read": True}
_SCRIPTS = Path(__file__).parent / "migrations"
_BEFORE_RELEASE = re.compile(r"'00\d\d'")  # a revision, as alembic names it in its error
_LOG = logging.getLogger(__name__)


class Durability(StrEnum):
    """What a commit outlives."""

    POWER_LOSS = "FULL"
    PROCESS = "NORMAL"
    """A killed process, not a power cut: commits cost no wait for the disk."""


def connect(url: str, durability: Durability = Durability.POWER_LOSS) -> Engine:
    """Return an engine; the folder of an SQLite file is made when it is missing.

    URLs are `sqlite:///FILE`, `sqlite://` (in memory, gone when closed) and `postgresql://...`;
    any other raises InvalidInput. DatabaseUnfit if the driver is missing, or the folder cannot be
    made. The durability is of SQLite only.
    """
    parsed = _parsed(url)
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        kind = parsed.get_backend_name()
        raise InvalidInput.of("database_url", "must be of sqlite or postgresql", kind)
    if parsed.get_backend_name() == "postgresql":
        return _postgres(parsed, **_POOL)
    _make_file(file_of(parsed))
    engine = create_engine(
        parsed,
        poolclass=QueuePool,
        # Every connection to memory would have a database of its own: there is one, in turns.
        **(_POOL if file_of(parsed) else {"pool_size": 1, "max_overflow": 0}),
        connect_args={"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000},
    )
    event.listen(engine, "handle_error", failure_in)
    _prepare_sqlite(engine, durability)
    return engine


def file_of(url: URL) -> Path | None:
    """Return the file of an SQLite database; None: it is in memory."""
    name = (url.database or "").removeprefix("file:")
    return None if name in ("", ":memory:") else Path(name)


def files_of(url: str) -> Sequence[Path]:
    """Return the files that an SQLite database may have; none for another kind, or in memory.

    InvalidInput for what is no URL.
    """
    parsed = _parsed(url)
    place = file_of(parsed) if parsed.get_backend_name() == "sqlite" else None
    return (
        []
        if place is None
        else [place.with_name(place.name + end) for end in ("", "-wal", "-shm")]
    )


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError as error:
        raise InvalidInput.of("database_url", "must be a database URL", url) from error


def own_connection(engine: Engine, name: str) -> Connection:
    """Return a connection to PostgreSQL outside the pool, named at the server.

    It executes statements outside transactions.
    """
    alone = _postgres(engine.url, poolclass=NullPool, named=name)
    return alone.connect().execution_options(isolation_level="AUTOCOMMIT")


def _postgres(url: URL, named: str = "circinus", **pool: Any) -> Engine:  # noqa: ANN401 - SQLAlchemy's own
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    # A server that is cut off silently is detected, and abandoned, within seconds.
    alive = {"keepalives_idle": 10, "keepalives_interval": 5, "tcp_user_timeout": 20_000}
    arguments = {"application_name": named, "connect_timeout": _CONNECT_TIMEOUT_S, **alive}
    try:
        engine = create_engine(url, pool_pre_ping=True, connect_args=arguments, **pool)
    except ModuleNotFoundError as error:
        rule = "PostgreSQL needs its driver: pip install 'circinus[postgres]'"
        raise DatabaseUnfit(rule, str(error)) from error
    event.listen(engine, "handle_error", failure_in)
    return engine


def _make_file(place: Path | None) -> None:
    """Make an SQLite file and its folder if missing; only its user may read it."""
    if place is None:
        return
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_RDONLY, 0o600))
    except OSError as error:
        raise DatabaseUnfit("the file of the database cannot be made", str(error)) from error


def _prepare_sqlite(engine: Engine, durability: Durability) -> None:
    # Any: the DBAPI's own connection has no type in common between drivers.
    def set_pragmas(connection: Any, _: object) -> None:  # noqa: ANN401
        connection.isolation_level = None  # we send BEGIN ourselves
        for pragma in (
            f"busy_timeout = {BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            f"synchronous = {durability.value}",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN" if reads_only(connection) else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", set_pragmas)
    event.listen(engine, "begin", begin)


def migrate(engine: Engine) -> None:
    """Run every new migration of the database, all or nothing: before it is used.

    DatabaseUnfit if a newer version of the service has used it.
    """
    from alembic import command  # here alone: who finds tables there spares it

    config = _migrations()
    with _connected(engine) as connection, connection.begin(), _of_known_version():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def require_known(engine: Engine) -> None:
    """Raise DatabaseFailed for what `migrate` would refuse; nothing is changed."""
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(_migrations())
    with _connected(engine, writes=False) as connection, _of_known_version():
        version = MigrationContext.configure(connection).get_current_revision()
        if version is not None:
            scripts.get_revision(version)


def _migrations() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _of_known_version() -> Iterator[None]:
    from alembic.util import CommandError

    try:
        yield
    except CommandError as error:
        sentence = "the database must be of this version of the service, or an older one"
        if _BEFORE_RELEASE.search(str(error)):
            sentence = "the database is older than the first release and must be made anew"
        raise DatabaseUnfit(sentence, str(error)) from error


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Return a session whose changes are stored when the block ends well, else none of them."""
    with (
        _connected(engine) as connection,
        Session(connection, expire_on_commit=False) as session,
        session.begin(),
    ):
        yield session


def one_at_a_time(session: Session, what: str) -> None:
    """Wait until no other transaction does `what`, and block others until this one ends.

    On PostgreSQL, where a transaction does not see uncommitted rows of others; with SQLite there
    is one writer at a time anyway.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(func.hashtext(what))))


def insertion(engine: Engine, into: type[DeclarativeBase]) -> sqlite.Insert | postgresql.Insert:
    """Return an insertion with `on_conflict` clauses, in the dialect of each kind.

    `Session.merge` reads first: if two read nothing and both insert, one fails.
    """
    if engine.dialect.name == "postgresql":
        return postgresql.insert(into)
    return sqlite.insert(into)


def rows(engine: Engine, wanted: Select[Row]) -> Sequence[Row]:
    """Return what a selection of one thing finds, without a lock."""
    with reading(engine) as session:
        return session.scalars(wanted).all()


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Return a session that takes no lock."""
    with (
        _connected(engine, writes=False) as connection,
        Session(connection.execution_options(**_READ_ONLY)) as session,
    ):
        yield session


def reads_only(connection: Connection) -> bool:
    """Return whether a connection is that of a `reading`."""
    return bool(connection.get_execution_options().get("circinus_read", False))


@contextmanager
def _connected(engine: Engine, *, writes: bool = True) -> Iterator[Connection]:
    log = _log_of(engine.url.render_as_string())
    try:
        with _connection(engine) as connection:
            yield connection
    except DatabaseFailed as error:
        log.failed(error, writes=writes)
        raise
    log.succeeded(writes=writes)


def _connection(engine: Engine) -> Connection:
    try:
        return engine.connect()
    except NoConnectionLeft as error:
        raise DatabaseAway("too many wait for the database", str(error)) from error


@dataclass(slots=True)
class _DatabaseLog:
    """The log of a database in this process: one outage, however many callers meet it."""

    outage: Outage = field(default_factory=lambda: Outage(_LOG, "database.failed"))
    of_writing: bool = False  # a full disk can still be read

    def failed(self, error: DatabaseFailed, *, writes: bool) -> None:
        if _LOG.hasHandlers():  # a command prints it by itself
            self.of_writing |= writes
            self.outage.lasts(cause=error.whole)

    def succeeded(self, *, writes: bool) -> None:
        if writes or not self.of_writing:
            self.of_writing = False
            self.outage.over()


@cache
def _log_of(url: str) -> _DatabaseLog:
    return _DatabaseLog()
