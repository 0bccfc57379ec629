"""Which process runs which tests."""

from __future__ import annotations

from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import GROUPS, LONG

ROOT = Path(__file__).resolve().parents[1]


def test_files_that_are_named_are_there_and_in_one_group() -> None:
    files = [file for group in GROUPS.values() for file in group]
    assert len(files) == len(set(files))
    assert [file for file in (*files, *LONG) if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize(
    ("file", "until", "end", "skipped"),
    [
        (LONG[0], 0.0, inf, True),
        (LONG[0], inf, inf, False),
        ("tests/test_docs.py", 0.0, inf, False),
        ("tests/test_docs.py", inf, 0.0, True),
    ],
)
def test_what_no_time_is_left_for_is_skipped(
    file: str, until: float, end: float, skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conftest, "UNTIL", until)
    monkeypatch.setattr(conftest, "END", end)
    item: Any = SimpleNamespace(location=(file, 0, ""))
    try:
        conftest.pytest_runtest_setup(item)
    except pytest.skip.Exception:
        assert skipped
    else:
        assert not skipped
