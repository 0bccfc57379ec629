"""Real dispatchers on loopback, and clients that send at a steady rate to those that are ready."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from tests.e2e.service_process import NO_TLS, ROOT, free_port

PATIENCE_S = 120.0


@dataclass
class DispatcherProcess:
    """Starts and ends a dispatcher of a service."""

    folder: Path
    service: str  # its URL
    settings: Mapping[str, str]  # environment
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Start it, and do not wait."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("CIRCINUS_")},
            "PYTHONPATH": str(ROOT),
            **self.settings,
            "CIRCINUS_PORT": str(self.port),
        }
        command = [sys.executable, "-m", "circinus.api.serving.dispatch", self.service]
        with (self.folder / f"dispatcher-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stderr=log, cwd=self.folder)

    def start(self) -> None:
        self.begin()
        ends = time.monotonic() + PATIENCE_S
        while not self.is_ready():
            log = (self.folder / f"dispatcher-{self.port}.log").read_text()[-4000:]
            assert self.process is not None
            assert self.process.poll() is None, log
            assert time.monotonic() < ends, log
            time.sleep(0.05)

    def is_ready(self) -> bool:
        try:
            url = f"{self.url}/healthz"
            return httpx.get(url, trust_env=False, verify=NO_TLS).status_code == 200
        except httpx.HTTPError:
            return False

    def leave(self) -> None:
        """Tell it to end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Tell it to end; give its exit code."""
        if self.process is None or self.process.poll() is not None:
            return 0
        self.leave()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise


@dataclass
class SteadyLoad:
    """Requests at a steady rate, each to the next of the addresses that are ready then."""

    ready: Callable[[], Sequence[str]]
    path: str
    body: Callable[[int], object]
    per_s: float = 20.0
    headers: Mapping[str, str] = field(default_factory=dict)
    sent: int = 0
    seconds: list[float] = field(default_factory=list)  # of the answered
    failed: list[str] = field(default_factory=list)
    answers: dict[int, object] = field(default_factory=dict)  # number -> output

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send until the block is left, and wait for what was sent."""
        async with httpx.AsyncClient(trust_env=False, timeout=40, headers=self.headers) as client:
            tasks: list[asyncio.Task[None]] = []
            sender = asyncio.create_task(self._send(client, tasks))
            try:
                yield
            finally:
                sender.cancel()
                await asyncio.gather(sender, return_exceptions=True)
                await asyncio.gather(*tasks)

    def told(self) -> str:
        """Return the figures in words."""
        found = np.array(self.seconds)
        p50, p99 = np.quantile(found, [0.5, 0.99], method="inverted_cdf")
        times = f"p50 {p50:.4f} s, p99 {p99:.4f} s, longest {found.max():.4f} s"
        return f"{self.sent} requests at {self.per_s:g}/s, {len(self.failed)} failed; {times}"

    async def _send(self, client: httpx.AsyncClient, tasks: list[asyncio.Task[None]]) -> None:
        began = time.monotonic()
        while True:
            number = self.sent
            self.sent += 1
            tasks.append(asyncio.create_task(self._one(client, number)))
            await asyncio.sleep(max(began + self.sent / self.per_s - time.monotonic(), 0.0))

    async def _one(self, client: httpx.AsyncClient, number: int) -> None:
        places = self.ready()
        began = time.monotonic()
        at = f"at {began:.2f} to {places}"
        try:
            url = places[number % len(places)] + self.path
            answer = await client.post(url, json=self.body(number))
        except httpx.HTTPError as error:
            self.failed.append(f"{at}: {error!r} after {time.monotonic() - began:.2f} s")
            return
        if answer.status_code != 200:
            self.failed.append(f"{at}: {answer.status_code} {answer.text}")
            return
        self.seconds.append(time.monotonic() - began)
        self.answers[number] = answer.json()["output"]
