"""Sessions on an engine: one that writes, all or nothing, and one that only looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from api.store.engine import READ_ONLY


@contextmanager
def writing(engine: Engine) -> Iterator[Session]:
    """Give a session whose changes are stored when the block ends well, else none of them."""
    with Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def reading(engine: Engine) -> Iterator[Session]:
    """Give a session that takes no lock."""
    with (
        engine.connect().execution_options(**READ_ONLY) as connection,
        Session(connection) as session,
    ):
        yield session
