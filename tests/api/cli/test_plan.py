"""Planning without a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.cli.commands import adder_query, assert_refused, files, invoke
from tests.api.malformed import Wrong


def test_a_pipeline_and_data_of_ones_own_are_planned_in_this_process(folder: Path) -> None:
    adder_query(folder)
    before = files(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["outcome"] == "feasible"
    assert {str(plan["configuration"]) for plan in found["plans"]} == {"{'add': {'by': 1}}"}
    assert files(folder) == before


@pytest.mark.parametrize("executor", ["in-process", "pool"])
def test_what_a_pipeline_prints_is_no_part_of_the_document(folder: Path, executor: str) -> None:
    module = folder / "my_pipelines.py"
    by = 'inputs + knobs["by"]'
    module.write_text(module.read_text().replace(by, f'print("noise") or {by}'))
    adder_query(folder)
    result = invoke(
        *("plan", "adder.yaml", "--infrastructure", "one-tier", "--json", "--executor", executor)
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["outcome"] == "feasible"
    assert executor == "pool" or "noise" in result.stderr


def _slow_down(folder: Path) -> None:
    """Let the operator take a millisecond: an addition alone may well be done in a microsecond."""
    module = folder / "my_pipelines.py"
    by = 'inputs + knobs["by"]'
    slow = f'__import__("time").sleep(1e-3) or {by}'
    module.write_text(module.read_text().replace(by, slow))


def test_an_infeasible_query_ends_in_3_and_names_what_binds(folder: Path) -> None:
    _slow_down(folder)
    adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-6})
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    assert result.exit_code == 3, result.output
    assert "Binding: latency" in result.stdout
    assert "Closest measured plan" in result.stdout


def test_an_exhausted_budget_ends_in_4(folder: Path) -> None:
    _slow_down(folder)
    adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-6}, limits={"configurations": 1})
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json")
    assert result.exit_code == 4, result.output
    assert json.loads(result.stdout)["outcome"] == "exhausted"


def test_an_estimate_says_what_planning_would_cost_and_plans_nothing(folder: Path) -> None:
    adder_query(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--estimate", "--json")
    assert result.exit_code == 0, result.output
    bill = json.loads(result.stdout)["bill"]
    # Two configurations of one operator, two inputs each.
    assert bill["paid"]["runs"] == 4
    assert bill["forecast"]["source"].startswith("4 probes on 2 configurations")
    assert 0 < bill["forecast"]["low"]["seconds"] <= bill["forecast"]["high"]["seconds"]
    told = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--estimate").stdout
    assert told.startswith("expected: ")


def test_a_plan_comes_with_its_bill(folder: Path) -> None:
    adder_query(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    for line in ("expected: ", "paid: ", "saved by the cache: ", "saved by stopping early: "):
        assert f"\n{line}" in result.stdout


def test_piped_output_is_plain_text(folder: Path) -> None:
    adder_query(folder)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root), "TERM": "xterm-256color"}
    for variable in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
        environment.pop(variable, None)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "circinus.api.cli",
            "plan",
            "adder.yaml",
            "--infrastructure",
            "one-tier",
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout + done.stderr
    assert all(len(line) <= 100 for line in done.stdout.splitlines())
    assert "limits.profiling_s: 30 (default)" in done.stderr
    assert "spent" in done.stderr  # progress, a line per change


@pytest.mark.parametrize(
    ("planning", "field", "rule", "value"),
    [
        ({"method": "best"}, "planning.method", "must be among default, published", "best"),
        ({"stopping": "betting"}, "planning.stopping", "must be left out with", "betting"),
        ({"dispatch": "fcfs"}, "planning.dispatch", "must be one of the known fields", "fcfs"),
    ],
)
def test_a_file_that_asks_for_no_way_to_plan_ends_in_2(
    folder: Path, planning: dict[str, str], field: str, rule: str, value: str
) -> None:
    adder_query(folder, planning=planning)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    assert_refused(result, Wrong("", None, field, rule, value))


def test_an_unknown_method_of_an_option_or_the_environment_ends_in_2(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    adder_query(folder)
    names = "must be among default, published"
    result = invoke("plan", "adder.yaml", "--method", "best")
    assert_refused(result, Wrong("", None, "--method", names, "best"))
    monkeypatch.setenv("CIRCINUS_METHOD", "worst")
    assert_refused(invoke("plan", "adder.yaml"), Wrong("", None, "method", names, "worst"))


def test_parts_of_a_file_that_do_not_fit_the_method_of_the_option_are_refused(
    folder: Path,
) -> None:
    adder_query(folder, planning={"method": "published", "stopping": "t_test"})
    result = invoke("plan", "adder.yaml", "--method", "default")
    assert_refused(result, Wrong("", None, "planning.stopping", "must be left out", "t_test"))


RANDOM = {"strategy": "random"}
"""Beside any method: others take seconds to load."""
PARTS = ("method", "strategy", "stopping", "sampling")


@pytest.mark.parametrize(
    ("option", "file", "environment", "parts"),
    [
        (None, {}, None, ("random", "betting", "random")),
        (None, {}, "published", ("random", "t_test", "stratified")),
        (None, {"method": "default"}, "published", ("random", "betting", "random")),
        ("published", {"method": "default"}, None, ("random", "t_test", "stratified")),
        ("default", {"method": "published"}, "published", ("random", "betting", "random")),
        ("default", {}, "published", ("random", "betting", "random")),
    ],
)
def test_the_option_goes_before_the_file_and_the_file_before_the_environment(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    file: dict[str, str],
    environment: str | None,
    parts: tuple[str, str, str],
) -> None:
    adder_query(folder, planning={**RANDOM, **file})
    if environment is not None:
        monkeypatch.setenv("CIRCINUS_METHOD", environment)
    chosen = () if option is None else ("--method", option)
    told = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json", *chosen)
    assert told.exit_code == 0, told.output
    planning = json.loads(told.stdout)["planning"]
    assert planning == dict(zip(PARTS, (None, *parts), strict=True))
    kept = json.loads(invoke("history", "list", "--json").stdout)["items"]
    assert [(each["planning"], each["queries"]) for each in kept] == [(planning, 1)]


def test_a_plan_says_what_it_was_planned_by(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # so that no cell is broken
    adder_query(folder)
    told = invoke("plan", "adder.yaml", "--infrastructure", "one-tier").stdout
    assert "planned by default: multi_fidelity, random order\n" in told
    history = " ".join(invoke("history", "list").stdout.split())
    assert "default: multi_fidelity, random order 1" in history
