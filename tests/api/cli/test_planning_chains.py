"""Chains of one's own through the command line: checked first, then planned by fresh processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.api.cli.commands import invoke

HERE = "tests.api.cli.chains"


@pytest.fixture
def query(folder: Path) -> str:
    examples = [{"input": text, "expected": "yes"} for text in ("cat dog", "dog", "fish bird")]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, examples)))
    return str(folder / "own.yaml")


def _written(query: str, name: str) -> str:
    slo = {"accuracy": 0.0, "latency_s": 10.0}
    asked = {"pipeline": f"{HERE}:{name}", "slo": slo, "data": {"jsonl": "own.jsonl"}}
    Path(query).write_text(yaml.safe_dump(asked))
    return query


@pytest.mark.parametrize("command", ["validate", "plan"])
def test_a_chain_that_would_come_out_false_is_refused_with_its_step(
    query: str, command: str
) -> None:
    result = invoke(command, _written(query, "hiding"), "--infrastructure", "one-tier")

    assert result.exit_code == 2
    assert "operator hides must give by itself" in result.stderr


def test_validate_refuses_an_example_whose_step_exits(query: str) -> None:
    result = invoke("validate", _written(query, "leaving"), "--infrastructure", "one-tier")

    assert result.exit_code == 2
    assert "(operator leaves failed: SystemExit: 3), got 'cat dog'" in result.stderr


def test_validate_tells_a_knob_that_changes_nothing(query: str) -> None:
    result = invoke("validate", _written(query, "idle"), "--infrastructure", "one-tier")

    assert result.exit_code == 0, result.output
    assert "remark: knob Scale.times changed nothing on 3 inputs" in result.stdout


def test_a_retrieval_chain_is_planned_by_worker_processes(query: str) -> None:
    asked = _written(query, "retrieval")
    result = invoke(
        "plan", asked, "--infrastructure", "one-tier", "--executor", "pool", "--json", "--cold"
    )

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outcome"] == "feasible"
