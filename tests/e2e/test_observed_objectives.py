"""More clients than a plan was made for: the service says that its objective is missed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.service_process import ServiceProcess, serving

INFRASTRUCTURE = """
name: lab
tiers:
  - {name: cloud, machines: 1, price_usd_per_hour: 1.0}
"""
CLIENTS = 16
LATENCY_S = 0.25  # 0.15 s on a share of 0.65 or more: a second replica finds no room


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    # A drift would plan the query anew, which is told elsewhere.
    with serving(
        tmp_path, INFRASTRUCTURE, "tests.e2e.steady:pipeline", drift_s="86400"
    ) as service:
        yield service


def objectives(service: ServiceProcess, query_id: str) -> dict[str, Any]:
    found = service.query(query_id)["deployment"]["objectives"]
    return found or {"state": "none", "overload": None}


def events(service: ServiceProcess, query_id: str, kind: str) -> list[dict[str, Any]]:
    told = service.ask("GET", f"/v1/queries/{query_id}/events?limit=1000").json()["items"]
    return [each["data"] for each in told if each["kind"] == kind]


async def asked(
    service: ServiceProcess,
    query_id: str,
    clients: int,
    until: asyncio.Event | None = None,
    *,
    each: int = 1000,
) -> None:
    """Let clients send one request after the other, until that is set or each sent so many."""
    url = f"http://127.0.0.1:{service.port}/v1/queries/{query_id}/requests"

    async def client(http: httpx.AsyncClient) -> None:
        for _ in range(each):
            if until is not None and until.is_set():
                return
            answer = await http.post(url, json={"input": {"value": 1}, "late": "serve"})
            assert answer.status_code == 200, answer.text

    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        await asyncio.gather(*(client(http) for _ in range(clients)))


@pytest.mark.slow
def test_sixteen_clients_on_one_worker_are_told_with_the_figure_and_the_reason(
    service: ServiceProcess,
) -> None:
    query_id = service.submit(
        pipeline="steady",
        data={"examples": 8},
        slo={"accuracy": 0.8, "latency_s": LATENCY_S, "latency_statistic": "p95"},
    )
    service.wait_for_phase(query_id, "serving")
    asyncio.run(asked(service, query_id, 1, each=80))
    service.wait_for(lambda: objectives(service, query_id)["state"] == "met", "it to be met")

    async def crowded() -> None:
        over = asyncio.Event()
        crowd = asyncio.create_task(asked(service, query_id, CLIENTS, over))

        def missed() -> bool:
            found = objectives(service, query_id)
            return found["state"] == "missed" and bool(found["overload"])

        try:
            await asyncio.to_thread(service.wait_for, missed, "missed and overloaded")
        finally:
            over.set()
        await crowd

    asyncio.run(crowded())
    states = [each["state"] for each in events(service, query_id, "query.objectives")]
    assert states == ["met", "missed"]
    (began, *_) = events(service, query_id, "query.overload")
    assert began["state"] == "began"
    assert "requests wait for tier cloud" in began["why"] or "requests/s come" in began["why"]
    service.wait_for(
        lambda: [e["state"] for e in events(service, query_id, "query.overload")][-1] == "ended",
        "the overload to end",
    )
