"""The lock that makes a process the one service of a database.

Two services on one database would requeue each other's queries and deploy each plan twice. So a
service holds a lock while it runs, which needs no cleaning up. The kernel, or PostgreSQL, releases
it when the process ends, for whatever reason.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Engine, event, text

from circinus.api.store.engine import file_of, own_connection, reads_only
from circinus.api.store.failures import (
    DatabaseAway,
    DatabaseFailed,
    DatabaseOwned,
    DatabaseUnfit,
)

_PATIENCE_S = 1.0  # with another thread that finds out whether the lock is still held
_KEY = {"room": 0x63697263, "lock": 1}  # "circ", and the service of a database
_ALIVE = text("SELECT 1")
_TAKE = text("SELECT pg_try_advisory_lock(:room, :lock)").bindparams(**_KEY)
_BACKEND = text("SELECT pg_backend_pid()")
_END = text("SELECT pg_terminate_backend(:pid)")
# By default a server holds the connection of a host that vanished for hours.
_FIND_OUT = tuple(
    text(f"SET tcp_keepalives_{name} = {value}")
    for name, value in (("idle", 10), ("interval", 5), ("count", 3))
)
_HOLDER = text(
    "SELECT pid, activity.application_name"
    " FROM pg_locks JOIN pg_stat_activity AS activity USING (pid)"
    " WHERE locktype = 'advisory' AND granted AND classid = :room AND objid = :lock"
    " AND objsubid = 2 AND datname = current_database()"
).bindparams(**_KEY)


RequireOwned = Callable[[], None]
"""Returns when the lock is held; else DatabaseAway or DatabaseOwned."""


def owned(engine: Engine, name: str) -> AbstractContextManager[RequireOwned]:
    """Own the database of an engine while the context lasts; others' errors have the `name`.

    DatabaseOwned if another process does, with its name. On PostgreSQL the lock ends with its
    connection: then the engine writes nothing before the lock is held again; the yielded function
    checks that, too. A database in memory needs none.
    """
    if engine.dialect.name == "postgresql":
        return _session_held(engine, name)
    place = file_of(engine.url)
    return nullcontext(_held) if place is None else _file_held(place.resolve(), name)


def _held() -> None:
    """A lock that cannot be lost."""


@contextmanager
def _file_held(database: Path, name: str) -> Iterator[RequireOwned]:
    place = database.with_name(f"{database.name}.lock")
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise DatabaseUnfit("the lock of the database cannot be made", str(error)) from error
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _owned_by(file.read()) from error
        with suppress(OSError):  # a full disk has no room for the name: the lock needs none
            file.truncate(0)
            file.write(name)
            file.flush()
        yield _held


@contextmanager
def _session_held(engine: Engine, name: str) -> Iterator[RequireOwned]:
    held = _SessionLock(engine, name)
    held.require()

    def before_writing(connection: Connection) -> None:
        if not reads_only(connection):
            held.require()

    event.listen(engine, "begin", before_writing)
    try:
        yield held.require
    finally:
        event.remove(engine, "begin", before_writing)
        held.release()


@dataclass(slots=True)
class _SessionLock:
    """An advisory lock of PostgreSQL, on a connection that does nothing else."""

    engine: Engine
    name: str
    _connection: Connection | None = field(default=None, init=False)
    _backend: int | None = field(default=None, init=False)  # the server's end of the latest one
    _one_at_a_time: Lock = field(default_factory=Lock, init=False)

    def require(self) -> None:
        """Return when the lock is held: still, or taken again.

        DatabaseAway if that is unknown, DatabaseOwned if another service has it by now.
        """
        if not self._one_at_a_time.acquire(timeout=_PATIENCE_S):
            raise DatabaseAway("the database does not answer now")
        try:
            if not self._alive():
                self._take()
        finally:
            self._one_at_a_time.release()

    def release(self) -> None:
        """Release the lock."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _alive(self) -> bool:
        if self._connection is None:
            return False
        try:
            self._connection.execute(_ALIVE)
        except DatabaseFailed:
            self.release()
            return False
        return True

    def _take(self) -> None:
        connection = own_connection(self.engine, self.name)
        try:
            for setting in _FIND_OUT:
                connection.execute(setting)
            if not connection.scalar(_TAKE):
                raise self._refusal(connection)
            self._backend = connection.scalar(_BACKEND)
        except DatabaseFailed:
            connection.close()
            raise
        self._connection = connection

    def _refusal(self, connection: Connection) -> DatabaseFailed:
        pid, name = connection.execute(_HOLDER).first() or (None, "")
        if pid is None or pid != self._backend:
            return _owned_by(name)
        # The server has not noticed yet that this connection of ours is lost.
        connection.execute(_END, {"pid": pid})
        return DatabaseAway("the database lets go of a connection that was lost")


def _owned_by(holder: str) -> DatabaseOwned:
    return DatabaseOwned(f"the database must have one service, and has {holder or 'another'}")
