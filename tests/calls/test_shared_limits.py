"""Processes that share a database keep within limits together, as the server sees it."""

from __future__ import annotations

import contextlib
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.calls.calling_process import AT_ONCE, REQUESTS, TOKENS
from tests.contracts.databases import opened, postgres, sqlite_file
from tests.profiler.limited_calls import most_in_a_window

pytestmark = pytest.mark.slow

WINDOW_S = 1.5
PROCESSES = 4


class CountingServer(socketserver.ThreadingTCPServer):
    """Answers whoever calls it, and notes when which call came."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counting)
        self.lock = threading.Lock()
        self.seen: list[tuple[float, float]] = []  # when, tokens
        self.at_once = 0
        self.most_at_once = 0

    @property
    def address(self) -> str:
        """Return HOST:PORT."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"


class _Counting(socketserver.StreamRequestHandler):
    server: CountingServer

    def handle(self) -> None:
        told = self.rfile.readline().split()
        if len(told) != 2:  # killed before it had called
            return
        server = self.server
        with server.lock:
            server.seen.append((time.monotonic(), float(told[0])))
            server.at_once += 1
            server.most_at_once = max(server.most_at_once, server.at_once)
        time.sleep(float(told[1]))
        with server.lock:
            server.at_once -= 1
        with contextlib.suppress(OSError):
            self.wfile.write(b".")


@pytest.fixture
def server() -> Iterator[CountingServer]:
    with CountingServer() as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


@contextlib.contextmanager
def callers(
    url: str, address: str, window_s: float = WINDOW_S
) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "tests.calls.calling_process", url, address]
    made = [
        subprocess.Popen([*command, str(window_s), str(seed)], cwd=Path(__file__).parents[2])
        for seed in range(PROCESSES)
    ]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
            each.wait()


def wait_for_calls(server: CountingServer, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(server.seen) < count:
        assert time.monotonic() < deadline, f"{len(server.seen)} calls only"
        time.sleep(0.02)


@pytest.mark.parametrize("kind", [sqlite_file, postgres], ids=["sqlite", "postgres"])
def test_no_window_of_the_server_holds_more_than_a_limit_also_when_a_process_is_killed(
    kind: Callable[[Path], str], tmp_path: Path, server: CountingServer
) -> None:
    url = kind(tmp_path)
    opened(url).dispose()
    with callers(url, server.address) as running:
        wait_for_calls(server, 80)
        running[0].kill()
        before = len(server.seen)
        wait_for_calls(server, before + 120)
        assert all(each.poll() is None for each in running[1:])
    with server.lock:
        seen = list(server.seen)
    requests = most_in_a_window([(at, 1.0) for at, _ in seen], WINDOW_S)
    tokens = most_in_a_window(seen, WINDOW_S)
    assert requests <= REQUESTS
    assert tokens <= TOKENS
    assert server.most_at_once <= AT_ONCE
    # Not by calling next to nothing: 200 calls of 20 tokens take at least 1 + 2 windows.
    assert requests > REQUESTS / 4 or tokens > TOKENS / 4
