"""A query file with data of one's own goes to the service as it is planned at home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.service_process import ROOT, ServiceProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    service = ServiceProcess(tmp_path, {"CIRCINUS_DATASETS": str(tmp_path / "datasets")})
    service.start()
    yield service
    service.stop()


def _submitted(service: ServiceProcess, file: Path) -> tuple[str, str]:
    """Return the id of the query, and what was told besides."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "circinus", "submit", str(file)]
    url = ["--url", f"http://127.0.0.1:{service.port}"]
    done = subprocess.run(
        [*command, *url], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip(), done.stderr


def test_submit_sends_the_file_that_its_query_names_once(
    service: ServiceProcess, tmp_path: Path
) -> None:
    examples = [{"input": {"value": v}, "expected": 2 * v + 1} for v in range(1, 41)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, examples)), encoding="utf-8")
    query = {
        "pipeline": "slow-sum",
        "data": {"jsonl": "mine.jsonl"},
        "slo": {"accuracy": 0.8, "latency_s": 1.0},
    }
    (tmp_path / "query.yaml").write_text(json.dumps(query), encoding="utf-8")

    first, told = _submitted(service, tmp_path / "query.yaml")
    again, told_again = _submitted(service, tmp_path / "query.yaml")

    assert "mine.jsonl: 40 inputs, sent as d-" in told
    assert "mine.jsonl: 40 inputs, known as d-" in told_again
    planned = service.wait_for_phase(first, "serving", "waiting")
    assert planned["outcome"] == "feasible"
    service.wait_for_phase(again, "serving", "waiting")
    (dataset,) = service.ask("GET", "/v1/datasets").json()["items"]
    assert set(dataset["queries"]) == {first, again}
    assert service.ask("DELETE", f"/v1/datasets/{dataset['id']}").status_code == 409
