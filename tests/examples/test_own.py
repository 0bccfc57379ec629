"""The examples to copy from: each is sound, and each program runs as its README line says."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from circinus.api.library.inputs import handed_over
from circinus.api.query_file import query_of, read_document, read_infrastructure
from circinus.api.schemas.query import to_query
from circinus.api.settings import Settings
from circinus.pipelines.io.infrastructure_file import infrastructure_from_dict
from circinus.pipelines.model.configuration import ConfigurationSpace
from circinus.pipelines.model.query import fitted
from circinus.pipelines.registry import load_pipeline
from tests.cluster.chart import CHART, VERSION, helm, of_kind

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
PROGRAMS = sorted(path for path in EXAMPLES.glob("*/*.py") if "__main__" in path.read_text())
"""What a service loads is run by `tests/calls`."""
INFRASTRUCTURES = sorted((EXAMPLES / "infrastructure").glob("*.yaml"))
VALUES = EXAMPLES / "helm" / "values.yaml"


def relative(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def loaded(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(VALUES.read_text(encoding="utf-8"))
    return found


def test_the_index_names_every_example() -> None:
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    there = {relative(path) for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".yaml"}}
    assert set(re.findall(r"\]\(([\w./-]+\.(?:py|yaml))\)", index)) == there


def test_the_choices_of_the_own_chain_matter() -> None:
    example = loaded("own_chain/tickets.py")
    choices = {"letters": (3, 5, 9)}
    pipeline = handed_over(example["chain"], example["right"], choices, None).pipeline
    space = ConfigurationSpace(pipeline.graph)
    tickets = [json.loads(line) for line in example["TICKETS"].read_text().splitlines()]
    means = {
        sum(
            pipeline.score_of(
                pipeline.run(each["input"], space.configuration(n)), each["expected"]
            )
            for each in tickets
        )
        / len(tickets)
        for n in range(space.size)
    }
    assert space.size == 6
    assert min(means) < 0.5 < 0.7 < max(means)


def test_the_graph_has_a_way_that_is_right_for_all_and_one_that_is_not() -> None:
    example = loaded("graph/triage.py")
    pipeline = handed_over(example["compiled"], example["right"], None, None).pipeline
    space = ConfigurationSpace(pipeline.graph)
    scores = [
        [
            pipeline.score_of(pipeline.run(given, space.configuration(n)), expected)
            for given, expected in example["DATA"]
        ]
        for n in range(space.size)
    ]
    assert space.size == 2
    assert sorted(min(each) for each in scores) == [0.0, 1.0]


@pytest.mark.parametrize("path", INFRASTRUCTURES, ids=relative)
def test_an_infrastructure_is_one_that_a_query_can_be_planned_on(path: Path) -> None:
    infrastructure = read_infrastructure(str(path))
    query = to_query(query_of(read_document(EXAMPLES / "digits.yaml")))
    fitted(query, load_pipeline(query.pipeline).graph, infrastructure)  # raises what is wrong


def test_the_values_keep_to_the_schema_of_the_chart_and_to_settings_there_are() -> None:
    found = values()
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, schema)
    infrastructure_from_dict(found["infrastructure"]["document"])
    known = {f"CIRCINUS_{name.upper()}" for name in Settings.model_fields}
    assert set(found["settings"]) <= known


@pytest.mark.cluster
def test_the_chart_takes_the_values() -> None:
    version = ("--kube-version", VERSION)
    done = helm("template", "c", str(CHART), "--namespace", "ns", *version, "-f", str(VALUES))
    assert done.returncode == 0, done.stderr
    documents = [document for document in yaml.safe_load_all(done.stdout) if document]
    (container,) = of_kind(documents, "Deployment", "c")["spec"]["template"]["spec"]["containers"]
    image = values()["image"]
    assert container["image"] == f"{image['repository']}:{image['tag']}"


@pytest.mark.slow
@pytest.mark.parametrize("path", PROGRAMS, ids=relative)
def test_a_program_plans_what_it_shows(path: Path, tmp_path: Path) -> None:
    if path.name == "retrieval.py" and (lacking := load_pipeline("retrieval").available()):
        pytest.skip(f"missing: {', '.join(map(str, lacking))}")
    done = subprocess.run(
        [sys.executable, str(path)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "CIRCINUS_DATABASE_URL": f"sqlite:///{tmp_path}/memory.sqlite3",
            "CIRCINUS_INTERRUPTED": str(tmp_path / "interrupted"),
            "CIRCINUS_WORKER_LOGS": str(tmp_path / "logs"),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("feasible: ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_query_is_planned_on_the_infrastructure_with_gpus(tmp_path: Path) -> None:
    from tests.api.cli.commands import invoke

    path = EXAMPLES / "infrastructure" / "gpu-site.yaml"
    limits = yaml.safe_load((EXAMPLES / "digits.yaml").read_text(encoding="utf-8"))
    limits["limits"] = {"profiling_s": 10, "configurations": 12}
    limits["slo"] = {"accuracy": 0.5, "latency_s": 0.2}
    query = tmp_path / "query.yaml"
    query.write_text(yaml.safe_dump(limits), encoding="utf-8")
    result = invoke("plan", str(query), "--infrastructure", str(path), "--cold", "--json")
    assert result.exit_code == 0, result.stderr
    plans = json.loads(result.stdout)["plans"]
    tiers = {tier for plan in plans for tier in plan["placement"].values()}
    assert tiers <= {"device", "site", "gpu"}
    assert all(plan["cost_usd_per_hour"] > 0 for plan in plans)
