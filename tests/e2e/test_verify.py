"""`circinus verify` against real workers: the figure that the objective bounds is judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.service_process import ROOT, ServiceProcess


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    extra = {"CIRCINUS_EXTRA_PIPELINES": "tests.e2e.late_tail:pipeline"}
    service = ServiceProcess(tmp_path, extra)
    service.start()
    yield service
    service.stop()


@pytest.mark.slow
def test_a_plan_whose_mean_is_fine_and_whose_tail_is_late_is_violated(
    service: ServiceProcess,
) -> None:
    slo = {"accuracy": 0.9, "latency_s": 0.1, "latency_statistic": "p95"}
    query_id = service.submit(pipeline="late-tail", data={"examples": 100}, slo=slo)
    service.wait_for_phase(query_id, "serving")

    command = [sys.executable, "-m", "circinus", "verify", query_id, "--requests", "160", "--json"]
    done = subprocess.run(
        [*command, "--url", f"http://127.0.0.1:{service.port}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)
    (query,) = report["queries"]
    assert query["observed"]["mean_s"]["value"] < 0.1
    assert query["observed"]["latency_s"]["value"] > 0.1
    assert query["observed"]["planned_on"] == 20  # the multiples of eight below 160
    (problem,) = report["problems"]
    assert problem.startswith("p95 latency ")
    assert problem.endswith(" is above the objective, 100 ms")
