"""How the tests of the command line run it, and what they look at."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

from circinus.api.cli import app
from tests.api.malformed import Wrong, as_yaml, query

NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens


def invoke(*arguments: str, columns: int = 200) -> Result:
    """Run a command, by default with room enough for every table, whatever it lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", _command)
        return CliRunner(env={"COLUMNS": str(columns)}).invoke(app, list(arguments))


@cache
def _command(application: typer.Typer) -> object:
    """Return the command of an application, made once: it takes 0.1 s."""
    return get_command(application)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if "__pycache__" not in path.parts}


def assert_refused(result: Result, wrong: Wrong) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if wrong.field in line]
    assert any(wrong.rule in line and wrong.value in line for line in lines), result.stderr


def adder_query(folder: Path, **changes: object) -> None:
    lines = [json.dumps({"input": i, "expected": i + 1}) for i in range(8)]
    (folder / "sums.jsonl").write_text("\n".join(lines))
    document = query(
        pipeline="my_pipelines:adder",
        data={"jsonl": "sums.jsonl"},
        slo={"accuracy": 1.0, "latency_s": 5.0},
    )
    (folder / "adder.yaml").write_text(as_yaml(document | changes))
