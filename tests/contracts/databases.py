"""Every kind of database that a service may have; each test gets an empty one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine

from circinus.api.store.engine import Durability, connect, file_of, migrate
from tests import postgres as server


def sqlite_file(folder: Path) -> str:
    return f"sqlite:///{folder / 'made' / 'store.sqlite3'}"


def sqlite_memory(folder: Path) -> str:
    return "sqlite://"


def postgres(folder: Path) -> str:
    return server.shared().fresh("contract")


URLS: list[Callable[[Path], str]] = [sqlite_file, sqlite_memory, postgres]
"""Functions from a folder to the URL of a database."""


def opened(url: str) -> Engine:
    """Return an engine on a database with its tables; what it stores need not outlive a power cut.

    Migrations run once for each kind of database: others are copies of what they made.
    """
    engine = connect(url, Durability.PROCESS)
    if engine.url.get_backend_name() == "sqlite":  # PostgreSQL copies a template
        place = file_of(engine.url)
        if place is None:
            migrate(engine)
        elif place.stat().st_size == 0:
            place.write_bytes(_migrated())
    return engine


@cache
def _migrated() -> bytes:
    """Return the content of an SQLite file with empty tables."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "store.sqlite3"
        engine = connect(f"sqlite:///{place}", Durability.PROCESS)
        migrate(engine)
        engine.dispose()
        return place.read_bytes()
