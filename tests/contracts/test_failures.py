"""A database that fails says so in one sentence, over every kind of failure of real ones."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from circinus.api.store.engine import connect, migrate
from circinus.api.store.failures import DatabaseAway, DatabaseFailed, DatabaseFull, DatabaseUnfit
from circinus.api.store.store import Store
from tests import postgres
from tests.contracts.databases import opened
from tests.contracts.stores import new
from tests.programs import need


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of its own with 1 MB."""
    if os.getuid() != 0:
        pytest.skip("mounting a small disk needs root")
    need("mount")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let a disk be mounted")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_file_that_is_no_database_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite3").write_bytes(b"nothing of this kind" * 100)
    with pytest.raises(DatabaseUnfit, match="the database is corrupt, or none of this kind"):
        migrate(connect(f"sqlite:///{tmp_path / 'a.sqlite3'}"))


def test_a_database_with_torn_pages_is_told_in_a_sentence(tmp_path: Path) -> None:
    place = tmp_path / "a.sqlite3"
    opened(f"sqlite:///{place}").dispose()
    data = bytearray(place.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    place.write_bytes(data)
    with pytest.raises(DatabaseUnfit, match="the database is corrupt"):
        Store(connect(f"sqlite:///{place}")).queries(limit=1)


def test_a_newer_database_is_told_in_a_sentence(database_url: str) -> None:
    engine = opened(database_url)
    version = "UPDATE alembic_version SET version_num = '{}'"
    with engine.begin() as connection:
        before = connection.scalar(text("SELECT version_num FROM alembic_version"))
        connection.execute(text(version.format("from_tomorrow")))
    try:
        with pytest.raises(DatabaseUnfit, match="must be of this version of the service, or an"):
            migrate(engine)
    finally:
        with engine.begin() as connection:
            connection.execute(text(version.format(before)))
        engine.dispose()


def test_a_read_only_database_is_told_in_a_sentence(tmp_path: Path) -> None:
    place = tmp_path / "a.sqlite3"
    opened(f"sqlite:///{place}").dispose()
    store = Store(connect(f"sqlite:///file:{place}?mode=ro&uri=true"))
    assert store.queries(limit=1) == ()
    with pytest.raises(DatabaseUnfit, match="the database is read-only"):
        store.try_writing()


def test_a_folder_that_cannot_be_made_is_told_in_a_sentence() -> None:
    with pytest.raises(DatabaseUnfit, match="the file of the database cannot be made"):
        connect("sqlite:////proc/nowhere/a.sqlite3")


def test_a_full_disk_is_told_in_a_sentence_and_can_be_read(small_disk: Path) -> None:
    store = Store(opened(f"sqlite:///{small_disk / 'a.sqlite3'}"))
    store.submit(new("q-1"))
    with (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            try:
                filler.write(bytes(4096))
            except OSError:
                break
    with pytest.raises(DatabaseFull, match="the disk of the database is full"):
        _submit_many(store)  # more than what the write-ahead log has room for
    assert store.query("q-1").id == "q-1"
    (small_disk / "filler").unlink()
    store.try_writing()


def _submit_many(store: Store) -> None:
    for i in range(2, 1000):
        store.submit(new(f"q-{i}"))


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL server that a test may stop."""
    with postgres.own() as made:
        yield made


def test_a_server_that_is_stopped_is_away_and_is_found_again(
    server: postgres.PostgresServer, request: pytest.FixtureRequest
) -> None:
    store = Store(connect(server.fresh("away")))
    request.addfinalizer(store.close)
    store.submit(new("q-1"))
    server.stop()
    for _ in range(2):  # with a connection that broke, and without one
        with pytest.raises(DatabaseAway, match="the database cannot be reached now") as found:
            store.query("q-1")
        assert "127.0.0.1" not in str(found.value)
    with pytest.raises(DatabaseAway):
        store.try_writing()
    server.start()
    assert store.query("q-1").id == "q-1"
    store.try_writing()
    server.stop("immediate")
    server.start()
    assert store.query("q-1").id == "q-1"  # the pool finds out that its connections broke


def test_the_log_has_one_line_of_a_database_that_is_away_and_one_when_it_is_back(
    server: postgres.PostgresServer,
    caplog: pytest.LogCaptureFixture,
    request: pytest.FixtureRequest,
) -> None:
    caplog.set_level(logging.INFO)
    store = Store(connect(server.fresh("told")))
    request.addfinalizer(store.close)
    store.try_writing()
    server.stop()
    for _ in range(20):
        for door in (store.live, store.try_writing):
            with pytest.raises(DatabaseFailed):
                door()
    server.start()
    store.live()  # it can be read
    store.try_writing()
    store.try_writing()
    told = [record for record in caplog.records if record.name == "circinus.api.store.engine"]
    assert [record.message for record in told] == ["database.failed", "database.failed_over"]
    assert told[0].exc_info is None
    assert "cannot be reached now: " in told[0].circinus_fields["cause"]  # type: ignore[attr-defined]  # of an event
