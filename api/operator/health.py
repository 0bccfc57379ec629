"""`/healthz` and `/readyz` of a process without HTTP of its own, for the probes of its pod."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import ClassVar

from circinus.pipelines import checks
from circinus.pipelines.errors import InvalidInput

Ailing = Callable[[], Sequence[str]]
"""Returns what is wrong, in words; nothing: all is well. Called from any thread."""

_LARGEST_PORT = 65535
_NOT_FOUND, _UNAVAILABLE, _OK = 404, 503, 200


@contextmanager
def answering(port: int, paths: Mapping[str, Ailing]) -> Iterator[int]:
    """Answer `GET` of each path with 200, or 503 and what is wrong; give the port.

    `port` 0: any that is free. InvalidInput if it cannot be had.
    """
    checks.require(0 <= port <= _LARGEST_PORT, "health", "must be in [0, 65535]", port)
    handler = type("Answering", (_Handler,), {"paths": paths})
    try:
        server = _Server(("", port), handler)
    except OSError as error:
        rule = f"must be a port that is free ({error.strerror})"
        raise InvalidInput.of("health", rule, port) from error
    thread = Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def server_bind(self) -> None:
        """Bind without asking for this machine's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_port = self.server_address[1]


class _Handler(BaseHTTPRequestHandler):
    paths: ClassVar[Mapping[str, Ailing]] = {}
    timeout = 10.0  # of a client that says nothing

    def do_GET(self) -> None:
        """Answer one request."""
        ailing = self.paths.get(self.path.partition("?")[0])
        if ailing is None:
            self._answer(_NOT_FOUND, {"status": "no such path", "paths": sorted(self.paths)})
            return
        wrong = list(ailing())
        if wrong:
            self._answer(_UNAVAILABLE, {"status": "unavailable", "wrong": wrong})
        else:
            self._answer(_OK, {"status": "ok"})

    def _answer(self, status: int, document: Mapping[str, object]) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing: probes come every few seconds."""
