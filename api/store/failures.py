"""Failures of a database, in words: the one table from drivers' errors to the project's.

The sentence is for all, clients included. `why`, the driver's own words, may name hosts and files.
It is for the log and for the operator of the service.
"""

from __future__ import annotations

from sqlalchemy.engine import ExceptionContext

from circinus.pipelines.errors import Unavailable

_RETRY_AFTER_S = 2.0


class DatabaseFailed(Unavailable):
    """The database did not execute a statement; nothing of it is stored."""

    def __init__(self, sentence: str, why: str = "") -> None:
        self.why = why.strip().partition("\n")[0]
        super().__init__(sentence, retry_after_s=_RETRY_AFTER_S)

    @property
    def whole(self) -> str:
        """The sentence with its reason."""
        return f"{self}: {self.why}" if self.why else str(self)


class DatabaseAway(DatabaseFailed):
    """It does not answer, or too late: it may be available again in a moment."""


class DatabaseFull(DatabaseFailed):
    """Its disk has no room."""


class DatabaseUnfit(DatabaseFailed):
    """It answers but is unfit for this service, until its operator repairs it."""


class DatabaseOwned(DatabaseFailed):
    """Another service has it."""


_AWAY = (DatabaseAway, "the database cannot be reached now")
_FULL = (DatabaseFull, "the disk of the database is full")
_CORRUPT = (DatabaseUnfit, "the database is corrupt, or none of this kind")
_READ_ONLY = (DatabaseUnfit, "the database is read-only")
_NO_ENTRY = (DatabaseUnfit, "the database does not let the service in")

_Failure = tuple[type[DatabaseFailed], str]
_SQLITE: dict[str, _Failure] = {
    "BUSY": _AWAY,
    "CANTOPEN": _AWAY,
    "IOERR": _AWAY,
    "LOCKED": _AWAY,
    "PROTOCOL": _AWAY,
    "FULL": _FULL,
    "CORRUPT": _CORRUPT,
    "NOTADB": _CORRUPT,
    "READONLY": _READ_ONLY,
    "AUTH": _NO_ENTRY,
    "PERM": _NO_ENTRY,
}
"""By SQLite's result code, `SQLITE_<KEY>` or `SQLITE_<KEY>_<DETAIL>`."""
_POSTGRES: dict[str, _Failure] = {
    "53100": _FULL,
    "53": _AWAY,  # too many connections, out of memory
    "08": _AWAY,  # the connection broke
    "57": _AWAY,  # the server is shut down, is starting, or cancelled the statement
    "58": _AWAY,  # its disk does not answer
    "40": _AWAY,  # a deadlock: it was undone, and may be tried again
    "55P03": _AWAY,  # a lock that was not had in time
    "XX": _CORRUPT,
    "25006": _READ_ONLY,
    "28": _NO_ENTRY,
    "3D": _NO_ENTRY,  # there is no such database
    "42501": _NO_ENTRY,
}
"""By SQLSTATE, or its class."""


def failure_in(context: ExceptionContext) -> DatabaseFailed | None:
    """Return what a driver's error means; None: the statement was wrong, not the database."""
    if context.is_pre_ping:  # the pool finds another connection
        return None
    error = context.original_exception
    failure = _failure(error, connects=context.connection is None or context.is_disconnect)
    if failure is None:
        return None
    kind, sentence = failure
    return kind(sentence, str(error))


def _failure(error: BaseException, *, connects: bool) -> _Failure | None:
    name = getattr(error, "sqlite_errorname", None)
    if name is not None:
        return _SQLITE.get(name.split("_")[1])
    state = getattr(error, "sqlstate", None)
    if state is not None:
        return _POSTGRES.get(state) or _POSTGRES.get(state[:2])
    return _AWAY if connects else None
