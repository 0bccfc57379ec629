"""The pool of a query follows its requests, under a real service with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.e2e.service_process import ServiceProcess, serving
from tests.e2e.sized import large_sizes, small_sizes
from tests.e2e.sized_load import DUE_S, INFRASTRUCTURE, sent
from tests.e2e.test_pooling import circinus, is_on, types


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(tmp_path, INFRASTRUCTURE, "tests.e2e.sized:pipeline") as service:
        yield service


@pytest.mark.slow
def test_a_pool_is_chosen_by_what_came_and_follows_a_changed_mix(service: ServiceProcess) -> None:
    rng = np.random.default_rng(0)
    query_id = service.submit(
        pipeline="sized",
        data={"examples": 20},
        slo={"accuracy": 0.8, "latency_s": DUE_S, "latency_statistic": "p95"},
        request_rate_per_s=2.0,
    )
    service.wait_for_phase(query_id, "serving")
    done = circinus(service, "apply", query_id, "cloud/slow=6", "cloud/fast=1", "--follow")
    assert done.returncode == 0, done.stderr
    is_on(service, query_id, slow=6, fast=1)
    small = sent(service, query_id, small_sizes(1100, rng).tolist(), 40.0, seed=1)
    told = circinus(service, "choose", "--query", query_id)
    assert told.returncode == 0, told.stderr
    assert f"circinus pool apply {query_id} cloud/" in told.stdout
    assert "of 1100 requests" in told.stdout

    large = sent(service, query_id, large_sizes(350, rng).tolist(), 20.0, seed=2)
    # 20/s take 2.4 fast machines, and slow ones serve few of them in time
    service.wait_for(lambda: types(service, query_id)["fast"] >= 3, "more fast ones to serve")
    service.wait_for(lambda: types(service, query_id)["slow"] <= 2, "slow ones to go")
    assert set(small.statuses) | set(large.statuses) <= {200, 429}  # nothing was lost
    events = service.ask("GET", f"/v1/queries/{query_id}/events?limit=1000").json()["items"]
    (changed,) = (each["data"] for each in events if each["kind"] == "query.traffic")
    assert changed["mix"]
    states = [each["data"]["state"] for each in events if each["kind"] == "query.pool"]
    assert states[:4] == ["chosen", "placed", "chosen", "placed"]
