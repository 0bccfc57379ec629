"""What pages cost a service: the list of 1,000 queries, and a slider of a large query.

A real service. Of the 1,000 queries, each tenth was planned and the others wait; the first page
shows the newest 50. `cpu_ms` is processor time of service and serving process. The query with
sliders was planned over 2,016 configurations; each question is another one than before.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from benchmarks.grid import CONFIGURATIONS
from tests.e2e.service_process import ServiceProcess, serving

QUERIES = 1000
QUESTIONS = 200
THREE_TIERS = """
name: three
origin: device
tiers:
  - {name: device, machines: 1, price_usd_per_hour: 0.0, speed_factor: 0.25, dedicated: true}
  - {name: edge, machines: 2, price_usd_per_hour: 0.1, speed_factor: 0.5}
  - {name: cloud, machines: 2, price_usd_per_hour: 0.4}
links:
  - {between: [device, edge], bandwidth_mbit_per_s: 50, delay_s: 0.002}
  - {between: [edge, cloud], bandwidth_mbit_per_s: 400, delay_s: 0.01}
"""
LIMITS = {"profiling_s": 100_000.0, "response_s": 3600.0, "configurations": CONFIGURATIONS}
LARGE = {
    "pipeline": "grid",
    "data": {"examples": 20},
    "slo": {"accuracy": 0.99, "latency_s": 1.0},
    "limits": LIMITS,
    "planning": {"strategy": "exhaustive"},
}
SMALL = {"pipeline": "grid", "data": {"examples": 3}, "slo": {"accuracy": 0.5, "latency_s": 1.0}}
_BROWSER = {"accept": "text/html", "hx-request": "true"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder: Path = tmp_path_factory.mktemp("pages")
    settings = {"queue_limit": "1000000"}
    with serving(folder, THREE_TIERS, "benchmarks.grid:pipeline", **settings) as service:
        yield service


@pytest.fixture(scope="module")
def large(service: ServiceProcess) -> str:
    """Plan the query with sliders, then small ones, and cancel the others: nothing goes on."""
    large = service.submit(**LARGE)
    told = service.wait_for_phase(large, "serving")
    assert told["progress"]["measured"] == CONFIGURATIONS
    planned = [service.submit(**SMALL) for _ in range(QUERIES // 10)]
    service.wait_for_phase(planned[-1], "serving", "waiting")
    for _ in range(QUERIES - 1 - len(planned)):
        service.ask("POST", f"/v1/queries/{service.submit(**LARGE)}:cancel")
    time.sleep(3.0)  # what follows a change has followed
    return large


def _cpu_s(service: ServiceProcess) -> float:
    times = [process.cpu_times() for process in service.own_processes()]
    return sum(each.user + each.system for each in times)


def _timed(service: ServiceProcess, count: int, path: Callable[[int], str]) -> dict[str, Any]:
    address = f"http://127.0.0.1:{service.port}"
    seconds, size = list[float](), 0
    with httpx.Client(base_url=address, trust_env=False, timeout=60, headers=_BROWSER) as client:
        before = _cpu_s(service)
        for i in range(count):
            start = time.perf_counter()
            answer = client.get(path(i))
            seconds.append(time.perf_counter() - start)
            assert answer.status_code == 200, answer.text
            size = len(answer.content)
        cpu_s = _cpu_s(service) - before
    return {
        "p50_ms": float(np.median(seconds) * 1e3),
        "p95_ms": float(np.quantile(seconds, 0.95) * 1e3),
        "worst_ms": float(max(seconds) * 1e3),
        "cpu_ms": cpu_s / count * 1e3,
        "bytes": size,
    }


def _pages(service: ServiceProcess) -> list[str]:
    """Return the paths of all pages of the list."""
    pages, cursor = ["/"], ""
    while True:
        told = service.ask("GET", f"/v1/queries?limit=50{cursor}").json()
        if told["next_cursor"] is None:
            return pages
        cursor = f"&cursor={told['next_cursor']}"
        pages.append(f"/?cursor={told['next_cursor']}")


def _told(benchmark: BenchmarkFixture, **found: object) -> None:
    told = {"load_average": os.getloadavg()[0], **found}
    benchmark.extra_info.update(told)
    sys.stdout.write(f"\n{json.dumps(told)}\n")


@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
def test_the_list_of_a_thousand_queries(
    benchmark: BenchmarkFixture, service: ServiceProcess, large: str, again: bool
) -> None:
    """First: pages that nobody asked for since these queries changed."""
    pages = ["/"]
    if not again:  # each page of 50 once
        pages = _pages(service)
        service.stop()
        service.start()  # it has rendered nothing yet
        service.wait_for_phase(large, "serving")
    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: _timed(service, 20, lambda i: pages[i % len(pages)]), rounds=1
    )
    _told(benchmark, **found)
    assert found["cpu_ms"] < 300


def test_the_page_of_a_large_query(
    benchmark: BenchmarkFixture, service: ServiceProcess, large: str
) -> None:
    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: _timed(service, 20, lambda _: f"/ui/queries/{large}"), rounds=1
    )
    _told(benchmark, **found)


def test_sliders_of_a_large_query(
    benchmark: BenchmarkFixture, service: ServiceProcess, large: str
) -> None:
    """Every question moves another slider, or the same one to another place."""

    def asked(i: int) -> str:
        name = ("accuracy", "latency", "price.edge", "speed.cloud", "machines.edge")[i % 5]
        value = {
            "accuracy": 0.3 + 0.003 * i,
            "latency": 0.001 + 0.01 * i,  # some that nothing keeps
            "machines.edge": i // 5 % 9,
        }.get(name, 0.1 + 0.01 * i)
        return f"/ui/queries/{large}/whatif?{name}={value:g}"

    _timed(service, 1, asked)  # whoever looks at the page has been told of its plan
    found = benchmark.pedantic(  # type: ignore[no-untyped-call]  # ships no types
        lambda: _timed(service, QUESTIONS, asked), rounds=1
    )
    _told(benchmark, **found)
    assert found["p95_ms"] < 200
