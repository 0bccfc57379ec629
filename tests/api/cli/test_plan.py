"""Planning without a service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.api.cli.commands import adder_query, files, invoke


def test_a_pipeline_and_data_of_ones_own_are_planned_in_this_process(folder: Path) -> None:
    adder_query(folder)
    before = files(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["outcome"] == "feasible"
    assert {str(plan["configuration"]) for plan in found["plans"]} == {"{'add': {'by': 1}}"}
    assert files(folder) == before


def test_an_infeasible_query_ends_in_3_and_names_what_binds(folder: Path) -> None:
    adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-12})
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    assert result.exit_code == 3, result.output
    assert "Binding: latency" in result.stdout
    assert "Closest measured plan" in result.stdout


def test_an_exhausted_budget_ends_in_4(folder: Path) -> None:
    adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-12}, limits={"configurations": 1})
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
        [sys.executable, "-m", "api.cli", "plan", "adder.yaml", "--infrastructure", "one-tier"],
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
