"""The command line: exit codes, errors, JSON, and no escape codes when piped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from api.cli import app
from api.cli.command import command
from api.cli.screen import Screen
from api.query_file import query_schema
from pipelines.errors import Unavailable
from tests.api.malformed import DOCUMENTS, INFRASTRUCTURES, TEXTS, Wrong, as_yaml, query

COMMANDS = (
    "demo",
    "serve",
    "validate",
    "plan",
    "submit",
    "status",
    "cancel",
    "plans",
    "export",
    "request",
    "undeploy",
    "schedule",
    "doctor",
    "prepare",
    "calibrate",
    "study",
)
NOWHERE = "http://127.0.0.1:9"  # the discard port: nobody listens

PIPELINES = """
from pipelines.dataset import Dataset, Example
from pipelines.graph import PipelineGraph
from pipelines.operators import Knob, Operator, OperatorSpec
from pipelines.pipeline import Pipeline


def cyclic():
    specs = (OperatorSpec(name="a", after=("b",)), OperatorSpec(name="b", after=("a",)))
    return PipelineGraph(name="round", operators=specs)


def adder():
    return Pipeline(
        name="adder",
        operators=(
            Operator(
                spec=OperatorSpec(name="add", knobs=(Knob(name="by", values=(0, 1)),)),
                run=lambda inputs, knobs: inputs + knobs["by"],
            ),
        ),
        score=lambda output, expected: float(output == expected),
    )


def broken():
    raise RuntimeError("no weights")


number = 3
"""


@pytest.fixture(autouse=True)
def folder(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder of the test's own, in which a module of pipelines can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("CIRCINUS_URL", "CIRCINUS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    database = tmp_path_factory.mktemp("database") / "circinus.sqlite3"
    monkeypatch.setenv("CIRCINUS_DATABASE_URL", f"sqlite:///{database}")
    (tmp_path / "my_pipelines.py").write_text(PIPELINES)
    (tmp_path / "good.yaml").write_text(as_yaml(query()))
    sys.modules.pop("my_pipelines", None)
    yield tmp_path
    sys.modules.pop("my_pipelines", None)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if "__pycache__" not in path.parts}


def assert_refused(result: Result, wrong: Wrong) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = [line for line in result.stderr.splitlines() if wrong.field in line]
    assert any(wrong.rule in line and wrong.value in line for line in lines), result.stderr


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
        (query(data={"jsonl": "absent.jsonl"}), "data", "must be a readable text file", "absent"),
        (query(data={"jsonl": "torn.jsonl"}), "torn.jsonl, line 2", "must be a JSON object", "{"),
        (query(data={"jsonl": "nan.jsonl"}), "nan.jsonl, line 1", "must be a JSON object", "NaN"),
        (query(data={"jsonl": "empty.jsonl"}), "data empty.jsonl", "must have 1 to", "0"),
        (query(data={"folder": "bare"}), "data", "must be a readable text file", "bare"),
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


def test_a_malformed_file_is_not_submitted(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(as_yaml(query(weight=0)))
    result = invoke("submit", "wrong.yaml", "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "weight", "must be > 0", "0"))


def test_with_json_an_error_is_one_document(folder: Path) -> None:
    (folder / "wrong.yaml").write_text(as_yaml(query(weight=0)))
    result = invoke("validate", "wrong.yaml", "--json")
    assert result.exit_code == 2
    assert result.stderr == ""
    assert json.loads(result.stdout)["error"] == {
        "code": 2,
        "message": "bad input",
        "errors": [{"field": "weight", "rule": "must be > 0", "value": "0"}],
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ["submit", "good.yaml"],
        ["status"],
        ["status", "q-1"],
        ["cancel", "q-1"],
        ["plans", "q-1"],
        ["export", "q-1"],
        ["request", "q-1", "--example", "0"],
        ["undeploy", "q-1"],
        ["schedule"],
    ],
    ids=" ".join,
)
def test_without_a_service_a_command_ends_in_1_and_says_so(arguments: list[str]) -> None:
    result = invoke(*arguments, "--url", NOWHERE)
    assert result.exit_code == 1
    assert f"no service answers at {NOWHERE}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("identifier", ["../plans", "a/b", "q 1", "", "q?x", "é"])
def test_an_id_cannot_reach_another_route(identifier: str) -> None:
    result = invoke("status", identifier, "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "id", "must be the id of a query or plan", ""))


@pytest.mark.parametrize("url", ["ftp://x", "nonsense", "http://a:b"])
def test_a_malformed_address_ends_in_2(url: str) -> None:
    result = invoke("status", "--url", url)
    assert_refused(result, Wrong("", None, "url", "must be a URL", ""))


@pytest.mark.parametrize(
    ("options", "field", "rule"),
    [
        ([], "the whole", "must have exactly one of input, example"),
        (["--example", "0", "--input", "1"], "the whole", "must have exactly one of"),
        (["--example", "-1"], "example.index", "must be >= 0"),
        (["--example", "500"], "example.index", "must be less than count"),
        (["--input", "{torn"], "--input", "must be JSON or @FILE"),
        (["--input", "@absent.json"], "--input", "must be JSON or @FILE"),
        (["--input", "1", "--timeout", "nan"], "timeout_s", "must be finite"),
    ],
)
def test_a_malformed_request_is_not_sent(options: list[str], field: str, rule: str) -> None:
    result = invoke("request", "q-1", "--url", NOWHERE, *options)
    assert_refused(result, Wrong("", None, field, rule, ""))


def test_watching_needs_an_id() -> None:
    result = invoke("status", "--watch", "--url", NOWHERE)
    assert_refused(result, Wrong("", None, "--watch", "must come with the id of a query", ""))


def test_validate_without_a_file_needs_something_else() -> None:
    assert_refused(invoke("validate"), Wrong("", None, "FILE", "must be given", ""))


@pytest.mark.parametrize("arguments", [["plan"], ["fly"], ["plan", "good.yaml", "--fast"]])
def test_a_wrong_usage_ends_in_2(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def _failing(error: Exception) -> typer.Typer:
    broken = typer.Typer()

    def fail(screen: Screen) -> None:
        raise error

    command(broken, "fail")(fail)
    return broken


def test_an_unforeseen_error_ends_in_1_without_a_traceback() -> None:
    result = CliRunner().invoke(_failing(KeyError("tier")), [])
    assert result.exit_code == 1
    assert result.stderr == "error: internal error: KeyError: 'tier'\n"


def test_debug_shows_the_traceback() -> None:
    result = CliRunner().invoke(_failing(KeyError("tier")), ["--debug"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


def test_nothing_in_an_error_reaches_the_terminal_raw() -> None:
    error = Unavailable("\x1b[31mred\x07 [bold]not markup[/bold]\nnext", retry_after_s=1)
    result = CliRunner().invoke(_failing(error), [])
    assert result.stderr == "error:  [31mred  [bold]not markup[/bold] next\n"


def test_every_command_has_help_with_the_exit_codes() -> None:
    overview = invoke("--help")
    for name in COMMANDS:
        assert name in overview.stdout
        result = invoke(name, "--help")
        assert result.exit_code == 0
        text = " ".join(result.stdout.split())
        assert "Exit codes: 0 ok, 1 internal error or no service, 2 bad input" in text, name
        if name != "study":
            assert "--json" in text


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


def test_validate_takes_an_infrastructure_alone(folder: Path) -> None:
    (folder / "lab.yaml").write_text(as_yaml({"name": "lab", "tiers": [{"name": "cloud"}]}))
    result = invoke("validate", "--infrastructure", "lab.yaml", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "valid": True,
        "infrastructure": "lab",
        "tiers": ["cloud"],
    }


def _adder_query(folder: Path, **changes: object) -> None:
    lines = [json.dumps({"input": i, "expected": i + 1}) for i in range(8)]
    (folder / "sums.jsonl").write_text("\n".join(lines))
    document = query(
        pipeline="my_pipelines:adder",
        data={"jsonl": "sums.jsonl"},
        slo={"accuracy": 1.0, "latency_s": 5.0},
    )
    (folder / "adder.yaml").write_text(as_yaml(document | changes))


def test_a_pipeline_and_data_of_ones_own_are_planned_in_this_process(folder: Path) -> None:
    _adder_query(folder)
    before = files(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["outcome"] == "feasible"
    assert {str(plan["configuration"]) for plan in found["plans"]} == {"{'add': {'by': 1}}"}
    assert files(folder) == before


def test_an_infeasible_query_ends_in_3_and_names_what_binds(folder: Path) -> None:
    _adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-12})
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    assert result.exit_code == 3, result.output
    assert "Binding: latency" in result.stdout
    assert "Closest measured plan" in result.stdout


def test_an_exhausted_budget_ends_in_4(folder: Path) -> None:
    _adder_query(folder, slo={"accuracy": 1.0, "latency_s": 1e-12}, limits={"configurations": 1})
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier", "--json")
    assert result.exit_code == 4, result.output
    assert json.loads(result.stdout)["outcome"] == "exhausted"


def test_an_estimate_says_what_planning_would_cost_and_plans_nothing(folder: Path) -> None:
    _adder_query(folder)
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
    _adder_query(folder)
    result = invoke("plan", "adder.yaml", "--infrastructure", "one-tier")
    for line in ("expected: ", "paid: ", "saved by the cache: ", "saved by stopping early: "):
        assert f"\n{line}" in result.stdout


def test_doctor_tells_what_it_found() -> None:
    result = invoke("doctor", "--json", "--url", NOWHERE)
    found = json.loads(result.stdout)
    names = [check["name"] for check in found["checks"]]
    assert {"Python", "packages", "cores", "cache folder", "port", "shares"} <= set(names)
    assert "pipeline digits" in names
    states = {check["name"]: check["state"] for check in found["checks"]}
    assert states["service"] == "note"
    assert result.exit_code == (0 if found["ready"] else 1)


def test_preparing_an_unknown_pipeline_ends_in_2() -> None:
    result = invoke("prepare", "cats")
    assert_refused(result, Wrong("", None, "pipeline", "must be registered", "cats"))


def test_a_pipeline_without_examples_has_no_trace(folder: Path) -> None:
    result = invoke("study", "trace", "my_pipelines:adder", "--inputs", "3", "--out", "trace")
    assert_refused(result, Wrong("", None, "data.examples", "brings no data of its own", "3"))
    assert not (folder / "trace").exists()


def test_piped_output_is_plain_text(folder: Path) -> None:
    _adder_query(folder)
    root = Path(__file__).parents[2]
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
