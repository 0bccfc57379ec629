"""Offline studies from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.api.cli.commands import assert_refused, invoke
from tests.api.malformed import Wrong


def test_a_pipeline_without_examples_has_no_trace(folder: Path) -> None:
    result = invoke("study", "trace", "my_pipelines:adder", "--inputs", "3", "--out", "trace")
    assert_refused(result, Wrong("", None, "data.examples", "brings no data of its own", "3"))
    assert not (folder / "trace").exists()


def test_policies_are_compared_on_drawn_problems(folder: Path) -> None:
    tried = ("--queries", "4,8", "--plans", "3", "--tiers", "three-tier", "--seeds", "2")
    result = invoke("study", "ilp", *tried, "--out", "gap", "--json")
    assert result.exit_code == 0, result.output
    lines = json.loads(result.stdout)["lines"]
    assert [(line["queries"], line["problems"]) for line in lines if line["policy"] == "ilp"] == [
        (4, 2),
        (8, 2),
    ]
    assert {path.name for path in (folder / "gap").iterdir()} == {"ilp.csv", "ilp.svg", "ilp.html"}


def test_policies_are_compared_on_a_problem_of_ones_own(folder: Path) -> None:
    plan = {"id": "p", "demand": [{"tier": "cloud", "share": 0.5}]}
    queries = [{"id": f"q{i}", "weight": i + 1, "plans": [plan]} for i in range(3)]
    problem = {"tiers": [{"name": "cloud", "machines": 1}], "queries": queries}
    (folder / "problem.json").write_text(json.dumps(problem))
    told = ("--problem", "problem.json", "--out", "gap", "--schedule-out", "chosen.json")
    result = invoke("study", "ilp", *told, "--policies", "fcfs,priced")
    assert result.exit_code == 0, result.output
    fcfs, priced = json.loads((folder / "chosen.json").read_text())
    assert {a["query"] for a in fcfs["assignments"]} == {"q0", "q1"}
    assert {a["query"] for a in priced["assignments"]} == {"q1", "q2"}
    assert list(priced["waiting"]) == ["q0"]


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--queries", "ten", "queries: must be whole numbers, by commas"),
        ("--policies", "best", "policies: must be among greedy"),
        ("--tiers", "moon", "infrastructure: must be a file or one of"),
        ("--time-limit", "0", "time_limit_s: must be finite and > 0"),
    ],
)
def test_a_wrong_option_of_the_study_is_bad_input(
    folder: Path, option: str, value: str, rule: str
) -> None:
    result = invoke("study", "ilp", "--out", "gap", option, value)
    assert result.exit_code == 2
    assert rule.split(": ")[0] in result.stderr
    assert not (folder / "gap").exists()


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [
        ("--link", "device", "link must be two tiers, by a comma"),
        ("--left", "1.5", "drift.left must be in (0, 1)"),
        ("--slo", "medium,absurd", "slo must be among easy, medium, hard"),
        ("--infrastructure", "moon", "infrastructure must be a file or one of"),
        ("--trace", "nowhere", "trace must be a readable file"),
    ],
)
def test_a_wrong_option_of_the_drift_study_is_bad_input(
    folder: Path, option: str, value: str, rule: str
) -> None:
    told = ("--trace", "t", "--drift", "latency", "--out", "drift", option, value)
    result = invoke("study", "drift", *told)
    assert result.exit_code == 2
    assert rule in result.stderr


def test_strategies_that_choose_pools_are_compared_on_a_table(folder: Path) -> None:
    table = {"0, 1": [1, 30], "1, 0": [3, 95], "1, 1": [4, 99.5]}
    (folder / "own.json").write_text(json.dumps(table))
    (folder / "prices.csv").write_text("instance,usd_per_hour\na,3\nb,1\n")
    told = ("--lookup", "a,b=own.json", "--prices", "prices.csv", "--seeds", "2", "--out", "pools")
    result = invoke("study", "pool", *told, "--strategies", "ribbon_safe,random", "--json")
    assert result.exit_code == 0, result.output
    cells = json.loads(result.stdout)["cells"]
    assert [(cell["strategy"], cell["not_found"]) for cell in cells] == [
        ("ribbon_safe", 0.0),
        ("random", 0.0),
    ]
    assert {path.name for path in (folder / "pools").iterdir()} == {"pool.csv", "pool.html"}


def test_a_table_of_unknown_types_is_bad_input(folder: Path) -> None:
    (folder / "own.json").write_text("{}")
    result = invoke("study", "pool", "--lookup", "own.json", "--out", "pools")
    assert result.exit_code == 2
    assert "types of own must be told" in result.stderr
