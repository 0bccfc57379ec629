"""A real service process on loopback, for tests."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

ON_ONE_TIER = """
name: one
tiers:
  - {name: device, machines: 1, price_usd_per_hour: 0.0, dedicated: true}
"""
ROOT = Path(__file__).parents[2]
PATIENCE_S = 180.0
_POLL_S = 0.1
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP that are made often: each would load all authorities otherwise."""


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_serving_process(process: psutil.Process, port: str) -> bool:
    """Return whether a process is the serving process of a port."""
    line = process.info["cmdline"] or [""]
    return "circinus.api.serving.process" in line and Path(line[-1]).name == port


@dataclass
class ServiceProcess:
    """Starts, kills and talks to a service on one database."""

    folder: Path
    extra: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    database_url: str = ""  # empty: a file of the folder

    def __post_init__(self) -> None:
        self.database_url = self.database_url or f"sqlite:///{self.folder / 'service.sqlite3'}"

    @property
    def call_log(self) -> Path:
        return self.folder / "calls.jsonl"

    def start(self) -> None:
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CIRCINUS_")},
            "PYTHONPATH": str(ROOT),
            "CIRCINUS_DATABASE_URL": self.database_url,
            "CIRCINUS_PORT": str(self.port),
            "CIRCINUS_PLANNING_WORKERS": "1",
            "CIRCINUS_EXTRA_PIPELINES": "tests.e2e.slow_sum:pipeline",
            "CIRCINUS_WORKER_LOGS": str(self.folder / "logs"),
            "SLOW_SUM_LOG": str(self.call_log),
            **self.extra,
        }
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "circinus.api.serving.service"],
                env=environment,
                stderr=log,
                cwd=self.folder,
            )
        self.wait_for(self.is_ready, "the service to be ready")

    def own_processes(self) -> list[psutil.Process]:
        """Return the service and its serving process."""
        assert self.process is not None
        service = psutil.Process(self.process.pid)
        return [service, self.serving_process]

    @property
    def serving_process(self) -> psutil.Process:
        """Return the serving process of the service's port."""
        found = (
            p for p in psutil.process_iter(["cmdline"]) if is_serving_process(p, str(self.port))
        )
        return next(found)

    def kill(self) -> list[psutil.Process]:
        """Kill the service alone; return its other children than the serving process."""
        assert self.process is not None
        service, serving_process = psutil.Process(self.process.pid), self.serving_process
        kept = {serving_process, *serving_process.children(recursive=True)}
        children = [child for child in service.children(recursive=True) if child not in kept]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        return children

    def stop(self) -> int:
        """Interrupt the service as a terminal does; give its exit code."""
        if self.process is None or self.process.poll() is not None:
            with suppress(StopIteration):  # nobody comes after one that was killed
                self.serving_process.terminate()
            return 0
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def ask(
        self, method: str, path: str, *, json: object = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        told = {**self.headers, **(headers or {})}
        with httpx.Client(trust_env=False, timeout=30, headers=told, verify=NO_TLS) as client:
            return client.request(method, f"http://127.0.0.1:{self.port}{path}", json=json)

    def upload(self, content: bytes, media_type: str) -> httpx.Response:
        """Hand over a data set."""
        url = f"http://127.0.0.1:{self.port}/v1/datasets"
        told = {**self.headers, "Content-Type": media_type}
        return httpx.post(url, content=content, headers=told, timeout=30, trust_env=False)

    def submit(self, **more: object) -> str:
        answer = self.ask("POST", "/v1/queries", json=query(**more))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def query(self, query_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask("GET", f"/v1/queries/{query_id}").json()
        return found

    def imitate(self, *between: str, mbit_per_s: float) -> None:
        """Let an emulated link be so thin from now on."""
        link = {"between": between, "bandwidth_mbit_per_s": mbit_per_s}
        answer = self.ask("PATCH", "/v1/emulation", json={"links": [link]})
        assert answer.status_code == 200, answer.text

    def wait_for_phase(self, query_id: str, *phases: str) -> dict[str, Any]:
        self.wait_for(
            lambda: self.query(query_id)["phase"] in phases, f"{query_id} to be {phases}"
        )
        return self.query(query_id)

    def wait_for(self, happened: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not happened():
            if self.process is not None and self.process.poll() is not None:
                raise AssertionError(f"the service ended while waiting for {what}:\n{self._log()}")
            if time.monotonic() > deadline:
                raise AssertionError(f"waited in vain for {what}:\n{self._log()}")
            time.sleep(_POLL_S)

    def _log(self) -> str:
        """Return the end of what the service wrote."""
        return (self.folder / "service.log").read_text()[-6000:]

    def is_ready(self) -> bool:
        try:
            return self.ask("GET", "/readyz").status_code == 200
        except httpx.HTTPError:
            return False


@contextmanager
def serving(
    folder: Path, infrastructure: str, pipeline: str, *, database_url: str = "", **settings: str
) -> Iterator[ServiceProcess]:
    """Run a service with an infrastructure (YAML) and a pipeline of its own.

    Args:
        folder: For everything of it.
        infrastructure: Text of the file.
        pipeline: Where it is, `module:name`.
        database_url: Empty: a file of the folder.
        settings: Further ones, without `CIRCINUS_`, in small letters.
    """
    (folder / "lab.yaml").write_text(infrastructure)
    service = ServiceProcess(
        folder,
        database_url=database_url,
        extra={
            "CIRCINUS_INFRASTRUCTURE": str(folder / "lab.yaml"),
            "CIRCINUS_EXTRA_PIPELINES": pipeline,
            **{f"CIRCINUS_{name.upper()}": value for name, value in settings.items()},
        },
    )
    service.start()
    try:
        yield service
    finally:
        service.stop()


def query(**more: object) -> dict[str, object]:
    """Return a query that slow-sum can meet."""
    return {
        "pipeline": "slow-sum",
        "data": {"examples": 60},
        "slo": {"accuracy": 0.8, "latency_s": 1.0},
        **more,
    }
