"""The data plane: what is around operators, and what becomes of requests under overload.

A real service with a local worker on a whole core; the load comes from another process.
`own_p50_ms` is the client's median less the operators' seconds, `cpu_ms` the processor time per
request of the service and its serving process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from circinus.api.http.payload_json import payload_to_json
from circinus.pipelines.execution.pipeline import Pipeline
from circinus.pipelines.registry import load_pipeline
from tests.e2e.service_process import ON_ONE_TIER, ROOT, ServiceProcess, serving

SECONDS = 8.0
SLO = {"accuracy": 0.5, "latency_s": 0.06, "latency_statistic": "p95"}
OPEN_LOOP = 1.2  # times the rate of the closed loop
CLOSED_CLIENTS = 8


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(tmp_path, ON_ONE_TIER, "benchmarks.array_sum:pipeline") as service:
        yield service


def served(service: ServiceProcess, pipeline: Pipeline) -> tuple[str, list[str]]:
    """Deploy a pipeline; give the path of its requests, and bodies of some."""
    query_id = service.submit(pipeline=pipeline.name, data={"examples": 60}, slo=SLO)
    service.wait_for_phase(query_id, "serving")
    assert pipeline.examples is not None
    inputs = [example.input for example in pipeline.examples(20, 1).examples]
    bodies = [json.dumps({"input": payload_to_json(item)}) for item in inputs]
    return f"/v1/queries/{query_id}/requests", bodies


def load(service: ServiceProcess, path: str, bodies: list[str], **how: float) -> dict[str, Any]:
    """Return rate, latencies, statuses and processor time of a load."""
    before = _cpu_s(service)
    asked = {"port": service.port, "path": path, "bodies": bodies, "seconds": SECONDS, "seed": 1}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=json.dumps({**asked, **how}),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    cpu_s, found = _cpu_s(service) - before, json.loads(done.stdout)
    status, seconds, operators = (
        np.array(column) for column in zip(*found["answers"], strict=True)
    )
    good = status == 200
    return {
        "rate_per_s": float(good.sum() / found["seconds"]),
        "in_time_per_s": float((good & (seconds <= SLO["latency_s"])).sum() / found["seconds"]),
        "p50_ms": float(np.median(seconds[good]) * 1e3),
        "p99_ms": float(np.quantile(seconds[good], 0.99) * 1e3),
        "own_p50_ms": float(np.median((seconds - operators)[good]) * 1e3),
        "cpu_ms": cpu_s / len(status) * 1e3,
        "load_cpu_ms": found["cpu_s"] / len(status) * 1e3,
        "turned_away": int((status == 429).sum()),
        "other": int((~good & (status != 429)).sum()),
    }


def _cpu_s(service: ServiceProcess) -> float:
    times = [process.cpu_times() for process in service.own_processes()]
    return sum(each.user + each.system for each in times)


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_what_is_around_operators(
    benchmark: BenchmarkFixture, service: ServiceProcess, clients: int
) -> None:
    path, bodies = served(
        service, load_pipeline("benchmarks.array_sum:pipeline", allow_import=True)
    )
    load(service, path, bodies, clients=1, seconds=1.0)

    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: load(service, path, bodies, clients=clients), rounds=1
    )

    benchmark.extra_info.update(found)
    assert found["other"] == 0


def test_overload_leaves_answers_in_time(
    benchmark: BenchmarkFixture, service: ServiceProcess
) -> None:
    path, bodies = served(service, load_pipeline("digits"))
    load(service, path, bodies, clients=1, seconds=1.0)
    closed = load(service, path, bodies, clients=CLOSED_CLIENTS)

    rate_per_s = OPEN_LOOP * closed["rate_per_s"]
    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: load(service, path, bodies, rate_per_s=rate_per_s), rounds=1
    )

    ratio = found["in_time_per_s"] / closed["rate_per_s"]
    benchmark.extra_info.update({"closed": closed, "open": found, "ratio": ratio})
    assert found["other"] == 0
