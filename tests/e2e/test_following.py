"""The rate of requests doubles under a real service: replicas follow, and go again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.e2e.service_process import ServiceProcess, serving

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: cloud, machines: 4, price_usd_per_hour: 1.0}
"""
RATE_PER_S = 4.0
LATENCY_S = 0.8
BACK_AFTER_S = 30.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(tmp_path, INFRASTRUCTURE, "tests.e2e.steady:pipeline") as service:
        yield service


def instances(service: ServiceProcess, query_id: str) -> list[int]:
    found = service.ask("GET", f"/v1/queries/{query_id}/deployment").json()["instances"]
    return [instance["pid"] for instance in found]


async def sent(
    service: ServiceProcess, query_id: str, per_s: float, seconds: float
) -> list[tuple[float, float, int]]:
    """Send requests at a steady rate, whatever becomes of them; give (when, seconds, status)."""
    url = f"http://127.0.0.1:{service.port}/v1/queries/{query_id}/requests"
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:

        async def one(at: float) -> tuple[float, float, int]:
            await asyncio.sleep(at)
            began = time.monotonic()
            answer = await client.post(url, json={"input": {"value": 1}})
            return at, time.monotonic() - began, answer.status_code

        return await asyncio.gather(*(one(i / per_s) for i in range(int(per_s * seconds))))


@pytest.mark.slow
def test_replicas_follow_a_rate_that_doubles_and_go_when_it_falls(
    service: ServiceProcess,
) -> None:
    query_id = service.submit(
        pipeline="steady",
        data={"examples": 8},
        slo={"accuracy": 0.8, "latency_s": LATENCY_S},
        request_rate_per_s=RATE_PER_S,
    )
    service.wait_for_phase(query_id, "serving")
    planned = instances(service, query_id)

    async def doubled() -> tuple[float, list[tuple[float, float, int]]]:
        began = time.monotonic()
        requests = asyncio.create_task(sent(service, query_id, 2 * RATE_PER_S, 40))
        while len(await asyncio.to_thread(instances, service, query_id)) < 2 * len(planned):
            assert not requests.done()
            await asyncio.sleep(0.25)
        return time.monotonic() - began, await requests

    asyncio.run(sent(service, query_id, RATE_PER_S, 12))
    followed_s, answers = asyncio.run(doubled())
    assert followed_s <= 15
    last = [(s, status) for at, s, status in answers if at >= BACK_AFTER_S]
    assert [status for _, status in last] == [200] * len(last)
    p95_s = float(np.quantile([s for s, _ in last], 0.95))
    words = (
        f"replicas followed in {followed_s:.1f} s; from {BACK_AFTER_S:g} s on p95 {p95_s:.3f} s"
    )
    print(f"\n{words}")  # noqa: T201 - shown by `pytest -s`
    assert p95_s <= LATENCY_S
    more = instances(service, query_id)
    assert more[: len(planned)] == planned  # nobody was started again
    (assigned,) = service.ask("GET", "/v1/schedule").json()["assignments"]
    assert len(assigned["extras"]) == len(more) - len(planned)

    service.wait_for(lambda: instances(service, query_id) == planned, "the extras to go")
    assert service.query(query_id)["phase"] == "serving"
