"""A service whose database is another's, or goes away; a service that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.e2e.service_process import ON_ONE_TIER, ROOT, ServiceProcess, free_port, query, serving

DATABASE, BAD_INPUT = 9, 2
SERVICE = ("-m", "circinus.api.serving.service")


def ran(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    told = {f"CIRCINUS_{name.upper()}": value for name, value in settings.items()}
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CIRCINUS_")}
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "CIRCINUS_PORT": str(free_port()), **told},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def refused(done: subprocess.CompletedProcess[str], code: int, words: str) -> None:
    lines = done.stderr.splitlines()
    assert done.returncode == code, done.stderr
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], done.stderr
    assert words in lines[-1]
    assert "Traceback" not in done.stderr


def test_a_folder_for_sockets_that_cannot_be_made_is_a_sentence_and_exit_code_2(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'a.sqlite3'}"
    done = ran(*SERVICE, database_url=url, runtime="/proc/nowhere")
    refused(done, BAD_INPUT, "runtime must be a folder that can be made")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that only this test has."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'service.sqlite3'}"
    return postgres.shared().fresh("outside")


@pytest.mark.slow
def test_a_database_has_one_service_and_a_second_names_it(
    database_url: str, tmp_path: Path
) -> None:
    first = ServiceProcess(tmp_path, database_url=database_url)
    first.start()
    try:
        assert first.process is not None
        done = ran(*SERVICE, database_url=database_url)
        words = f"the database must have one service, and has process {first.process.pid} on "
        refused(done, DATABASE, words)
        assert f"port {first.port}" in done.stderr
        # What other programs keep there, they may keep on.
        other = ran("-m", "circinus.api.cli", "history", "list", database_url=database_url)
        assert other.returncode == 0, other.stderr
        query_id = first.submit(limits={"configurations": 2})
        first.wait_for_phase(query_id, "serving")
        first.kill()
        first.start()
        first.wait_for_phase(query_id, "serving")
    finally:
        assert first.stop() == 0
    second = ServiceProcess(tmp_path, database_url=database_url)
    second.start()
    assert second.stop() == 0


def test_a_service_is_stopped_in_order_by_a_termination(tmp_path: Path) -> None:
    service = ServiceProcess(tmp_path)
    service.start()
    assert service.process is not None
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(30) == 0
    assert '"event": "worker.stopped"' in (tmp_path / "service.log").read_text()


@pytest.fixture
def server() -> Iterator[postgres.PostgresServer]:
    """A PostgreSQL server that a test may stop."""
    with postgres.own() as made:
        yield made


@pytest.mark.slow
def test_while_the_database_is_away_deployments_answer_and_all_else_is_told_when_to_come_again(
    server: postgres.PostgresServer, tmp_path: Path
) -> None:
    url = server.fresh("away")
    with serving(
        tmp_path, ON_ONE_TIER, "tests.e2e.slow_sum:pipeline", database_url=url
    ) as service:
        served = service.submit(slo={"accuracy": 0.5, "latency_s": 1.0})
        service.wait_for_phase(served, "serving")
        planned = service.submit(limits={"profiling_s": 20.0}, data={"examples": 200})
        service.wait_for_phase(planned, "planning")
        server.stop()

        for method, path in (
            ("GET", "/v1/queries"),
            ("POST", "/v1/queries"),
            ("GET", "/v1/schedule"),
            ("GET", "/readyz"),
        ):
            answer = service.ask(method, path, json=query() if method == "POST" else None)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2"), answer.text
            assert answer.json()["detail"] == "the database cannot be reached now"
        assert service.ask("GET", "/healthz").status_code == 200
        until = time.monotonic() + 3.0
        while time.monotonic() < until:
            answer = service.ask(
                "POST", f"/v1/queries/{served}/requests", json={"input": {"value": 5}}
            )
            assert answer.status_code == 200, answer.text

        server.start()
        service.wait_for(service.is_ready, "the service to be ready again")
        service.wait_for_phase(planned, "serving", "waiting")
    log = (tmp_path / "service.log").read_text()
    told = [json.loads(line) for line in log.splitlines() if '"database.failed' in line]
    assert [line for line in log.splitlines() if "Traceback" in line] == []
    # The service, its serving process and a planning worker: each says so once, and once again
    # when it is back.
    assert len([line for line in told if line["event"] == "database.failed"]) <= 3
    assert '"worker.died"' not in log
