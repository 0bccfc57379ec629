"""An HTTP server that answers JSON with JSON, as a unit's model server does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass(kw_only=True)
class AnsweringServed:
    """Where it listens, and what it was asked; what it answers may be changed meanwhile."""

    answer: Callable[[object], object]  # bytes are sent as they are, the rest as JSON
    status: int = 200
    url: str = ""
    asked: list[tuple[str, object]] = field(default_factory=list)  # path and input


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, served: AnsweringServed) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served = served
        served.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        served = self.server.served
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        served.asked.append((self.path, given))
        found = served.answer(given)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        head = f"HTTP/1.1 {served.status} told\r\ncontent-length: {len(body)}\r\n\r\n"
        self.wfile.write(head.encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def answering(answer: Callable[[object], object], status: int = 200) -> Iterator[AnsweringServed]:
    served = AnsweringServed(answer=answer, status=status)
    with _Server(served) as server:
        thread = Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
