from __future__ import annotations

import csv
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from math import nan
from pathlib import Path

import pytest

from circinus.deploy.methods import method_where
from circinus.studies.planning.drift import DriftRow
from circinus.studies.planning.study import PlanningRow
from circinus.studies.report.tables import markdown, text, version, version_of, written
from tests.programs import need

PACKAGE = metadata.version("circinus")


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    name: str
    share: float
    ended: bool
    note: str | None = None


ROWS = (Made(name="a", share=1 / 3, ended=True), Made(name="b", share=nan, ended=False, note="n"))


def git(folder: Path, *words: str) -> str:
    need("git")
    author = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    command = ["git", "-C", str(folder), *author, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is committed, in a folder of its own."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)  # of a hook that runs the tests
    file = tmp_path / "checkout" / "package" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text("x = 1\n")
    git(tmp_path / "checkout", "init", "--quiet")
    git(file.parent, "add", "module.py")
    git(file.parent, "commit", "--quiet", "--message", "One")
    return file


def test_outside_of_a_checkout_it_is_the_version_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "module.py").touch()
    assert version_of(tmp_path / "module.py") == PACKAGE
    assert version_of(tmp_path / "nowhere" / "module.py") == PACKAGE


def test_a_file_that_somebody_elses_checkout_does_not_track_has_no_commit(source: Path) -> None:
    installed = source.with_name("installed.py")
    installed.touch()
    assert version_of(installed) == PACKAGE


def test_a_checkout_without_a_commit_adds_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "module.py").touch()
    git(tmp_path, "add", "module.py")
    assert version_of(tmp_path / "module.py") == PACKAGE


def test_without_git_it_is_the_version_of_the_package(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert version_of(source) == PACKAGE


def test_a_checkout_adds_its_commit(source: Path) -> None:
    assert version_of(source) == f"{PACKAGE}+{git(source.parent, 'rev-parse', '--short', 'HEAD')}"


def test_a_shallow_clone_adds_its_commit(source: Path, tmp_path: Path) -> None:
    origin = f"file://{source.parents[1]}"
    git(tmp_path, "clone", "--quiet", "--depth", "1", origin, "shallow")
    assert version_of(tmp_path / "shallow" / "package" / "module.py") == version_of(source)


def test_a_change_of_any_tracked_file_is_told_and_other_files_are_not(source: Path) -> None:
    clean = version_of(source)
    (source.parents[1] / "notes.txt").write_text("new\n")
    assert version_of(source) == clean
    git(source.parent, "add", "../notes.txt")  # tracked from now on
    assert version_of(source) == clean + ".dirty"
    git(source.parent, "commit", "--quiet", "--message", "Two")
    source.write_text("x = 2\n")
    commit = git(source.parent, "rev-parse", "--short", "HEAD")
    assert version_of(source) == f"{PACKAGE}+{commit}.dirty"


def test_the_version_of_a_process_is_that_of_its_source() -> None:
    assert version().startswith(PACKAGE)
    assert version() is version()


def test_a_table_without_rows_has_its_columns(tmp_path: Path) -> None:
    assert written([], Made, tmp_path / "new" / "made.csv") == []
    assert (tmp_path / "new" / "made.csv").read_text() == "name,share,ended,note,version\n"


def test_every_row_has_the_version(tmp_path: Path) -> None:
    assert written(iter(ROWS), Made, tmp_path / "made.csv") == list(ROWS)
    assert (tmp_path / "made.csv").read_text().splitlines() == [
        "name,share,ended,note,version",
        f"a,0.333333,true,,{version()}",
        f"b,nan,false,n,{version()}",
    ]


def test_fields_may_be_left_out_and_numbers_written_in_full(tmp_path: Path) -> None:
    written(ROWS, Made, tmp_path / "made.csv", without=("ended", "note"), digits=None)
    with (tmp_path / "made.csv").open() as file:
        first, _ = csv.DictReader(file)
    assert list(first) == ["name", "share", "version"]
    assert float(first["share"]) == 1 / 3


def test_a_row_is_there_before_the_next_one_is_made(tmp_path: Path) -> None:
    def rows() -> list[str]:
        return (tmp_path / "made.csv").read_text().splitlines()

    def made() -> Iterator[Made]:
        yield ROWS[0]
        assert len(rows()) == 2
        yield ROWS[1]

    written(made(), Made, tmp_path / "made.csv")
    assert len(rows()) == 3


@pytest.mark.parametrize("kind", [PlanningRow, DriftRow])
def test_rows_of_planning_get_a_version_and_no_second_method(kind: type, tmp_path: Path) -> None:
    written([], kind, tmp_path / "made.csv")
    (head,) = (tmp_path / "made.csv").read_text().splitlines()
    columns = head.split(",")
    assert columns[-1] == "version"
    assert len(set(columns)) == len(columns)


def test_numbers_are_short_in_tables_for_readers() -> None:
    assert [text(1 / 3), text(1e9), text(None), text(True), text(7)] == [
        *("0.333333", "1e+09", "", "true", "7"),
    ]
    assert text(1 / 3, 2) == "0.33"
    assert "version" not in markdown(ROWS, Made)


def test_a_part_is_of_the_method_that_names_it_or_of_none() -> None:
    assert method_where(lambda method: method.dispatch == "plan_ahead") == "default"
    assert method_where(lambda method: method.scheduling == "greedy") == "published"
    assert method_where(lambda method: method.dispatch == "fcfs") is None
