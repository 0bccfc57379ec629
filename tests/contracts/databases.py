"""Every kind of database that a service may have; each test gets an empty one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Engine

from circinus.api.store.engine import connect, migrate
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
    """Return an engine on a database with its tables."""
    engine = connect(url)
    migrate(engine)
    return engine
