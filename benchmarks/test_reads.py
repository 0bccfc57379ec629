"""What it costs to ask a service how a query fares, and to submit one, while another is planned.

A real service with one planning worker; the load comes from other processes, at random (Poisson),
whatever becomes of the requests before. The query that is asked about was planned over 2,016
configurations and serves. `cpu_ms` is the processor time per request of the service and its
serving process. `READS_PER_S` and `READS_SECONDS` take another rate than 200 and time than 15.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.grid import CONFIGURATIONS
from tests.e2e.service_process import ON_ONE_TIER, ROOT, ServiceProcess, serving

RATE_PER_S = float(os.environ.get("READS_PER_S", "200"))
SECONDS = float(os.environ.get("READS_SECONDS", "15"))
SUBMITTED = 0.1  # of the requests
EXHAUSTIVE = {"strategy": "exhaustive"}
LIMITS = {"profiling_s": 100_000.0, "response_s": 3600.0, "configurations": CONFIGURATIONS}


def asked(examples: int, **more: object) -> dict[str, object]:
    slo = {"accuracy": 0.99, "latency_s": 1.0}
    data = {"examples": examples}
    return {"pipeline": "grid", "data": data, "slo": slo, "limits": LIMITS, **more}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    settings = {"queue_limit": "1000000"}
    folder: Path = tmp_path_factory.mktemp("reads")
    with serving(folder, ON_ONE_TIER, "benchmarks.grid:pipeline", **settings) as service:
        yield service


@pytest.fixture(scope="module")
def path(service: ServiceProcess) -> str:
    """Plan a query, and begin to plan another that takes longer than anybody looks."""
    planned = service.submit(**asked(3, planning=EXHAUSTIVE))
    told = service.wait_for_phase(planned, "serving")
    assert told["progress"]["measured"] == CONFIGURATIONS
    other = service.submit(**asked(10_000, planning=EXHAUSTIVE))
    service.wait_for_phase(other, "planning")
    return f"/v1/queries/{planned}"


def load(service: ServiceProcess, *loads: dict[str, object]) -> list[dict[str, Any]]:
    """Return latencies, statuses and processor time of loads at the same time."""
    before = _cpu_s(service)
    with ThreadPoolExecutor(len(loads)) as threads:
        told = list(threads.map(lambda one: _sent(service, one), loads))
    cpu_s, sent = _cpu_s(service) - before, sum(len(found["answers"]) for found in told)
    return [{**_figures(found["answers"]), "cpu_ms": cpu_s / sent * 1e3} for found in told]


def _sent(service: ServiceProcess, one: dict[str, object]) -> dict[str, Any]:
    asked = {"port": service.port, "seconds": SECONDS, "seed": 1, **one}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.load"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _figures(answers: list[list[float]]) -> dict[str, Any]:
    status, seconds, _ = (np.array(column) for column in zip(*answers, strict=True))
    return {
        "requests": len(answers),
        "p50_ms": float(np.median(seconds) * 1e3),
        "p99_ms": float(np.quantile(seconds, 0.99) * 1e3),
        "worst_ms": float(seconds.max() * 1e3),
        "statuses": {str(int(code)): int((status == code).sum()) for code in np.unique(status)},
    }


def _cpu_s(service: ServiceProcess) -> float:
    times = [process.cpu_times() for process in service.own_processes()]
    return sum(each.user + each.system for each in times)


def _submission(rate_per_s: float) -> dict[str, object]:
    return {"path": "/v1/queries", "bodies": [json.dumps(asked(20))], "rate_per_s": rate_per_s}


def _told(benchmark: BenchmarkFixture, **found: object) -> None:
    told = {"load_average": os.getloadavg()[0], **found}
    benchmark.extra_info.update(told)
    sys.stdout.write(f"\n{json.dumps(told)}\n")


@pytest.mark.parametrize("etag", [False, True], ids=["whole", "etag"])
def test_status_and_submissions_while_planning(
    benchmark: BenchmarkFixture, service: ServiceProcess, path: str, etag: bool
) -> None:
    read = {"path": path, "method": "GET", "bodies": [""], "etag": etag}
    load(service, {**read, "rate_per_s": 20.0, "seconds": 1.0})

    status, submitted = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: load(
            service,
            {**read, "rate_per_s": RATE_PER_S * (1 - SUBMITTED)},
            _submission(RATE_PER_S * SUBMITTED),
        ),
        rounds=1,
    )

    _told(benchmark, rate_per_s=RATE_PER_S, status=status, submitted=submitted)
    assert set(status["statuses"]) <= {"200", "304"}
    assert set(submitted["statuses"]) == {"202"}


@pytest.mark.parametrize("what", ["status", "submitted"])
def test_one_kind_alone(
    benchmark: BenchmarkFixture, service: ServiceProcess, path: str, what: str
) -> None:
    one = _submission(RATE_PER_S)
    if what == "status":
        one = {"path": path, "method": "GET", "bodies": [""], "rate_per_s": RATE_PER_S}

    [found] = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: load(service, one), rounds=1
    )

    _told(benchmark, rate_per_s=RATE_PER_S, **{what: found})
    assert set(found["statuses"]) <= {"200", "202"}
