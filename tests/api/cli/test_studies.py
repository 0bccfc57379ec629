"""Offline studies from the command line."""

from __future__ import annotations

import csv
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


def latencies(folder: Path) -> list[str]:
    """Options of a table that is simulated, of a fast type and a cheap one."""
    rows = [
        f"m,{kind},{b},{b * ms},0" for kind, ms in (("a", 0.1), ("b", 0.4)) for b in (100, 500)
    ]
    (folder / "own.csv").write_text("model,instance,batch,mean_ms,std_ms\n" + "\n".join(rows))
    (folder / "prices.csv").write_text("instance,usd_per_hour\na,3\nb,1\n")
    told = ["--latency", "own.csv", "--model", "m", "--prices", "prices.csv", "--out", "pools"]
    return [*told, "--strategies", "ribbon_safe", "--seeds", "1"]


def test_strategies_that_choose_pools_are_compared_on_measured_latencies(folder: Path) -> None:
    told = [*latencies(folder), "--json", "--qos-ms", "120", "--rate", "30"]
    result = invoke("study", "pool", *told, "--counts", "3,3", "--types", "a,b")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert [(cell["model"], cell["not_found"]) for cell in document["cells"]] == [
        ("m at 30 1/s", 0.0)
    ]
    assert "of 15 pools" in document["optima"][0]
    # `b` is late with half of them; 50 ms each: the third `a` spares waiting
    derived = invoke("study", "pool", *told)
    assert derived.exit_code == 0, derived.output
    assert "of 3 pools (3,) of a is" in json.loads(derived.stdout)["optima"][0]


def test_a_simulated_trial_may_end_early_and_trials_at_another_rate_be_carried_over(
    folder: Path,
) -> None:
    told = [*latencies(folder), "--qos-ms", "120", "--rate", "30", "--json"]
    told += ["--counts", "3,3", "--types", "a,b", "--earlier-rate", "15"]
    costs = []
    for more in ([], ["--longest-queue", "100"]):
        result = invoke("study", "pool", *told, *more)
        assert result.exit_code == 0, result.output
        (cell,) = json.loads(result.stdout)["cells"]
        assert cell["not_found"] == 0.0
        costs.append(cell["cost"] / cell["evaluations"])
        with (folder / "pools" / "load-change.csv").open() as file:
            assert [row["seed"] for row in csv.DictReader(file)] == ["0"]
    assert costs[1] < costs[0]


def test_calibrated_is_told_the_latencies_of_a_table_and_says_how_sure_it_is(
    folder: Path,
) -> None:
    latencies(folder)
    table = {f"{a}, {b}": [0, 99.9 if 3 * a + b > 3 else 50] for a in range(3) for b in range(6)}
    (folder / "m.json").write_text(json.dumps(table))
    told = ["--lookup", "a,b=m.json", "--prices", "prices.csv", "--seeds", "2", "--out", "pools"]
    told += ["--strategies", "random,calibrated", "--json"]
    result = invoke("study", "pool", *told)
    assert result.exit_code == 2
    assert "latencies of m" in result.output
    load = ("--latency", "own.csv", "--qos-ms", "150", "--rate", "60")
    result = invoke("study", "pool", *told, *load)
    assert result.exit_code == 0, result.output
    cells = json.loads(result.stdout)["cells"]
    assert [(cell["model"], cell["strategy"]) for cell in cells] == [
        ("m", "random"),
        ("m", "calibrated"),
    ]
    for name in ("statements.csv", "reliability.csv"):
        with (folder / "pools" / name).open() as file:
            assert {row["model"] for row in csv.DictReader(file)} == {"m"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--qos-ms", "120"], "rate_per_s must be"),
        (["--model", ""], "--model must be told, or calibrated be among the strategies"),
        (["--rate", "30"], "qos_s must be finite and > 0"),
        (["--qos-ms", "120", "--rate", "30", "--counts", "3,3"], "--counts must be 1"),
        (["--qos-ms", "120", "--rate", "30", "--counts", "a,b"], "--counts must be N,N"),
        (["--qos-ms", "120", "--rate", "30", "--types", "c"], "types must be among a, b"),
        (["--qos-ms", "1", "--rate", "60"], "qos_s must be such that a type alone has 99%"),
        (["--qos-ms", "1", "--rate", "60", "--types", "a"], "must have a feasible pool"),
    ],
)
def test_latencies_without_a_load_that_a_pool_serves_are_bad_input(
    folder: Path, words: list[str], message: str
) -> None:
    result = invoke("study", "pool", *latencies(folder), *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_study_of_pools_needs_the_types_of_a_table_that_it_does_not_know(folder: Path) -> None:
    result = invoke("study", "pool", "--out", "pools", "--lookup", "none.json")
    assert result.exit_code == 2
    assert "types of none must be" in result.stderr
