"""`circinus render`, and what answers requests to what it renders: what neither of them takes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr
from typer.testing import Result

from circinus.api.schemas.plans import PlanFile
from circinus.api.schemas.violations import checked
from circinus.api.serving.plan_server import main, serve
from circinus.api.settings import Settings
from circinus.pipelines.errors import InvalidInput
from tests.api.cli.commands import invoke
from tests.api.malformed import query
from tests.api.test_deploying import plan_document

UNKNOWN = {"confidence": 0.95, "inputs": 0, "value": None, "low": None, "high": None}
SETTINGS = Settings(port=0, token=SecretStr("t"))


def render(folder: Path, document: object, *words: str) -> Result:
    (folder / "plan.yaml").write_text(json.dumps(document))
    return invoke("render", str(folder / "plan.yaml"), *words)


def plan_file(folder: Path, document: object | None = None) -> dict[str, Any]:
    text = render(folder, document or plan_document()).stdout
    content = yaml.safe_load(text)["configs"]["plan"]["content"]
    found: dict[str, Any] = json.loads(content.replace("$$", "$"))
    return found


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        ({}, ("--target", "rocket"), "'rocket' is not one of 'compose'"),
        ({}, ("--infrastructure", "one-tier"), "tier must be among"),
        ({}, ("--image", ""), "image must not be empty"),
        ({}, ("--machine-cpu", "fast"), "quantity must be a number"),
        ({"pipeline": "nothing"}, (), "nothing"),
        ({"accuracy": UNKNOWN}, (), "plan must have been measured"),
    ],
)
def test_what_cannot_be_rendered_is_refused(
    tmp_path: Path, change: dict[str, object], words: tuple[str, ...], told: str
) -> None:
    result = render(tmp_path, plan_document() | change, *words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert told in " ".join(result.stderr.split())


def test_a_rendered_plan_is_that_of_the_file(tmp_path: Path) -> None:
    result = render(tmp_path, plan_document(), "--image", "mine:1", "--machine-cpu", "2")
    document = yaml.safe_load(result.stdout)
    assert list(document["services"]) == ["requests", "device-0", "edge-1"]
    assert {each["image"] for each in document["services"].values()} == {"mine:1"}
    assert [document["services"][n]["cpus"] for n in ("device-0", "edge-1")] == [1.0, 0.5]
    assert json.loads(render(tmp_path, plan_document(), "--json").stdout)["services"].keys() == (
        document["services"].keys()
    )


@pytest.mark.parametrize(
    ("slo", "deadline_s"),
    [
        ({"latency_s": 0.2}, None),  # on the mean, which bounds no request
        ({"latency_s": 0.2, "latency_statistic": "p95"}, 0.2),
        ({"throughput_per_s": 3.0}, None),
    ],
)
def test_a_bound_on_a_percentile_is_a_deadline(
    tmp_path: Path, slo: dict[str, object], deadline_s: float | None
) -> None:
    asked = query(slo={"accuracy": 0.5, **slo})
    asked.pop("request_rate_per_s", None)
    document = {"id": "q-1", "query": asked, "plan_id": "p-1", "plans": [plan_document()]}
    assert plan_file(tmp_path, document)["deadline_s"] == deadline_s


def test_addresses_are_those_of_the_plans_instances(tmp_path: Path) -> None:
    file = checked(PlanFile, {**plan_file(tmp_path), "addresses": ["unix:/a"]})
    with pytest.raises(InvalidInput, match="addresses must be those of 2 instances"):
        asyncio.run(serve(file, SETTINGS))


@pytest.fixture
def process_state() -> Iterator[None]:
    """Restore what a program sets for the whole of its process."""
    root, mask = logging.getLogger(), os.umask(0o077)
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    os.umask(mask)


@pytest.mark.usefixtures("process_state")
@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "plan file"), ("{", "plan file must be"), ("{}", "query_id must be given")],
)
def test_a_plan_file_that_is_none_ends_in_2(
    tmp_path: Path,
    content: str | None,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content)
    monkeypatch.setattr(sys, "argv", ["plan_server", str(path)])
    assert main() == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
