"""A throw-away PostgreSQL server for tests, of the programs that this machine has."""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest
from sqlalchemy import text

from circinus.api.store.engine import connect, migrate, own_connection
from circinus.api.store.tables import Base
from tests.e2e.service_process import free_port

REQUIRED = "CIRCINUS_TEST_POSTGRES"
"""Set to `required` where tests fail without a server; otherwise they are skipped."""
_PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_USER = "postgres"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # a crash of the server, not of the machine
    "shared_buffers": "32MB",
}
_TEMPLATE = "migrated"


@dataclass(slots=True)
class PostgresServer:
    """A server with a folder and a port of loopback of its own; nobody needs a password."""

    programs: Path
    folder: Path
    port: int = field(default_factory=free_port)
    _made: set[str] = field(default_factory=set, init=False)  # databases

    def create(self) -> None:
        """Make the data, start the server, and make the tables that every database begins with."""
        user = _other_user()
        if user is not None:
            shutil.chown(self.folder, user)
        self._run("initdb", "--auth=trust", f"--username={_USER}", "--encoding=UTF8", "--no-sync")
        lines = "".join(f"{name} = '{value}'\n" for name, value in _SETTINGS.items())
        with (self.folder / "postgresql.conf").open("a") as settings:
            settings.write(f"{lines}port = {self.port}\n")
        self.start()
        self.sql(f"CREATE DATABASE {_TEMPLATE}")
        engine = connect(self.url(_TEMPLATE))
        migrate(engine)
        engine.dispose()

    def start(self) -> None:
        """Start it; return when it answers."""
        log = str(self.folder / "server.log")
        self._run("pg_ctl", "start", "--wait", "--silent", f"--log={log}")

    def stop(self, mode: str = "fast") -> None:
        """End it: `fast` in order, `immediate` as a crash does."""
        self._run("pg_ctl", "stop", "--wait", "--silent", f"--mode={mode}")

    def remove(self) -> None:
        """End it, and forget everything."""
        if (self.folder / "postmaster.pid").exists():
            self.stop("immediate")
        shutil.rmtree(self.folder)

    def fresh(self, name: str) -> str:
        """Return the URL of a database of a name with empty tables; an earlier one is emptied."""
        if name in self._made:
            tables = ", ".join(table.name for table in Base.metadata.sorted_tables)
            with own_connection(connect(self.url(name)), "emptying") as connection:
                connection.execute(text(f"TRUNCATE {tables} RESTART IDENTITY"))
        else:
            self.sql(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
            self._made.add(name)
        return self.url(name)

    def url(self, name: str) -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{name}"

    def sql(self, statement: str, database: str = _USER) -> str:
        """Return what a statement gives, as text."""
        told = ("--no-psqlrc", "--tuples-only", "--no-align", "--quiet", f"--command={statement}")
        return self._run("psql", *told, self.url(database)).strip()

    def _run(self, program: str, *told: str) -> str:
        environment = {"PATH": os.defpath, "PGDATA": str(self.folder), "LC_ALL": "C"}
        done = subprocess.run(
            [str(self.programs / program), *told],
            env=environment,
            user=_other_user(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{program}: {done.stdout}"
        return done.stdout


@cache
def shared() -> PostgresServer:
    """Return the server of this test run, started when it is first asked for."""
    server = _made()
    atexit.register(server.remove)
    return server


@contextmanager
def own() -> Iterator[PostgresServer]:
    """Return a server that may be stopped and started meanwhile."""
    server = _made()
    try:
        yield server
    finally:
        server.remove()


def _made() -> PostgresServer:
    programs = next((place for place in _PLACES if (place / "initdb").exists()), None)
    if programs is None:
        not_here("PostgreSQL is not installed: `apt-get install postgresql`")
    if os.getuid() == 0 and _other_user() is None:
        not_here(f"PostgreSQL does not run as root, and there is no user {_USER}")
    server = PostgresServer(programs, Path(tempfile.mkdtemp(prefix="circinus-postgres-")))
    server.create()
    return server


def not_here(reason: str) -> NoReturn:
    """Skip what this machine cannot do; fail where it is required."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(reason)
    pytest.skip(reason)


@cache
def _other_user() -> str | None:
    """Return who runs the server in place of root; None: this user does."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return _USER if os.getuid() == 0 and _USER in names else None
