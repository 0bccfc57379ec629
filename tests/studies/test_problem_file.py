from __future__ import annotations

from pathlib import Path

import pytest

from circinus.pipelines.errors import InvalidInput
from circinus.studies.scheduling.problems import read_problem


def test_a_file_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"problem must be a readable file \(No such file"):
        read_problem(tmp_path / "none.json")


@pytest.mark.parametrize("text", ["tiers: []", "[" * 100_000, "\xff"])
def test_a_file_must_be_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "problem.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match="problem must be JSON"):
        read_problem(path)


def test_a_problem_is_read(tmp_path: Path) -> None:
    path = tmp_path / "problem.json"
    path.write_text('{"tiers": [{"name": "cloud", "machines": 2}], "queries": []}')
    assert read_problem(path).tiers[0].machines == 2
