"""What becomes of requests when the service, a worker or the serving process itself is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.deploy.serving import is_alive
from tests.e2e.service_process import ON_ONE_TIER, ROOT, ServiceProcess, serving

pytestmark = pytest.mark.slow  # processes that start, are killed and start again

RATE_PER_S = 50.0
BACK_WITHIN_S = 10.0


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    pipeline = "tests.e2e.slow_sum:pipeline"
    with serving(tmp_path, ON_ONE_TIER, pipeline, keeper_waits_s="20") as service:
        yield service


def deployed(service: ServiceProcess) -> str:
    query_id = service.submit(slo={"accuracy": 0.5, "latency_s": 1.0})
    service.wait_for_phase(query_id, "serving")
    return query_id


def workers(service: ServiceProcess) -> set[int]:
    """Return the processes that answer requests, but none that was just killed."""
    found = set()
    for child in service.serving_process.children():
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            if "circinus.deploy.workers.server" in child.cmdline():
                found.add(child.pid)
    return found


class Load:
    """Requests at a steady rate with values of their own, and what came back."""

    def __init__(self, service: ServiceProcess, query_id: str, per_s: float = RATE_PER_S) -> None:
        self._per_s = per_s
        self._url = f"http://127.0.0.1:{service.port}/v1/queries/{query_id}/requests"
        self.sent: list[int] = []
        self.answers: dict[int, int] = {}  # value -> status
        self.failed: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(trust_env=False, timeout=30, limits=limits) as client:
            sender = asyncio.create_task(self._send(client))
            yield
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await asyncio.gather(*self._tasks)

    async def _send(self, client: httpx.AsyncClient) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        for value in range(1_000_000, 2_000_000):
            self.sent.append(value)
            self._tasks.append(asyncio.create_task(self._one(client, value)))
            await asyncio.sleep(1 / self._per_s)

    async def _one(self, client: httpx.AsyncClient, value: int) -> None:
        try:
            body = {"input": {"value": value}, "late": "serve"}
            answer = await client.post(self._url, json=body)
        except httpx.HTTPError as error:
            self.failed.append(repr(error))
        else:
            self.answers[value] = answer.status_code


def runs(service: ServiceProcess) -> Counter[int]:
    """Return how often the first operator ran for each value."""
    lines = map(json.loads, service.call_log.read_text().splitlines())
    double = (line[2] for line in lines if line[1] == "double")
    return Counter(int(text.split(":")[1].strip(" }")) for text in double)


def test_a_killed_service_is_missed_by_no_request_and_finds_its_workers_again(
    service: ServiceProcess,
) -> None:
    query_id = deployed(service)
    before = workers(service)
    load = Load(service, query_id)

    async def scene() -> float:
        async with load.running():
            await asyncio.sleep(1.0)
            service.kill()
            await asyncio.sleep(1.0)
            away = service.ask("GET", f"/v1/queries/{query_id}")
            assert (away.status_code, away.headers["retry-after"]) == (503, "1")
            began = time.monotonic()
            await asyncio.to_thread(service.start)
            await asyncio.to_thread(service.wait_for_phase, query_id, "serving")
            took_s = time.monotonic() - began
            await asyncio.sleep(1.0)
            return took_s

    took_s = asyncio.run(scene())
    assert load.failed == []
    assert set(load.answers.values()) == {200}
    assert len(load.answers) == len(load.sent)
    ran = runs(service)
    assert {value: ran[value] for value in load.sent} == dict.fromkeys(load.sent, 1)
    assert workers(service) == before  # none was started anew
    assert took_s < 3 * BACK_WITHIN_S  # on a busy machine
    print(f"back within {took_s:.1f} s")  # noqa: T201 - shown by `pytest -s`


def test_a_killed_worker_loses_no_request(service: ServiceProcess) -> None:
    query_id = deployed(service)
    load = Load(service, query_id, per_s=10.0)  # what comes until there is another fits the queue

    async def scene() -> None:
        async with load.running():
            await asyncio.sleep(1.0)
            before = workers(service)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(
                service.wait_for, lambda: bool(workers(service) - before), "another worker"
            )
            await asyncio.sleep(2.0)

    asyncio.run(scene())
    assert load.failed == []
    assert len(load.answers) == len(load.sent)
    assert set(load.answers.values()) == {200}


def test_a_killed_serving_process_is_started_again_with_all_that_it_ran(
    service: ServiceProcess,
) -> None:
    query_id = deployed(service)
    before, orphans = service.serving_process, workers(service)
    before.kill()

    def answers() -> bool:
        try:
            answer = service.ask(
                "POST", f"/v1/queries/{query_id}/requests", json={"input": {"value": 5}}
            )
        except httpx.HTTPError:
            return False
        return answer.status_code == 200

    service.wait_for(answers, "an answer of another serving process")
    assert service.serving_process != before
    _, alive = psutil.wait_procs([psutil.Process(p) for p in orphans if psutil.pid_exists(p)], 5)
    assert alive == []


def test_a_serving_process_for_which_nobody_comes_ends_with_its_workers(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path, extra={"CIRCINUS_KEEPER_WAITS_S": "2"})
    service.start()
    deployed(service)
    kept = [service.serving_process, *service.serving_process.children(recursive=True)]
    service.kill()
    _, alive = psutil.wait_procs(kept, timeout=30)
    assert alive == []


def test_a_service_of_other_settings_starts_a_serving_process_of_its_own(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path)
    service.start()
    try:
        query_id, before = deployed(service), service.serving_process
        service.kill()
        service.extra["CIRCINUS_DISPATCH_POLICY"] = "fcfs"
        service.start()
        service.wait_for_phase(query_id, "serving")
        assert service.serving_process != before
        assert not is_alive(before.pid)  # nobody may have asked yet how it ended
    finally:
        service.stop()


def started(folder: Path, port: int) -> subprocess.CompletedProcess[str]:
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("CIRCINUS_")},
        "PYTHONPATH": str(ROOT),
        "CIRCINUS_PORT": str(port),
        "CIRCINUS_DATABASE_URL": f"sqlite:///{folder / 'other.sqlite3'}",
    }
    return subprocess.run(
        [sys.executable, "-m", "circinus.api.serving.service"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_port_that_is_taken_is_told_in_a_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = started(tmp_path, port)
    assert done.returncode == 2
    rule = "error: host and port must be an address that is free (Address already in use)"
    assert done.stderr.splitlines()[-1].startswith(rule)


def test_a_port_has_one_service(service: ServiceProcess, tmp_path: Path) -> None:
    done = started(tmp_path, service.port)
    assert done.returncode == 2
    assert "error: port must be one that no other service listens on" in done.stderr
