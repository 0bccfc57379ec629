"""An HTTP server that takes a while for each request, one at a time, and counts them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread


class RampServer(ThreadingHTTPServer):
    """Answers, after `service_s` with the lock, by its status."""

    request_queue_size = 1024

    def __init__(self, service_s: float, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.service_s, self.status = service_s, status
        self.busy, self.served = Lock(), 0
        self.bodies: set[bytes] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: RampServer

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.server.busy:
            Event().wait(self.server.service_s)
            self.server.served += 1
            self.server.bodies.add(body)
        self.send_response(self.server.status)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving(service_s: float, status: int = 200) -> Iterator[RampServer]:
    with RampServer(service_s, status) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
