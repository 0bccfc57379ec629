"""A server of events on a real port, whose connections a test cuts after any number of bytes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

AT = "2026-01-01T00:00:00Z"


def event(serial: int, kind: str = "query.progress", query_id: str | None = "q-1") -> str:
    """Return an event as its JSON; U+2028 ends a line for Python, not for the protocol."""
    told = {
        "id": serial,
        "at": AT,
        "kind": kind,
        "query_id": query_id,
        "words": f"event\u2028{serial}",
        "data": {"n": serial},
    }
    return json.dumps(told, ensure_ascii=False)


@dataclass
class EventServer:
    """What it tells, and how long connections live."""

    serials: list[int] = field(default_factory=list)
    cuts: Iterator[int] = field(default_factory=lambda: iter(()))  # bytes of each; then all
    refusals: Iterator[int] = field(default_factory=lambda: iter(()))  # statuses of the first
    query: dict[str, object] = field(default_factory=dict)
    asked: list[tuple[str, str | None]] = field(default_factory=list)  # path, Last-Event-ID
    fetched: list[str] = field(default_factory=list)  # paths that were asked for an answer
    dropped: int = 0  # events up to this one are not kept
    open: bool = True  # whether a connection stays open once all is told
    port: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stream(self, after: int) -> bytes:
        reset = 'id: 0\nevent: reset\ndata: {"after": 0}\n\n' if after < self.dropped else ""
        frames = [
            f"id: {serial}\nevent: query.progress\ndata: {event(serial)}\n\n"
            for serial in self.serials
            if serial > after
        ]
        return ": here\n\n".join([reset, *frames]).encode()


def _handler(server: EventServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            last = self.headers.get("Last-Event-ID")
            path = self.path.partition("?")[0]
            if "text/event-stream" not in self.headers.get("Accept", ""):
                self._json(path)
                return
            server.asked.append((path, last))
            status = next(server.refusals, None)
            if status is not None:
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.end_headers()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.end_headers()
            cut = next(server.cuts, None)
            with suppress(OSError):
                after = int(last or 0)
                self.wfile.write(server.stream(after)[:cut])
                self.wfile.flush()
                while cut is None and server.open and not server.over.wait(0.02):
                    known = max([after, *server.serials])
                    if self.wfile.closed:
                        return
                    if known > after:
                        after, before = known, max(after, known - 1)
                        self.wfile.write(server.stream(before))
                        self.wfile.flush()

        def _json(self, path: str) -> None:
            server.fetched.append(path)
            latest = max(server.serials, default=0)
            page = {"items": [], "latest": latest}
            body = json.dumps(page if path.endswith("/events") else server.query).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@contextmanager
def telling(server: EventServer) -> Iterator[EventServer]:
    """Serve until the block is left."""
    made = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    made.daemon_threads = True
    server.port = made.server_port
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        made.shutdown()
        thread.join()
        made.server_close()
