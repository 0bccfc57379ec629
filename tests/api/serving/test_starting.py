"""What a service cannot start with is a sentence and an exit code, and no traceback."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from circinus.api.serving.service import main
from circinus.api.store.engine import connect, migrate
from tests.api.cli.commands import invoke
from tests.e2e.service_process import free_port

DATABASE, BAD_INPUT = 9, 2


def corrupt(folder: Path) -> str:
    (folder / "a.sqlite3").write_bytes(b"nothing of this kind" * 100)
    return f"sqlite:///{folder / 'a.sqlite3'}"


def newer(folder: Path) -> str:
    url = f"sqlite:///{folder / 'a.sqlite3'}"
    engine = connect(url)
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'from_tomorrow'"))
    engine.dispose()
    return url


def read_only(folder: Path) -> str:
    url = f"sqlite:///{folder / 'a.sqlite3'}"
    engine = connect(url)
    migrate(engine)
    engine.dispose()
    return f"sqlite:///file:{folder / 'a.sqlite3'}?mode=ro&uri=true"


def nowhere(folder: Path) -> str:
    return "sqlite:////proc/nowhere/a.sqlite3"


def unreachable(folder: Path) -> str:
    return f"postgresql://postgres@127.0.0.1:{free_port()}/nobody"


UNFIT: dict[str, tuple[Callable[[Path], str], str]] = {
    "corrupt": (corrupt, "the database is corrupt, or none of this kind: file is not a database"),
    "newer": (newer, "the database must be of this version of the service, or an older one: "),
    "read-only": (read_only, "the database is read-only: attempt to write a readonly database"),
    "no-folder": (nowhere, "the file of the database cannot be made: "),
    "unreachable": (unreachable, "the database cannot be reached now: connection failed: "),
}


def assert_told(output: str, words: str) -> None:
    (line,) = output.splitlines()
    assert line.startswith("error: ")
    assert words in line


def assert_not_started(capsys: pytest.CaptureFixture[str], code: int, words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main()
    assert_told(capsys.readouterr().err, words)
    assert ended.value.code == code


@pytest.mark.parametrize("kind", UNFIT)
def test_a_database_that_is_unfit_is_a_sentence_and_exit_code_9(
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url_in, words = UNFIT[kind]
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", url_in(tmp_path))
    assert_not_started(capsys, DATABASE, words)


def test_a_missing_driver_is_a_sentence_and_exit_code_9(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", "postgresql://postgres@127.0.0.1/nobody")
    words = "PostgreSQL needs its driver: pip install 'circinus[postgres]'"
    assert_not_started(capsys, DATABASE, words)


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        *((("serve",), kind) for kind in UNFIT),
        *((("history", "list"), kind) for kind in UNFIT if kind != "read-only"),
    ],
)
def test_every_command_says_the_same_of_a_database(
    command: tuple[str, ...], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url_in, words = UNFIT[kind]
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", url_in(tmp_path))
    result = invoke(*command)
    assert result.exit_code == DATABASE, result.output
    assert_told(result.stderr.splitlines()[-1], words)


@pytest.mark.parametrize("kind", [kind for kind in UNFIT if kind != "read-only"])
def test_doctor_says_the_same_of_a_database(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url_in, words = UNFIT[kind]
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", url_in(tmp_path))
    result = invoke("doctor", "--json")
    (found,) = (c for c in json.loads(result.stdout)["checks"] if c["name"] == "database")
    assert found["state"] == "fail"
    assert kind == "no-folder" or words in found["detail"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("port", "many", "port must be "),
        ("database_url", "mysql://x/y", "database_url must be of sqlite or postgresql"),
        ("database_url", "nonsense", "database_url must be a database URL"),
        ("infrastructure", "/nowhere/lab.yaml", "infrastructure"),
        ("quotas", "/nowhere/quotas.yaml", "quotas"),
        ("extra_pipelines", "nowhere:pipeline", "nowhere"),
        ("executor", "in-process", "executor must be pool"),
        ("method", "none", "method must be among"),
    ],
)
def test_a_setting_that_is_unfit_is_a_sentence_and_exit_code_2(
    name: str,
    value: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", f"sqlite:///{tmp_path / 'a.sqlite3'}")
    monkeypatch.setenv(f"CIRCINUS_{name.upper()}", value)
    assert_not_started(capsys, BAD_INPUT, words)
