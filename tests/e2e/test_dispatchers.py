"""Dispatchers beside a service: what becomes of requests while it, or one of them, is replaced."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.dispatching import DispatcherProcess, SteadyLoad
from tests.e2e.service_process import ON_ONE_TIER, ServiceProcess, serving

# Processes that start, are killed and start again.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIRST = 2_000_000  # of the values that are sent; data for planning have smaller ones
PIPELINE = "tests.e2e.slow_sum:pipeline"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with serving(
        tmp_path, ON_ONE_TIER, PIPELINE, dispatchers="2", keeper_waits_s="300", drift_s="86400"
    ) as found:
        yield found


def deployed(service: ServiceProcess) -> str:
    query_id = service.submit(slo={"accuracy": 0.5, "latency_s": 1.0})
    service.wait_for_phase(query_id, "serving")
    return query_id


def dispatcher(service: ServiceProcess) -> DispatcherProcess:
    url = f"http://127.0.0.1:{service.port}"
    return DispatcherProcess(service.folder, url, service.extra)


def load_on(query_id: str, ready: list[DispatcherProcess]) -> SteadyLoad:
    return SteadyLoad(
        ready=lambda: [each.url for each in ready],
        path=f"/v1/queries/{query_id}/requests",
        body=lambda number: {"input": {"value": FIRST + number}, "late": "serve"},
    )


def test_no_request_fails_while_service_and_dispatchers_are_replaced(
    service: ServiceProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    query_id = deployed(service)
    ready: list[DispatcherProcess] = []
    load = load_on(query_id, ready)

    async def replaced(stack: ExitStack) -> None:
        """As a Deployment does: another first, then no more requests to the old one, soon."""
        fresh, old = dispatcher(service), ready[0]
        stack.callback(fresh.stop)
        await asyncio.to_thread(fresh.start)
        ready.append(fresh)
        old.leave()
        await asyncio.sleep(1.0)
        ready.remove(old)
        assert await asyncio.to_thread(old.stop) == 0

    async def scene(stack: ExitStack) -> None:
        two = [dispatcher(service), dispatcher(service)]
        for each in two:
            stack.callback(each.stop)
        await asyncio.gather(*(asyncio.to_thread(each.start) for each in two))
        ready.extend(two)
        async with load.running():
            await asyncio.sleep(1.0)
            service.kill()
            await asyncio.sleep(2.0)
            await asyncio.to_thread(service.start)
            await replaced(stack)
            await replaced(stack)
            await asyncio.sleep(1.0)

    with ExitStack() as stack:
        asyncio.run(scene(stack))
        with capsys.disabled():
            told = ["", f"service and two dispatchers replaced: {load.told()}", *load.failed, ""]
            sys.stdout.write("\n".join(told))
        wait_for_all_counted(service, query_id, len(load.answers))
    assert load.failed == []
    assert len(load.answers) == load.sent
    assert runs_of(service) == load.sent  # none was sent to a worker twice


def wait_for_all_counted(service: ServiceProcess, query_id: str, answers: int) -> None:
    """Wait until the service has heard of all requests, of dispatchers that ended, too."""

    def counted() -> bool:
        told: dict[str, Any] = service.ask("GET", f"/v1/queries/{query_id}/deployment").json()
        return bool(told["observed"]["count"] == answers)

    service.wait_for(counted, f"{answers} answers to be counted")


def runs_of(service: ServiceProcess) -> int:
    """Return how often the first operator ran on inputs of clients."""
    lines = map(json.loads, service.call_log.read_text().splitlines())
    texts = (line[2] for line in lines if line[1] == "double")
    values = [int(text.split(":")[1].strip(" }")) for text in texts]
    return sum(value >= FIRST for value in values)


def test_a_dispatcher_hands_on_what_is_no_request_and_another_plan_reaches_it(
    service: ServiceProcess,
) -> None:
    query_id = deployed(service)
    beside = dispatcher(service)
    beside.start()
    try:
        with httpx.Client(base_url=beside.url, trust_env=False, timeout=30) as client:
            assert client.get(f"/v1/queries/{query_id}").json()["phase"] == "serving"
            path = f"/v1/queries/{query_id}/requests"
            answer = client.post(path, json={"example": {"index": 0, "count": 5}})
            assert answer.status_code == 200
            assert client.post(path, json={"input": {"value": "x"}}).status_code in (422, 502, 500)
            assert client.get("/v1/internal/nothing").status_code == 404
            service.ask("DELETE", f"/v1/queries/{query_id}/deployment")
            service.wait_for(
                lambda: client.post(path, json={"input": {"value": 5}}).status_code == 409,
                "the query to be retired at the dispatcher, too",
            )
    finally:
        assert beside.stop() == 0


def test_a_dispatcher_that_starts_while_the_service_is_away_listens_when_it_is_back(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, ON_ONE_TIER, PIPELINE, keeper_waits_s="1") as service:
        query_id = deployed(service)
        serving_process = service.serving_process
        service.kill()
        serving_process.wait(30)
        beside = dispatcher(service)
        beside.begin()
        try:
            assert not listens_within(beside, 4.0)
            service.start()
            service.wait_for_phase(query_id, "serving")
            service.wait_for(beside.is_ready, "the dispatcher to listen")
            body = {"input": {"value": 5}, "late": "serve"}
            answer = httpx.post(
                f"{beside.url}/v1/queries/{query_id}/requests", json=body, trust_env=False
            )
            assert answer.status_code == 200
        finally:
            beside.stop()


def listens_within(beside: DispatcherProcess, seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while not (listens := beside.is_ready()) and time.monotonic() < ends:
        time.sleep(0.2)
    return listens


def test_a_url_that_is_none_is_named(tmp_path: Path) -> None:
    beside = DispatcherProcess(tmp_path, "moon", {})
    beside.begin()
    assert beside.process is not None
    assert beside.process.wait(60) == 2
    told = (tmp_path / f"dispatcher-{beside.port}.log").read_text()
    assert "service must be http://HOST:PORT or https://HOST:PORT, got 'moon'" in told
