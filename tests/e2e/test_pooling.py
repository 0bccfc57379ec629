"""A query is moved to a chosen mix of machine types under a real service with real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import psutil
import pytest

from tests.e2e.service_process import ROOT, ServiceProcess, serving
from tests.e2e.steady import SECONDS

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: device, machines: 1, dedicated: true, speed_factor: 0.01, emulated: true}
  - name: cloud
    emulated: true
    types:
      - {name: small, machines: 2, price_usd_per_hour: 1.0, speed_factor: 0.5}
      - {name: large, machines: 1, price_usd_per_hour: 4.0, speed_factor: 1.0}
links:
  - {between: [device, cloud], bandwidth_mbit_per_s: 1000}
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(tmp_path, INFRASTRUCTURE, "tests.e2e.steady:pipeline") as service:
        yield service


def submit(service: ServiceProcess) -> str:
    """A query that takes more than half of a machine."""
    return service.submit(
        pipeline="steady",
        data={"examples": 8},
        slo={"accuracy": 0.8, "latency_s": 2.4 * SECONDS},
    )


def circinus(service: ServiceProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    url = f"http://127.0.0.1:{service.port}"
    return subprocess.run(
        [sys.executable, "-m", "circinus", "pool", *arguments, "--url", url],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def instances(service: ServiceProcess, query_id: str) -> list[dict[str, Any]]:
    found = service.ask("GET", f"/v1/queries/{query_id}/deployment").json()["instances"]
    return [each for each in found if each["pid"] and psutil.pid_exists(each["pid"])]


def types(service: ServiceProcess, query_id: str) -> Counter[str]:
    return Counter(each["machine_type"] for each in instances(service, query_id))


def pool(service: ServiceProcess, query_id: str) -> dict[str, Any]:
    found: dict[str, Any] = service.ask("GET", f"/v1/queries/{query_id}/pool").json()
    return found


def statuses(service: ServiceProcess, query_id: str, until: Event) -> Counter[int]:
    """What requests get, one after the other, until somebody says that it is enough."""
    got = Counter[int]()
    while not until.is_set():
        body = {"input": {"value": 5}, "late": "serve"}  # one instance cannot be in time for both
        answer = service.ask("POST", f"/v1/queries/{query_id}/requests", json=body)
        got[answer.status_code] += 1
    return got


def is_on(service: ServiceProcess, query_id: str, **counts: int) -> None:
    """Wait until exactly these instances are there."""
    service.wait_for(lambda: types(service, query_id) == counts, f"{query_id} to be on {counts}")


def apply(service: ServiceProcess, query_id: str, *slices: str) -> None:
    done = circinus(service, "apply", query_id, *slices)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_cannot_be_is_refused_and_changes_nothing(service: ServiceProcess) -> None:
    query_id = submit(service)
    service.wait_for_phase(query_id, "serving")
    before = instances(service, query_id)
    assert pool(service, query_id)["detail"] == f"pool must exist, got '{query_id}'."
    refused = circinus(service, "apply", query_id, "cloud/small=3", "cloud/large=1")
    assert refused.returncode == 2
    assert " find no room on cloud/small" in refused.stderr
    unknown = circinus(service, "apply", query_id, "cloud/tiny=1")
    assert unknown.returncode == 2
    assert "pool.cloud must be among small, large" in unknown.stderr
    dedicated = circinus(service, "apply", query_id, "device/x=1")
    assert dedicated.returncode == 2
    assert "pool.tier must be shared" in dedicated.stderr
    assert instances(service, query_id) == before


@pytest.mark.slow
def test_pools_are_tried_live_and_the_cheapest_in_time_serves(service: ServiceProcess) -> None:
    """However quick this machine is: what serves is the cheapest of those that were in time."""
    query_id = submit(service)
    service.wait_for_phase(query_id, "serving")
    options = ("--rate", "2", "--lasts", "3", "--trials", "5", "--json")
    done = circinus(service, "try", query_id, *options)
    assert done.returncode in (0, 3), done.stderr
    told = json.loads(done.stdout)
    assert told["types"] == ["small", "large"]
    pools = [tuple(trial["pool"]) for trial in told["trials"]]
    assert len(set(pools)) == len(pools) <= 5  # of 3 x 2 - 1
    good = [p for p, t in zip(pools, told["trials"], strict=True) if t["in_time"] >= 0.99]
    price = dict(zip(told["types"], (1.0, 4.0), strict=True))
    if good:
        cheapest = min(
            good, key=lambda p: sum(price[k] * n for k, n in zip(price, p, strict=True))
        )
        assert tuple(told["chosen"]) == cheapest
        wanted = {k: n for k, n in zip(price, cheapest, strict=True) if n}
        assert pool(service, query_id)["slices"] == {"cloud": wanted}
        is_on(service, query_id, **wanted)
    else:
        assert told["chosen"] is None
    refused = circinus(service, "try", query_id, "--rate", "0")
    assert (refused.returncode, "rate must be finite and > 0" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_instances_of_a_pool_serve_before_old_ones_end(service: ServiceProcess) -> None:
    query_id = submit(service)
    service.wait_for_phase(query_id, "serving")
    assert types(service, query_id) == {"small": 1}
    over = Event()
    with ThreadPoolExecutor() as threads:
        clients = [threads.submit(statuses, service, query_id, over) for _ in range(2)]
        try:
            apply(service, query_id, "cloud/large=1")
            is_on(service, query_id, large=1)
            apply(service, query_id, "cloud/small=2", "cloud/large=1")
            is_on(service, query_id, small=2, large=1)
        finally:
            over.set()
        got = sum((client.result() for client in clients), Counter[int]())
    assert set(got) == {200}  # nobody noticed
    shown = pool(service, query_id)
    assert (shown["state"], shown["missing"]) == ("placed", None)
    (assigned,) = service.ask("GET", "/v1/schedule").json()["assignments"]
    assert assigned["pool"] == {"cloud": {"small": 2, "large": 1}}
    assert Counter(at["machine_type"] for at in assigned["machines"]) == {"small": 2, "large": 1}
    share = assigned["machines"][0]["share"]
    assert shown["cost_usd_per_hour"] == pytest.approx(6.0 * share)  # 2 at 1 USD/h, one at 4


@pytest.mark.slow
def test_a_pool_lasts_until_its_machines_go_or_it_is_dropped(service: ServiceProcess) -> None:
    query_id = submit(service)
    service.wait_for_phase(query_id, "serving")
    apply(service, query_id, "cloud/small=2", "cloud/large=1")
    is_on(service, query_id, small=2, large=1)
    other = submit(service)  # all machines are the pool's
    service.wait_for_phase(other, "waiting")

    assert service.stop() == 0
    service.start()
    is_on(service, query_id, small=2, large=1)
    assert pool(service, query_id)["state"] == "placed"
    assert service.query(other)["phase"] == "waiting"
    assert service.ask("DELETE", f"/v1/queries/{other}/deployment").status_code == 200

    service.ask("PATCH", "/v1/infrastructure", json={"machines": {"cloud/large": 0}})
    service.wait_for(lambda: pool(service, query_id)["state"] == "lacking", "the lack to be told")
    assert "find no room on cloud/large" in pool(service, query_id)["missing"]
    is_on(service, query_id, small=1)
    service.ask("PATCH", "/v1/infrastructure", json={"machines": {"cloud/large": None}})
    is_on(service, query_id, small=2, large=1)

    dropped = circinus(service, "drop", query_id)
    assert dropped.returncode == 0, dropped.stderr
    is_on(service, query_id, small=1)
    events = service.ask("GET", f"/v1/queries/{query_id}/events?limit=1000").json()["items"]
    states = [each["data"]["state"] for each in events if each["kind"] == "query.pool"]
    assert states == ["chosen", "placed", "lacking", "placed", "dropped"]
