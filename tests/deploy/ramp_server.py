"""An HTTP server in a process of its own that takes a while for each request, one at a time."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from threading import Event, Lock, Thread


@dataclass(kw_only=True)
class RampServed:
    """Where it listens, and what it counted once it ended."""

    url: str
    served: int = 0
    bodies: frozenset[bytes] = frozenset()


class _Server(ThreadingHTTPServer):
    request_queue_size = 1024

    def __init__(self, service_s: float, status: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service_s, self.status = service_s, status
        self.busy, self.served, self.bodies = Lock(), 0, set[bytes]()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.busy:
            Event().wait(self.server.service_s)
            self.server.served += 1
            self.server.bodies.add(body)
        head = f"HTTP/1.1 {self.server.status} told\r\ncontent-length: 2\r\n\r\n"
        self.wfile.write(head.encode() + b"ok")  # in one piece, for which nobody waits

    def log_message(self, format: str, *args: object) -> None:
        pass


def _run(service_s: float, status: int, way: Connection) -> None:
    server = _Server(service_s, status)
    Thread(target=server.serve_forever, daemon=True).start()
    way.send(f"http://127.0.0.1:{server.server_address[1]}/")
    way.recv()
    way.send((server.served, frozenset(server.bodies)))


@contextmanager
def serving(service_s: float, status: int = 200) -> Iterator[RampServed]:
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_run, args=(service_s, status, its), daemon=True)
    process.start()
    try:
        served = RampServed(url=ours.recv())
        yield served
        ours.send("end")
        served.served, served.bodies = ours.recv()
        process.join(10.0)
    finally:
        process.kill()
        process.join()
