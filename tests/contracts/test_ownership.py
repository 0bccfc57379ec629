"""A database has one service: the contract of `owned`, over every kind of database."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine

from circinus.api.store.engine import connect as engine_on
from circinus.api.store.failures import DatabaseAway, DatabaseOwned, DatabaseUnfit
from circinus.api.store.ownership import owned
from circinus.api.store.store import Store
from tests import postgres
from tests.contracts.databases import opened, sqlite_file
from tests.contracts.databases import postgres as postgres_database
from tests.contracts.stores import new

_HOLD = """
import sys
from circinus.api.store.engine import connect
from circinus.api.store.ownership import owned
with owned(connect(sys.argv[1]), "the first"):
    print("held", flush=True)
    sys.stdin.read()
"""
KINDS = pytest.mark.parametrize("kind", [sqlite_file, postgres_database], ids=["sqlite", "pg"])
Kind = Callable[[Path], str]
Connect = Callable[[str], Engine]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Connect to a database, and let go of it in the end."""
    with ExitStack() as opened_engines:

        def make(url: str) -> Engine:
            engine = engine_on(url)
            opened_engines.callback(engine.dispose)
            return engine

        yield make


@KINDS
def test_a_second_process_is_refused_and_told_who_is_first(
    kind: Kind, tmp_path: Path, connect: Connect
) -> None:
    url = kind(tmp_path)
    opened(url).dispose()
    command = [sys.executable, "-c", _HOLD, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"held\n"
        words = "the database must have one service, and has the first"
        with pytest.raises(DatabaseOwned, match=words), owned(connect(url), "the second"):
            pass
        first.kill()  # what it held, nobody has to clean up
        first.wait()
        with owned(connect(url), "the second"):
            pass


@KINDS
def test_who_let_go_of_it_is_followed_by_the_next(
    kind: Kind, tmp_path: Path, connect: Connect
) -> None:
    url = kind(tmp_path)
    for name in ("a", "b"):
        with owned(connect(url), name) as require:
            require()


@KINDS
def test_others_read_and_write_what_a_service_owns(
    kind: Kind, tmp_path: Path, connect: Connect
) -> None:
    url = kind(tmp_path)
    opened(url).dispose()
    engine = connect(url)
    with owned(engine, "the service"):
        Store(connect(url)).submit(new("q-1"))
        assert Store(engine).query("q-1").id == "q-1"


def test_a_lock_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path) -> None:
    engine = opened(f"sqlite:///{tmp_path / 'a.sqlite3'}")
    (tmp_path / "a.sqlite3.lock").mkdir()
    with pytest.raises(DatabaseUnfit, match="the lock of the database cannot be made"):
        owned(engine, "a").__enter__()


def test_databases_in_memory_are_each_ones_own(connect: Connect) -> None:
    with owned(connect("sqlite://"), "a") as require, owned(connect("sqlite://"), "b"):
        require()


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL server that a test may stop."""
    with postgres.own() as made:
        yield made


def test_a_service_whose_connection_broke_takes_the_lock_again_before_it_writes(
    server: postgres.PostgresServer, connect: Connect
) -> None:
    url = server.fresh("broken")
    engine = connect(url)
    with owned(engine, "the first") as require:
        store = Store(engine)
        store.submit(new("q-1"))
        server.stop()
        with pytest.raises(DatabaseAway):
            store.try_writing()
        with pytest.raises(DatabaseAway):
            require()
        server.start()
        store.try_writing()
        with pytest.raises(DatabaseOwned, match="and has the first"), owned(connect(url), "b"):
            pass


def test_a_service_whose_lock_another_took_reads_on_and_writes_nothing(
    server: postgres.PostgresServer, connect: Connect
) -> None:
    url = server.fresh("taken")
    engine = connect(url)
    with owned(engine, "the first"):
        store = Store(engine)
        store.submit(new("q-1"))
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
        with owned(connect(url), "the second"):
            assert store.query("q-1").id == "q-1"
            with pytest.raises(DatabaseOwned, match="one service, and has the second"):
                store.submit(new("q-2"))
        store.submit(new("q-2"))  # the second is gone
    assert [record.id for record in store.queries(limit=9)] == ["q-2", "q-1"]


def test_a_connection_that_the_server_does_not_know_to_be_lost_holds_nobody_up(
    server: postgres.PostgresServer, connect: Connect
) -> None:
    url = server.fresh("half_lost")
    engine = connect(url)
    with owned(engine, "the first") as require:
        # As when a network swallows all packets: this end is given up, the other one stays.
        lock = require.__self__  # type: ignore[attr-defined]  # a method
        kept, lock._connection = lock._connection, None
        with pytest.raises(DatabaseAway, match="lets go of a connection that was lost"):
            require()
        for _ in range(50):
            try:
                require()
            except DatabaseAway:
                continue
            break
        require()
        kept.invalidate()
        kept.close()
