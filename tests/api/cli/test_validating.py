"""Checking files and running nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from circinus.api.query_file import query_schema
from tests.api.cli.commands import assert_refused, files, invoke
from tests.api.malformed import DOCUMENTS, INFRASTRUCTURES, TEXTS, Wrong, as_yaml, query


@pytest.mark.parametrize("wrong", DOCUMENTS + TEXTS, ids=lambda wrong: wrong.name)
def test_a_malformed_query_file_ends_in_2_and_changes_nothing(wrong: Wrong, folder: Path) -> None:
    content = wrong.content
    text = as_yaml(content) if isinstance(content, dict | list) else content
    (folder / "wrong.yaml").write_bytes(text if isinstance(text, bytes) else str(text).encode())
    before = files(folder)
    assert_refused(invoke("validate", "wrong.yaml"), wrong)
    assert files(folder) == before


@pytest.mark.parametrize("wrong", INFRASTRUCTURES, ids=lambda wrong: wrong.name)
def test_a_malformed_infrastructure_ends_in_2_and_changes_nothing(
    wrong: Wrong, folder: Path
) -> None:
    (folder / "lab.yaml").write_text(as_yaml(wrong.content))
    before = files(folder)
    assert_refused(invoke("validate", "good.yaml", "--infrastructure", "lab.yaml"), wrong)
    assert files(folder) == before


@pytest.mark.parametrize(
    ("document", "field", "rule", "value"),
    [
        (
            query(pipeline="my_pipelines:cyclic"),
            "operators",
            "must not form a cycle",
            "['a', 'b']",
        ),
        (query(pipeline="my_pipelines:number"), "pipeline", "must name a Pipeline", "int"),
        (query(pipeline="my_pipelines:absent"), "pipeline", "must be importable", "absent"),
        (query(pipeline="my_pipelines:broken"), "pipeline", "no weights", "broken"),
        (query(pipeline="no_such_module:x"), "pipeline", "must be importable", "no_such_module"),
        (
            query(pipeline="my_pipelines:adder"),
            "data.examples",
            "brings no data of its own",
            "20",
        ),
        (query(data={"folder": "absent"}), "data.folder", "must be a folder", "absent"),
        (query(data={"jsonl": "absent.jsonl"}), "data", "must be a readable file", "absent"),
        (query(data={"jsonl": "torn.jsonl"}), "torn.jsonl, line 2", "must be a JSON object", "{"),
        (query(data={"jsonl": "nan.jsonl"}), "nan.jsonl, line 1", "must be a JSON object", "NaN"),
        (query(data={"jsonl": "empty.jsonl"}), "data empty.jsonl", "must have 1 to", "0"),
        (query(data={"folder": "bare"}), "data", "must be a readable file", "bare"),
    ],
)
def test_what_a_query_names_must_be_there_and_whole(
    document: object, field: str, rule: str, value: str, folder: Path
) -> None:
    (folder / "torn.jsonl").write_text('{"input": 1, "expected": 1}\n{"input": 2\n')
    (folder / "nan.jsonl").write_text('{"input": NaN, "expected": 1}\n')
    (folder / "empty.jsonl").write_text("")
    (folder / "bare").mkdir()
    (folder / "wrong.yaml").write_text(as_yaml(document))
    before = files(folder)
    wrong = Wrong("", None, field, rule, value)
    assert_refused(invoke("validate", "wrong.yaml"), wrong)
    assert_refused(invoke("plan", "wrong.yaml"), wrong)
    assert files(folder) == before


def test_with_json_an_error_is_one_document(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(as_yaml(query(weight=0)))
    result = invoke("validate", "wrong.yaml", "--json")
    assert result.exit_code == 2
    assert result.stderr == ""
    assert json.loads(result.stdout)["error"] == {
        "code": 2,
        "message": "bad input",
        "errors": [{"field": "weight", "rule": "must be >= 0.001", "value": "0"}],
    }


def test_validate_without_a_file_needs_something_else() -> None:
    assert_refused(invoke("validate"), Wrong("", None, "FILE", "must be given", ""))


def test_validate_prints_the_schema_of_the_query_file() -> None:
    result = invoke("validate", "--schema")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == query_schema()


def test_validate_prints_every_default_that_decides_something() -> None:
    result = invoke("validate", "good.yaml")
    assert result.exit_code == 0, result.output
    assert "digits: 2016 configurations, 20 inputs" in result.stdout
    for line in (
        "slo.latency_statistic: mean (default)",
        "slo.cost_usd_per_hour: any (default)",
        "request_rate_per_s: one request at a time (default)",
        "limits.profiling_s: 30 (default)",
        "seed: 0 (default)",
    ):
        assert line in result.stdout
    assert "data.seed" not in result.stdout  # given, so no default
    assert "planning.method: as CIRCINUS_METHOD says (default)" in result.stdout
    assert "  planned by default: multi_fidelity, random order\n" in result.stdout


def test_validate_takes_an_infrastructure_alone(folder: Path) -> None:
    (folder / "lab.yaml").write_text(as_yaml({"name": "lab", "tiers": [{"name": "cloud"}]}))
    result = invoke("validate", "--infrastructure", "lab.yaml", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "valid": True,
        "infrastructure": "lab",
        "tiers": ["cloud"],
    }
