"""Which process runs which tests."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import GROUPS, LONG

ROOT = Path(__file__).resolve().parents[1]


def test_files_that_are_named_are_there_and_in_one_group() -> None:
    files = [file for group in GROUPS.values() for file in group]
    assert len(files) == len(set(files))
    assert [file for file in (*files, *LONG) if not (ROOT / file).is_file()] == []
