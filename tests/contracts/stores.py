"""Every implementation of `Store`, and queries in it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import delete

from circinus.api.phases import QueryPhase
from circinus.api.store.engine import connect, migrate
from circinus.api.store.records import NewQuery, PlanningEnding
from circinus.api.store.store import Store
from circinus.api.store.tables import Base

POSTGRES = os.environ.get("CIRCINUS_TEST_POSTGRES", "")


def sqlite_file(folder: Path) -> Store:
    engine = connect(f"sqlite:///{folder / 'made' / 'store.sqlite3'}")
    migrate(engine)
    return Store(engine)


def sqlite_memory(folder: Path) -> Store:
    engine = connect("sqlite://")
    migrate(engine)
    return Store(engine)


def postgres(folder: Path) -> Store:
    engine = connect(POSTGRES)
    migrate(engine)
    with engine.begin() as connection:
        for table in reversed(Base.metadata.sorted_tables):
            connection.execute(delete(table))
    return Store(engine)


MAKERS: list[Callable[[Path], Store]] = [sqlite_file, sqlite_memory]
if POSTGRES:
    MAKERS.append(postgres)


def new(query_id: str, *, key: str | None = None, fingerprint: str = "f") -> NewQuery:
    spec = {"pipeline": "digits", "slo": {"accuracy": 0.5}}
    return NewQuery(id=query_id, spec=spec, fingerprint=fingerprint, idempotency_key=key, at=100.0)


def planned(store: Store, query_id: str = "q-1", *, plans: int = 2) -> None:
    store.submit(new(query_id))
    claimed = store.queue.claim("w-1", at=101.0)
    assert claimed is not None
    documents = tuple((f"p-{i}", {"id": f"p-{i}", "cost": i}) for i in range(plans))
    ending = PlanningEnding(
        phase=QueryPhase.WAITING, message="planned", result={"plans": plans}, plans=documents
    )
    assert store.queue.finish(claimed.id, "w-1", ending, at=102.0)
